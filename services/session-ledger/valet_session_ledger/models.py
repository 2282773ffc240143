"""Which models an agent may give a child: those the configuration knows, as with people's requests in api.

The configuration and the names of the keys are given to every service; the keys themselves are not, nor needed here.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_protocol.errors import Unprocessable
from valet_service import logs
from valet_service.config_file import (
    ConfigError,
    ModelList,
    Provider,
    ValetConfig,
    is_model,
    model_list_path,
    parse,
    with_environment,
)
from valet_service.settings import Settings

_log = logs.get(__name__)


class Models:
    """Knows the providers. With none at all nothing is refused: then this process was not told, or nobody needs it."""

    def __init__(self, config: ValetConfig, data_dir: Path) -> None:
        self._providers = config.providers
        self._data_dir = data_dir

    def check(self, model: str) -> None:
        """Raises `Unprocessable` (`unknown_model`) for one that no provider has."""
        choice = self._choice()
        if self._providers and not is_model(model, choice):
            raise Unprocessable("unknown_model", f"There is no model {model[:100]!r}. Known: {', '.join(choice)}.")

    def _choice(self) -> list[str]:
        found: list[str] = []
        for provider in self._providers:
            known = self._known(provider)
            found += [f"{provider.id}/*"] if known is None else [f"{provider.id}/{model}" for model in known]
        return found

    def _known(self, provider: Provider) -> tuple[str, ...] | None:
        """A provider's models; none while any is taken. The agent's list appears some seconds after the first start."""
        if provider.models:
            return tuple(model_id for model_id, _ in provider.models)
        try:
            listed = model_list_path(self._data_dir, provider.id).read_bytes()
            return msgspec.json.decode(listed, type=ModelList).models
        except (OSError, msgspec.MsgspecError):
            return None


def configured(settings: Settings, environ: Mapping[str, str] = os.environ) -> Models:
    """As `valet.toml` and the environment say. A file that cannot be read here is api's to complain of."""
    config = ValetConfig()
    if settings.config is not None:
        try:
            config = parse(settings.config.read_text(), str(settings.config))
        except (OSError, ConfigError) as error:
            _log.warning("models_not_known", config=str(settings.config), error=str(error))
            return Models(config, settings.data_dir)
    return Models(with_environment(config, environ), settings.data_dir)
