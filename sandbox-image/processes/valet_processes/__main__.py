"""`python -m valet_processes`: serve a sandbox's processes until told to stop."""

from valet_processes.app import main

if __name__ == "__main__":
    main()
