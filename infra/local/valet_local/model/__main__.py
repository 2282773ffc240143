"""`python -m valet_local.model --scenario FILE`: play a scenario until told to stop.

Prints one line of JSON, `{"url": ..., "pid": ...}`, when it can be used; SIGTERM and SIGINT end it at once.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
from valet_service import lifecycle

from valet_local.model.errors import ModelError
from valet_local.model.scenario import Scenario, load, load_builtin
from valet_local.model.server import ScriptedModel


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed when the server can be used."""

    url: str
    pid: int


def main() -> None:
    """Run from the command line; exit code 1 with a message if the scenario or the address is no good."""
    parser = argparse.ArgumentParser(prog="valet_local.model", description="Play a scripted language model.")
    parser.add_argument("--scenario", required=True, help="a TOML file, or the name of a shipped one: demo, tests")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--api-key-env", help="the environment variable that holds the bearer token to insist on")
    arguments = parser.parse_args()
    lifecycle.die_with_parent()
    try:
        asyncio.run(_serve(arguments))
    except ModelError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from None


async def _serve(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    key = _key(arguments.api_key_env)
    scenario = _scenario(arguments.scenario)
    async with ScriptedModel(scenario, host=arguments.host, port=arguments.port, api_key=key) as model:
        print(msgspec.json.encode(Announcement(url=model.url, pid=os.getpid())).decode(), flush=True)
        lifecycle.ready()
        await stop.wait()


def _scenario(name: str) -> Scenario:
    path = Path(name)
    return load(path) if path.suffix or path.is_file() else load_builtin(name)


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise ModelError(f"{variable} is not set; put the API key in it, or leave out --api-key-env")
    return key


if __name__ == "__main__":
    main()
