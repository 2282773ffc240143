"""Importing libraries without the optional parts they bring in wherever those happen to be installed.

Every service pays for them at every start and for as long as it runs. Measured, with what a sandbox needs
installed as well: nats-py brings aiohttp (0.35 s, 10 MB), PyJWT cryptography (0.2 s, 10 MB), httpx its command line
with click and rich (0.2 s, 5 MB).
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without(*names: str) -> Generator[None]:
    """While it lasts these modules cannot be imported, unless they are already there."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # Python's own way to say that a module is not there
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
