"""Which of the ports there are a session, or a tunnel of it, gets. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec


class InUse(msgspec.Struct, frozen=True, kw_only=True):
    """A port that is a running sandbox's."""

    key: str
    """What it leads to (`Opening.key`)."""
    tunnel: bool = False
    """Whether that is a tunnel, which is reached by its sandbox's gateway as well."""
    used: float
    """When somebody asked for it or was connected, on any clock that only grows."""
    connections: int
    """That are open on it."""


def to_try(ports: range | None, wanted: int, taken: Collection[int], known: Mapping[str, int]) -> Iterator[int]:
    """The ports to try in order; 0 is any.

    `wanted` is the one the session had, `taken` are other sandboxes', `known` the one each session had, the most
    recently used last: what nobody had comes first, so that links which were given out stay good for long.
    """
    if ports is None:
        yield from [wanted, 0] if wanted else [0]
        return
    if wanted in ports and wanted not in taken:
        yield wanted
    had = set(known.values())
    yield from (port for port in ports if port not in had and port not in taken)
    yield from (port for port in known.values() if port in ports and port not in taken and port != wanted)


def gives_way(in_use: Iterable[InUse]) -> str | None:
    """Whose port another one gets: unused for longest, and nobody is connected; a tunnel's first. None: all are in
    use."""
    idle = [one for one in in_use if not one.connections]
    return min(idle, key=lambda one: (not one.tunnel, one.used)).key if idle else None
