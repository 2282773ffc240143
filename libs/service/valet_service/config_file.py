"""`valet.toml`: what a person may set, and which model providers follow from it and from the environment.

Pure: text and environment in, frozen structs or a `ConfigError` with the line out. Where the file is looked
for is decided in `infra/local`; a service finds the file in force in `VALET_CONFIG`.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import msgspec

from valet_service.toml_reader import ConfigError as ConfigError
from valet_service.toml_reader import Reader

_PROVIDER_ID = re.compile(r"[a-z0-9][a-z0-9-]*")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PORTS = re.compile(r"(\d{1,5})\s*-\s*(\d{1,5})")

PORTS = (1024, 65535)
"""Ports that a program may take that is not the system's."""

Isolation = Literal["bwrap", "none"]
Network = Literal["open", "none"]
Desktop = Literal["first-use", "boot", "off"]
LocalRepos = Literal["administrators", "everyone"] | tuple[str, ...]


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model costs, in US dollars per million tokens."""

    input: float
    output: float
    cache_read: float = 0.0
    cache_write: float = 0.0


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a provider."""

    name: str | None = None
    """What people see; the id when absent."""
    context: int = 128_000
    """Context window in tokens."""
    output: int = 8_192
    """Longest answer in tokens."""
    cost: Cost | None = None
    reasoning: bool = False
    """Whether it thinks before it answers, and takes an effort."""
    tools: bool = True
    """Whether it can call tools; an agent can do little with one that cannot."""
    images: bool = False
    """Whether it takes images."""


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model is asked: an OpenAI-compatible server, or one of the providers the agent knows itself."""

    id: str
    base_url: str | None = None
    """Root of an OpenAI-compatible API, e.g. `http://127.0.0.1:11434/v1`. None: the agent knows the address.
    """
    api_key_env: str | None = None
    """The environment variable that holds the key. None: the server wants no key."""
    models: tuple[tuple[str, Model], ...] = ()
    """Model ids in the order of the file. Empty: any model of that provider is accepted until its list is
    known.
    """
    from_environment: bool = False
    """Whether it is here only because its environment variable is set."""

    def model(self, model_id: str) -> Model | None:
        """The settings of a listed model, or None."""
        return next((model for name, model in self.models if name == model_id), None)


class Sandbox(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How agents are locked in."""

    isolation: Isolation = "bwrap"
    """`none` runs the agent with the rights of the platform itself: only for a machine that is a sandbox
    already.
    """
    network: Network = "open"
    """Whether a sandbox may reach the outside. Its model providers it reaches either way."""
    allow_hosts: tuple[str, ...] = ()
    """With `network = "none"`: host names that may be reached all the same; `*.example.org` takes subdomains
    in.
    """
    memory_mb: int = 2048
    cpus: float = 2.0
    """Processor time, in cores; applied where control groups are writable."""
    pids: int = 512
    """Most processes and threads at once."""
    desktop: Desktop = "first-use"
    """When a sandbox's desktop is started, where the machine has one: `first-use`, `boot` or `off`."""
    local_repos: LocalRepos = "administrators"
    """Who may start a session from a directory of the platform's machine: administrators alone, everyone, or, for a
    list of directories, everyone from what is in those. Administrators may from any.
    """
    question_timeout_seconds: float = 300.0
    """How long a question of the agent waits for a person before its default is taken."""
    public_host: str | None = None
    """The name by which browsers elsewhere reach this machine. None: a sandbox's terminal, desktop and tunnels are
    opened on this machine only.
    """
    public_ports: str | None = None
    """The ports sandboxes are reached at, `first-last`, e.g. `20000-20063`. None: any that is free."""
    public_url: str | None = None
    """How browsers reach such a port through a proxy with TLS, e.g. `https://{port}.valet.example.org`. None: by
    `public_host` and the port itself.
    """


class Objects(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where saved work and attachments are kept."""

    store: Literal["jetstream", "s3"] = "jetstream"
    """`jetstream`: beside the log, in the broker. `s3`: a server that speaks S3."""
    bucket: str | None = None
    """With `s3`: the bucket, which must be there."""
    endpoint: str | None = None
    """With `s3`: root of the server. None: Amazon's, of the region."""
    region: str = "us-east-1"
    access_key_env: str | None = None
    """The environment variable that holds the key's id. None: the credentials the machine itself has (a role)."""
    secret_key_env: str | None = None
    """The environment variable that holds the key."""


class ValetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A whole `valet.toml`."""

    providers: tuple[Provider, ...] = ()
    default_model: str | None = None
    """`provider/model`; what a session uses that names none."""
    sandbox: Sandbox = Sandbox()
    objects: Objects = Objects()


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The models the agent knows of a provider."""

    agent: str
    """The agent's version; another one knows other models."""
    models: tuple[str, ...]


class _ProviderTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    base_url: str | None = None
    api_key_env: str | None = None
    models: Any = msgspec.field(default_factory=list[str])


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    default_model: str | None = None
    providers: Any = msgspec.field(default_factory=dict[str, Any])
    sandbox: Any = msgspec.field(default_factory=dict[str, Any])
    objects: Any = msgspec.field(default_factory=dict[str, Any])


ENVIRONMENT_PROVIDERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("anthropic", ("ANTHROPIC_API_KEY",)),
    ("openai", ("OPENAI_API_KEY",)),
    ("google", ("GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")),
)
"""Providers that work with no file, and the variables that switch them on; the first one set is used."""

