"""`python -m valet_automation`."""

from valet_service import lifecycle

from valet_automation.app import main

if __name__ == "__main__":
    lifecycle.run("automation", main)
