"""Which runners may use the portal, and what each of them has open.

A session's runner is replaced by one of a higher epoch. From the moment that is known here the older one's token is
refused and everything it has open is cut: whatever it still does, it reaches neither broker nor models nor files.

A session nothing is known of is let through: the portal may have just started, or be cut off from the broker, and the
runner in front of it is most likely the right one. If it is not, it is cut as soon as the portal knows.
"""

from collections.abc import Callable

import msgspec

from valet_sandbox_controller.errors import BadPortalRequest
from valet_sandbox_controller.portal_token import Bearer


class _Standing(msgspec.Struct):
    """What is known of a session."""

    newest: int = 0
    """The highest epoch that was requested."""
    released: int = 0
    """Epochs up to this one were released: the session ended, or failed."""


class Pass:
    """A runner's leave to use the portal for one connection or request. A context manager; `end` may come twice."""

    def __init__(self, bearer: Bearer, end: Callable[["Pass"], None]) -> None:
        self.bearer = bearer
        self._end = end
        self._cuts: list[Callable[[], None]] = []

    def hold(self, cut: Callable[[], None]) -> None:
        """`cut` is called, at once, when the runner may no longer use the portal."""
        self._cuts.append(cut)

    def end(self) -> None:
        """It is over by itself."""
        self._end(self)

    def cut(self) -> None:
        """End what it was given for."""
        for cut in self._cuts:
            cut()

    def __enter__(self) -> "Pass":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Epochs:
    """Admits runners, and cuts off those that were replaced or whose session has ended."""

    def __init__(self) -> None:
        self._standing: dict[str, _Standing] = {}
        self._open: dict[str, set[Pass]] = {}

    def admit(self, bearer: Bearer) -> Pass:
        """Let a runner in. Raises `BadPortalRequest` (407) for one that no longer counts."""
        reason = self._refusal(bearer)
        if reason is not None:
            raise BadPortalRequest(407, reason)
        leave = Pass(bearer, self._ended)
        self._open.setdefault(bearer.session_id, set()).add(leave)
        return leave

    def requested(self, session_id: str, epoch: int) -> int:
        """A sandbox of this epoch was requested: older ones are cut. How many connections that were."""
        standing = self._standing.setdefault(session_id, _Standing())
        standing.newest = max(standing.newest, epoch)
        return self._cut(session_id)

    def released(self, session_id: str, epoch: int) -> None:
        """The session needs no sandbox any more: tokens up to this epoch are refused from now on.

        What is open stays until `cut_released`, so that a runner told to end can say its last words.
        """
        standing = self._standing.setdefault(session_id, _Standing())
        standing.released = max(standing.released, epoch)

    def cut_released(self, session_id: str) -> int:
        """Cut what a released runner has kept open. How many connections that were."""
        return self._cut(session_id)

    def _refusal(self, bearer: Bearer) -> str | None:
        standing = self._standing.get(bearer.session_id)
        if standing is None:
            return None
        if bearer.epoch < standing.newest:
            return (
                f"this sandbox was replaced: its token is of epoch {bearer.epoch}, its session is at {standing.newest}"
            )
        if bearer.epoch <= standing.released:
            return "this sandbox was released: its session has ended or failed, and its token is void"
        return None

    def _cut(self, session_id: str) -> int:
        refused = [leave for leave in self._open.get(session_id, ()) if self._refusal(leave.bearer) is not None]
        for leave in refused:
            self._ended(leave)
            leave.cut()
        return len(refused)

    def _ended(self, leave: Pass) -> None:
        session_id = leave.bearer.session_id
        opened = self._open.get(session_id)
        if opened is not None:
            opened.discard(leave)
            if not opened:
                del self._open[session_id]
