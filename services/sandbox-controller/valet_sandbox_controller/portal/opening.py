"""What a port of the public side leads to: a session's gateway, or one of its tunnels. Pure."""

import re

import msgspec

from valet_sandbox_controller.providers.storage import SOCKET

_TUNNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Opening(msgspec.Struct, frozen=True):
    """A way into a sandbox."""

    session_id: str
    tunnel: str | None = None
    """None for the gateway itself."""

    @property
    def key(self) -> str:
        """By which it is kept. Neither a session's id nor a tunnel's name has a slash in it."""
        return self.session_id if self.tunnel is None else f"{self.session_id}/{self.tunnel}"

    @property
    def socket(self) -> str:
        """The name of its socket in the folder that is the gateway's."""
        return SOCKET if self.tunnel is None else f"t-{self.tunnel}"

    @property
    def possible(self) -> bool:
        """Whether a tunnel may be called so: nothing of it leads out of the folder."""
        return self.tunnel is None or _TUNNEL.fullmatch(self.tunnel) is not None


def of(key: str) -> Opening:
    """What a key stands for."""
    session_id, _, tunnel = key.partition("/")
    return Opening(session_id, tunnel or None)
