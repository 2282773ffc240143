"""What the event bus is told beyond the settings every service has."""

from pathlib import Path

from valet_service.settings import Settings


def socket_path(settings: Settings) -> Path:
    """The unix socket on which api hands accepted connections over."""
    return settings.run_dir / "event-bus.sock"
