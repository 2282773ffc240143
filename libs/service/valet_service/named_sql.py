"""The SQL that a service's package carries: `queries.sql` and the folder `migrations`."""

import re
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable


def queries(package: str) -> dict[str, str]:
    """The statements of a package's `queries.sql` by name: each begins with a line `-- name: <name>`."""
    text = files(package).joinpath("queries.sql").read_text()
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def migrations(package: str) -> Sequence[Traversable]:
    """The files that make a package's schema, in order, as `database.migrate` wants them."""
    folder = files(package).joinpath("migrations")
    return sorted((one for one in folder.iterdir() if one.name.endswith(".sql")), key=lambda file: file.name)
