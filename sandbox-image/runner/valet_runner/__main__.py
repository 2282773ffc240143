"""`python -m valet_runner`: run a sandbox's runner until told to stop."""

from valet_runner.app import main

if __name__ == "__main__":
    main()
