"""`python -m valet_gateway`: run a sandbox's gateway until told to stop."""

from valet_gateway.app import main

if __name__ == "__main__":
    main()
