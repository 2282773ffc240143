"""Where `valet.toml` is looked for, and reading the one in force."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import platformdirs
from valet_service import config_file
from valet_service.config_file import ConfigError, ValetConfig

NAME = "valet.toml"


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration in force."""

    path: Path | None
    """The file it came from; None when there is none."""
    config: ValetConfig
    """The file, and the providers that environment variables switch on."""


def candidates(data_dir: Path) -> tuple[Path, ...]:
    """Where a file is looked for when none is named, first hit wins: here, in D, in the user's configuration."""
    return (
        Path.cwd() / NAME,
        data_dir / NAME,
        platformdirs.user_config_path("valet", appauthor=False) / NAME,
    )


def load(data_dir: Path, named: Path | None = None, environment: Mapping[str, str] = os.environ) -> Configuration:
    """Find and read the configuration: `--config`, else `$VALET_CONFIG`, else `candidates`. Raises
    `ConfigError`.
    """
    if named is None and environment.get("VALET_CONFIG"):
        named = Path(environment["VALET_CONFIG"])
    path = named or next((path for path in candidates(data_dir) if path.is_file()), None)
    if path is None:
        return Configuration(path=None, config=config_file.with_environment(ValetConfig(), environment))
    path = path.expanduser().absolute()
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(str(path), None, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(str(path), line, "not UTF-8 text") from None
    config = config_file.parse(text, str(path))
    return Configuration(path=path, config=config_file.with_environment(config, environment))


def key_variables(config: ValetConfig) -> frozenset[str]:
    """Every environment variable that may hold a model provider's key."""
    usual = {variable for _, variables in config_file.ENVIRONMENT_PROVIDERS for variable in variables}
    return frozenset(usual | {p.api_key_env for p in config.providers if p.api_key_env})


def object_variables(config: ValetConfig) -> frozenset[str]:
    """Every environment variable that holds a key of the object store."""
    return frozenset(name for name in (config.objects.access_key_env, config.objects.secret_key_env) if name)
