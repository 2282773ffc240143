"""`D/valet.json`: how a client finds the platform that runs on a data directory."""

from pathlib import Path

import msgspec

from valet_local import lock
from valet_local.errors import NotRunning
from valet_local.files import read_if_there
from valet_local.layout import Layout


class State(msgspec.Struct, frozen=True, kw_only=True):
    """There, and readable by its owner only, exactly while the platform is ready."""

    url: str
    token: str
    nats_url: str
    pid: int
    nats_creds: str
    """Path of credentials that may read the log and write nothing."""


def running(places: Layout) -> State | None:
    """The platform that is ready on this data directory, or None."""
    content = read_if_there(places.state)
    if content is None:
        return None
    try:
        state = msgspec.json.decode(content, type=State)
    except msgspec.DecodeError:
        return None
    # The file of a platform that was killed stays behind; the lock does not.
    return state if lock.holder(places.lock) == state.pid else None


def require(data_dir: Path, places: Layout) -> State:
    """The platform that is ready. Raises `NotRunning`."""
    state = running(places)
    if state is None:
        raise NotRunning(data_dir)
    return state
