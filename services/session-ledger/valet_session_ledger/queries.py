"""The statements of `queries.sql` by name, for one schema."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files

from msgspec import Struct

from valet_session_ledger import limits

SCHEMA = "ledger"
"""Where the live tables are. A rebuild folds into another one and uses the same statements."""


class Queries(Struct, frozen=True):
    """Statements by name: `queries["upsert_turns"]`. An unknown name is a `KeyError`."""

    by_name: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.by_name[name]


def load(schema: str = SCHEMA) -> Queries:
    """Read the statements, for the tables of a schema."""
    text = in_schema((files("valet_session_ledger") / "queries.sql").read_text(), schema)
    statements: dict[str, str] = {}
    for block in text.split("-- name: ")[1:]:
        name, _, rest = block.partition("\n")
        lines = [line for line in rest.splitlines() if not line.startswith("--")]
        statements[name.strip()] = "\n".join(lines).strip()
    return Queries(statements)


def grouped(statements: Sequence[str]) -> Iterator[Sequence[str]]:
    """Consecutive statements to be sent together: as many as one may hold and still be kept prepared."""
    group: list[str] = []
    size = 0
    for statement in statements:
        if group and size + len(statement) > limits.STATEMENT_CHARACTERS:
            yield group
            group, size = [], 0
        group.append(statement)
        size += len(statement)
    if group:
        yield group


@lru_cache(limits.STATEMENTS_KEPT)
def together(*statements: str) -> str:
    """Statements that change different tables as one, whose parameters are theirs, one behind the other.

    None of them sees what another one changes (they share a snapshot), and the whole is done in one round trip.
    """
    parts: list[str] = []
    before = 0
    for number, statement in enumerate(statements):
        plain = " ".join(statement.split())
        parts.append(f"w{number} AS ({_PARAMETER.sub(_moved(before), plain)})")
        before += max(int(found) for found in _PARAMETER.findall(plain))
    return f"WITH {', '.join(parts)} SELECT 1"


_PARAMETER = re.compile(r"\$(\d+)")


def _moved(by: int) -> Callable[[re.Match[str]], str]:
    return lambda found: f"${int(found[1]) + by}"


def migrations(schema: str = SCHEMA) -> list[str]:
    """The schema's definition, in order."""
    folder = files("valet_session_ledger") / "migrations"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [in_schema(file.read_text(), schema) for file in found]


def in_schema(sql: str, schema: str) -> str:
    """Statements about the live tables, made to be about another schema's."""
    return sql if schema == SCHEMA else sql.replace(f"{SCHEMA}.", f"{schema}.")
