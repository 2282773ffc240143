"""Which models the agent knows of a provider that only an environment variable names: asked once, then kept.

The list is part of the agent (a snapshot is baked into it), so it is asked without network and without the
real key, and kept per version of the agent in `D/cache/models` (`valet_service.config_file.model_list_path`),
where services read it. It takes two seconds of processor time, so it happens after the platform is ready and
holds nothing up.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_service.config_file import ModelList, ValetConfig, model_list_path

from valet_local import limits
from valet_local.files import read_if_there, write_atomically
from valet_local.journal import Journal
from valet_local.tools import OPENCODE_VERSION

_OFFLINE = {
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    # The agent would fetch a package for its plugins at the first start (reference measurements of OpenCode,
    # 2).
    "npm_config_registry": "http://127.0.0.1:1",
    "npm_config_fetch_retries": "0",
}


async def refresh(
    data_dir: Path, config: ValetConfig, opencode: Path, environment: Mapping[str, str], journal: Journal
) -> None:
    """Ask for every list that is missing. A failure is logged and tried again at the next start."""
    for provider in config.providers:
        if provider.models or provider.base_url or provider.api_key_env is None:
            continue
        path = model_list_path(data_dir, provider.id)
        if _is_current(path):
            continue
        try:
            models = await ask(opencode, provider.id, provider.api_key_env, environment.get("PATH", ""))
        except (OSError, TimeoutError) as error:
            journal.note("models", "failed", f"{provider.id}: {error}")
            continue
        if models:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            known = ModelList(agent=OPENCODE_VERSION, models=models)
            write_atomically(path, msgspec.json.encode(known))
        journal.note("models", "listed", f"{provider.id}: {len(models)}")


async def ask(opencode: Path, provider_id: str, key_variable: str, search_path: str) -> tuple[str, ...]:
    """The ids `opencode models` prints. Raises `OSError` and `TimeoutError`; an unknown provider has none."""
    with tempfile.TemporaryDirectory(prefix="valet-models-", ignore_cleanup_errors=True) as home:
        child = await asyncio.create_subprocess_exec(
            str(opencode),
            "models",
            provider_id,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=home,
            env={"PATH": search_path, "HOME": home, key_variable: "set", **_OFFLINE},
        )
        try:
            output, _ = await asyncio.wait_for(child.communicate(), limits.MODELS_TIMEOUT)
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
    prefix = f"{provider_id}/"
    return tuple(line.removeprefix(prefix) for line in output.decode().splitlines() if line.startswith(prefix))


def _is_current(path: Path) -> bool:
    content = read_if_there(path)
    try:
        return content is not None and msgspec.json.decode(content, type=ModelList).agent == OPENCODE_VERSION
    except msgspec.DecodeError:
        return False
