"""`python -m valet_api`."""

from valet_service import lifecycle

from valet_api.app import main

if __name__ == "__main__":
    lifecycle.run("api", main)
