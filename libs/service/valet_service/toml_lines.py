"""On which line of a TOML text a key stands: what `tomllib` forgets and a person needs."""

import re
import tomllib

_HEADER = re.compile(r"\s*\[\[?\s*(?P<keys>[^\]]+?)\s*\]\]?\s*(#.*)?$")
_ASSIGNMENT = re.compile(r"""\s*(?P<keys>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_KEY = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """The line (from 1) where the key of this path stands, or the nearest of its parents; None for an empty
    file.

    The text must be valid TOML. A key inside an inline table is found by the line of the table.
    """
    best: tuple[int, int] | None = None
    for number, path in _positions(text):
        depth = _shared(path, keys)
        if depth == len(keys) and len(path) >= len(keys):
            return number
        if depth == len(path) and depth > 0 and (best is None or depth > best[0]):
            best = (depth, number)
    return best[1] if best else None


def _positions(text: str) -> list[tuple[int, tuple[str, ...]]]:
    table: tuple[str, ...] = ()
    found: list[tuple[int, tuple[str, ...]]] = []
    pending = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if pending:  # inside a value that goes over several lines
            pending = f"{pending}\n{line}"
            if _complete(pending):
                pending = ""
            continue
        if header := _HEADER.match(line):
            table = _split(header["keys"])
            found.append((number, table))
        elif assignment := _ASSIGNMENT.match(line):
            found.append((number, (*table, *_split(assignment["keys"]))))
            if not _complete(line):
                pending = line
    return found


def _complete(assignment: str) -> bool:
    try:
        tomllib.loads(assignment)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _split(keys: str) -> tuple[str, ...]:
    return tuple(key.strip("\"'") for key in _KEY.findall(keys))


def _shared(path: tuple[str, ...], keys: tuple[str, ...]) -> int:
    count = 0
    for one, other in zip(path, keys, strict=False):
        if one != other:
            break
        count += 1
    return count
