"""Secrets that people keep elsewhere (1Password). Answered by integrations.

A secret is named by a reference, `op://<vault>/<item>/<field>`; no answer ever holds its value.
"""

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import LONG, WRITE, Tool


class SecretName(Reply, frozen=True, kw_only=True):
    """A secret that may be used here."""

    reference: str
    """`op://<vault>/<item>/<field>`."""
    title: str
    """What people call it."""


class SecretList(Reply, frozen=True, kw_only=True):
    """Secrets by name; never their values."""

    items: list[SecretName]
    next: str | None = None
    """Pass as `after` for the next page; none at the end."""


class ListSecrets(Tool, frozen=True, kw_only=True):
    """List the secrets this session may use: their references, never their values."""

    name = method = "list_secrets"
    category = "secrets"
    route = "POST /api/secrets/list"
    reply = SecretList
    timeout = WRITE

    vault: limits.Name | None = None
    """Only those of this vault."""
    query: limits.Name | None = None
    """Only those whose title contains this."""
    limit: limits.Page = 50
    """How many at most."""
    after: limits.Name | None = None
    """`next` of the page before."""


class SecretsInjected(Reply, frozen=True, kw_only=True):
    """The file is written."""

    path: str
    replaced: int
    """How many references were replaced."""


class InjectSecrets(Tool, frozen=True, kw_only=True):
    """Write a file from a template in which references stand for secrets. You do not see the values."""

    name = method = "inject_secrets"
    category = "secrets"
    route = "POST /api/secrets/inject"
    reply = SecretsInjected
    timeout = LONG

    template: limits.Text
    """The file's text, with `op://…` references in it."""
    path: limits.Name
    """Where to write it, below the workspace; it is kept out of git and out of saved work."""


class SecretsRan(Reply, frozen=True, kw_only=True):
    """The command has ended. Values of secrets are blanked in its output."""

    exit_code: int
    output: str
    """The last part of what it wrote."""


class RunWithSecrets(Tool, frozen=True, kw_only=True):
    """Run a command that gets secrets as environment variables. You do not see the values."""

    name = method = "run_with_secrets"
    category = "secrets"
    route = "POST /api/secrets/run"
    reply = SecretsRan
    timeout = LONG

    command: limits.Note
    """As given to `bash -c`."""
    environment: dict[str, limits.Name]
    """Name of the variable → reference of the secret."""


class SecretsFilled(Reply, frozen=True, kw_only=True):
    """The fields have their values."""

    filled: int


class FillSecrets(Tool, frozen=True, kw_only=True):
    """Fill secrets into fields of the page that is open in the sandbox's browser. You do not see the values."""

    name = method = "fill_secrets"
    category = "secrets"
    route = "POST /api/secrets/fill"
    reply = SecretsFilled
    timeout = LONG

    fields: dict[str, limits.Name]
    """CSS selector of the field → reference of the secret."""
    submit: limits.Name | None = None
    """CSS selector of what to click afterwards."""