USUAL_MODELS: dict[str, str] = {
    "anthropic": "claude-sonnet-4-6",
    "openai": "gpt-5.5",
    "google": "gemini-2.5-pro",
}
"""What a session uses of a provider that is there by its variable alone. The agent knows them (1.18.33's catalogue);
its own choice of a default would be an image model for one of them."""


def parse(text: str, path: str = "valet.toml") -> ValetConfig:
    """Read the text of a configuration file. Raises `ConfigError` with the line of the first thing wrong."""
    reader = Reader(path, text)
    top = reader.convert(reader.document(), _File, ())
    sandbox = reader.convert(top.sandbox, Sandbox, ("sandbox",))
    _check_sandbox(reader, sandbox)
    objects = reader.convert(top.objects, Objects, ("objects",))
    _check_objects(reader, objects)
    tables = reader.table(top.providers, ("providers",))
    providers = tuple(_provider(reader, name, table) for name, table in tables.items())
    config = ValetConfig(providers=providers, default_model=top.default_model, sandbox=sandbox, objects=objects)
    _check_default_model(reader, config)
    return config


def with_environment(config: ValetConfig, environment: Mapping[str, str]) -> ValetConfig:
    """Add the providers whose usual environment variable is set and which the file does not define itself."""
    defined = {provider.id for provider in config.providers}
    found = tuple(
        Provider(id=name, api_key_env=variable, from_environment=True)
        for name, variables in ENVIRONMENT_PROVIDERS
        if name not in defined
        for variable in [next((v for v in variables if environment.get(v)), None)]
        if variable is not None
    )
    return msgspec.structs.replace(config, providers=config.providers + found)


def usual_model(config: ValetConfig) -> str | None:
    """What a session uses that names no model: `default_model`, else the first provider's first or usual one.

    None when there is no provider at all.
    """
    if config.default_model is not None:
        return config.default_model
    for provider in config.providers:
        name = provider.models[0][0] if provider.models else USUAL_MODELS.get(provider.id)
        if name is not None:
            return f"{provider.id}/{name}"
    return None


def is_model(model: str, choice: Collection[str]) -> bool:
    """Whether a model is in a choice of `provider/model` and, for providers of which any is taken, `provider/*`."""
    provider, _, name = model.partition("/")
    return bool(name) and (model in choice or f"{provider}/*" in choice)


def model_list_path(data_dir: Path, provider_id: str) -> Path:
    """Where the `ModelList` (JSON) of a provider lies for which the file lists no models.

    It comes from the agent itself and is there some seconds after the first start with that provider.
    """
    return data_dir / "cache" / "models" / f"{provider_id}.json"


def port_range(text: str) -> range:
    """The ports of `first-last`, both included. Raises `ValueError` with words for who wrote it."""
    found = _PORTS.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a range of ports; write two of them, such as 20000-20063")
    first, last = int(found[1]), int(found[2])
    if not PORTS[0] <= first <= last <= PORTS[1]:
        raise ValueError(
            f"{text!r}: the first port is at least {PORTS[0]}, the last one at most {PORTS[1]}, not before it"
        )
    return range(first, last + 1)


