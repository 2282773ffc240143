"""Errors of the event bus.

EventBusError
├── BadHandOver     a message on the hand-over socket that is not one; its sender is cut
└── Gone            the client went away while something was being sent to it
"""


class EventBusError(Exception):
    """Any error of this package."""


class BadHandOver(EventBusError):
    """Bytes on the hand-over socket that do not decode, or that came without a connection."""


class Gone(EventBusError):
    """The client's connection ended."""
