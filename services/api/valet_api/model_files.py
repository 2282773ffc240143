"""The models the agent knows of providers that are there by a key alone: files written once the agent was asked."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_service import logs
from valet_service.config_file import ModelList as Known
from valet_service.config_file import ValetConfig, model_list_path

from valet_api import models

_log = logs.get(__name__)


class ModelFiles:
    """The list of models, complete as soon as the files are there (some seconds after the first start with a key)."""

    def __init__(self, config: ValetConfig, data_dir: Path, missing_keys: Mapping[str, str]) -> None:
        self._config = config
        self._missing_keys = missing_keys
        self._missing = {
            provider.id: model_list_path(data_dir, provider.id)
            for provider in config.providers
            if not provider.models and provider.base_url is None
        }
        self._known: dict[str, tuple[str, ...]] = {}
        self._listed = models.listed(config, missing_keys=missing_keys)

    def current(self) -> models.ModelList:
        """What there is by now."""
        found = {name: known for name, path in self._missing.items() if (known := _read(path)) is not None}
        if found:
            self._known |= found
            self._missing = {name: path for name, path in self._missing.items() if name not in found}
            self._listed = models.listed(self._config, self._known, missing_keys=self._missing_keys)
        return self._listed


def _read(path: Path) -> tuple[str, ...] | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Known).models
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        _log.warning("model_list_unreadable", path=str(path), error=str(error))
        return None
