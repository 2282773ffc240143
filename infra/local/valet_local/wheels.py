"""Finding the programs that wheels bring along."""

import sys
from pathlib import Path


def program(distribution: str, name: str) -> Path | None:
    """A wheel's program: beside this Python as in a virtual environment, else where its installation says it
    is.
    """
    beside = Path(sys.executable).parent / name
    if beside.is_file():
        return beside
    from importlib import metadata  # seldom needed, and it would stay in memory

    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())).resolve() for file in files if file.name == name)
    return next((path for path in found if path.is_file()), None)
