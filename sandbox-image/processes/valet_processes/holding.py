"""How long a client that reads slowly may hold a process's output up. Pure.

Output a connected client has not got yet is not overwritten: the process waits for it, as it would for a terminal. A
client earns this by reading: every `RING_BYTES` it reads give it `PATIENCE` seconds, of which it never has more than
that. When they are used up it is cut, and the process goes on.
"""

from valet_processes import limits


class Patience:
    """One client's."""

    def __init__(self, seconds: float = limits.PATIENCE) -> None:
        self._full = seconds
        self.left = seconds
        """Seconds it may still hold output up."""

    def read(self, size: int) -> None:
        """It took so many bytes."""
        self.left = min(self._full, self.left + size * self._full / limits.RING_BYTES)

    def held(self, seconds: float) -> None:
        """The process waited for it."""
        self.left -= seconds

    @property
    def used_up(self) -> bool:
        """Whether it is to be cut."""
        return self.left <= 0
