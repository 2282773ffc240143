"""The statements of `queries.sql` by name, for one schema."""

from importlib.resources import files

from msgspec import Struct

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


def migrations(schema: str = SCHEMA) -> list[str]:
    """The schema's definition, in order."""
    folder = files("valet_session_ledger") / "migrations"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [in_schema(file.read_text(), schema) for file in found]


def in_schema(sql: str, schema: str) -> str:
    """Statements about the live tables, made to be about another schema's."""
    return sql if schema == SCHEMA else sql.replace(f"{SCHEMA}.", f"{schema}.")