def missing_keys(config: ValetConfig, environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Providers of the file whose key is not in the environment, as pairs (provider, variable)."""
    return tuple(
        (provider.id, provider.api_key_env)
        for provider in config.providers
        if provider.api_key_env and not environment.get(provider.api_key_env)
    )


def _provider(reader: Reader, name: str, value: object) -> Provider:
    keys = ("providers", name)
    table = reader.convert(reader.table(value, keys), _ProviderTable, keys)
    if not _PROVIDER_ID.fullmatch(name):
        raise reader.error(keys, f"provider id {name!r} may hold only small letters, digits and dashes")
    if table.base_url is not None:
        _check_url(reader, table.base_url, (*keys, "base_url"))
    if table.api_key_env is not None:
        _check_variable(reader, table.api_key_env, (*keys, "api_key_env"))
    models = _models(reader, table.models, (*keys, "models"))
    known = {provider for provider, _ in ENVIRONMENT_PROVIDERS}
    if table.base_url is None and name not in known:
        raise reader.error(
            keys, f"providers.{name} needs a base_url (only {', '.join(sorted(known))} are known without one)"
        )
    if table.base_url is not None and not models:
        raise reader.error(keys, f'providers.{name} needs models = ["…"]: the ids this server answers to')
    variable = table.api_key_env
    if variable is None and table.base_url is None:
        variable = dict(ENVIRONMENT_PROVIDERS)[name][0]
    return Provider(id=name, base_url=table.base_url, api_key_env=variable, models=models)


def _models(reader: Reader, value: object, keys: tuple[str, ...]) -> tuple[tuple[str, Model], ...]:
    if isinstance(value, list):
        names = reader.convert(cast("list[object]", value), list[str], keys)
        return tuple((name, Model()) for name in names)
    tables = reader.table(cast("object", value), keys) if isinstance(value, dict) else None
    if tables is None:
        raise reader.error(keys, f"{'.'.join(keys)} must be a list of model ids or a table of models")
    return tuple((name, reader.convert(table, Model, (*keys, name))) for name, table in tables.items())


def _check_url(reader: Reader, url: str, keys: tuple[str, ...]) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise reader.error(keys, f"{url!r} is not an http or https URL, such as http://127.0.0.1:11434/v1")


def _check_variable(reader: Reader, name: str, keys: tuple[str, ...]) -> None:
    if not _VARIABLE.fullmatch(name):
        # A key pasted here would end up in a file that people share; do not print it back.
        raise reader.error(
            keys, f"{keys[-1]} must be the NAME of an environment variable, such as MY_API_KEY, not the key itself"
        )


def _check_objects(reader: Reader, objects: Objects) -> None:
    if objects.store == "jetstream":
        for name in ("bucket", "endpoint", "access_key_env", "secret_key_env"):
            if getattr(objects, name) is not None:
                raise reader.error(("objects", name), f'objects.{name} is for store = "s3" only')
        return
    if not _BUCKET.fullmatch(objects.bucket or ""):
        raise reader.error(
            ("objects", "bucket"), 'objects needs bucket = "…": 3 to 63 small letters, digits, dots and dashes'
        )
    if objects.endpoint is not None:
        _check_url(reader, objects.endpoint, ("objects", "endpoint"))
    for name, other in (("access_key_env", "secret_key_env"), ("secret_key_env", "access_key_env")):
        variable = getattr(objects, name)
        if variable is not None:
            _check_variable(reader, variable, ("objects", name))
            if getattr(objects, other) is None:
                raise reader.error(("objects", name), f"objects.{name} needs {other} as well")


def _check_sandbox(reader: Reader, sandbox: Sandbox) -> None:
    least: dict[str, float] = {"memory_mb": 256, "cpus": 0.1, "pids": 32, "question_timeout_seconds": 1}
    for name, minimum in least.items():
        value = getattr(sandbox, name)
        if not value >= minimum:
            raise reader.error(("sandbox", name), f"sandbox.{name} is {value:g}; the least is {minimum:g}")
    if sandbox.public_host is not None and not _HOST.fullmatch(sandbox.public_host):
        raise reader.error(
            ("sandbox", "public_host"),
            f"sandbox.public_host is {sandbox.public_host!r}; write a name such as valet.example.org, or an IPv4"
            " address, without http:// and port",
        )
    if isinstance(sandbox.local_repos, tuple):
        for path in sandbox.local_repos:
            if not path.startswith("/"):
                raise reader.error(("sandbox", "local_repos"), f"sandbox.local_repos: {path!r} is not an absolute path")
    if sandbox.public_ports is not None:
        try:
            port_range(sandbox.public_ports)
        except ValueError as error:
            raise reader.error(("sandbox", "public_ports"), f"sandbox.public_ports is {error}") from None
    if sandbox.public_url is not None:
        _check_public_url(reader, sandbox)


def _check_public_url(reader: Reader, sandbox: Sandbox) -> None:
    keys, url = ("sandbox", "public_url"), sandbox.public_url or ""
    _check_url(reader, url.replace("{port}", "20000"), keys)
    rest = url.partition("://")[2]
    # an origin of its own for every sandbox: below a path one could read the other's pages
    if rest.count("{port}") != 1 or set("/?#@") & set(rest) or set("{}") & set(rest.replace("{port}", "")):
        raise reader.error(
            keys, "sandbox.public_url needs {port} once and no path, such as https://{port}.valet.example.org"
        )
    if sandbox.public_ports is None:
        raise reader.error(keys, "sandbox.public_url needs public_ports as well: the ports that the proxy leads to")


def _check_default_model(reader: Reader, config: ValetConfig) -> None:
    if config.default_model is None:
        return
    provider_id, slash, model_id = config.default_model.partition("/")
    if not (provider_id and slash and model_id):
        raise reader.error(("default_model",), f'{config.default_model!r} is not of the form "provider/model"')
    provider = next((p for p in config.providers if p.id == provider_id), None)
    if provider is None and provider_id not in dict(ENVIRONMENT_PROVIDERS):
        raise reader.error(("default_model",), f"there is no [providers.{provider_id}] in this file")
    if provider is not None and provider.models and provider.model(model_id) is None:
        listed = ", ".join(name for name, _ in provider.models)
        raise reader.error(("default_model",), f"providers.{provider_id} lists no model {model_id!r}, only {listed}")
