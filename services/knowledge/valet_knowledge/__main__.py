"""`python -m valet_knowledge`."""

from valet_service import lifecycle

from valet_knowledge.app import main

if __name__ == "__main__":
    lifecycle.run("knowledge", main)
