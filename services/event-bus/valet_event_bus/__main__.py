"""`python -m valet_event_bus`."""

from valet_service import lifecycle

from valet_event_bus.app import main

if __name__ == "__main__":
    lifecycle.run("event-bus", main)
