"""Claims about commands that people run for the agent to see. Real: the runner, OpenCode, the process service, the
gateway, SIGKILL. Not real: the model, the ledger, the portal."""

import re
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from valet_local.model import ScriptedModel
from valet_protocol.events import agent, machine
from valet_protocol.events.machine import ProcessInfo
from valet_protocol.sandbox_spec import RunnerSpec
from valet_runner import terminal_text
from valet_runner.shown_processes import told
from valet_runner.testing import Broker, Ledger, Runner
from valet_service import sandbox_token

# -- what is left of an output


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"plain \xc3\xa9\ttab\r\nnext\n", "plain \u00e9\ttab\nnext\n"),
        (b"\x1b[1;31mred\x1b[0m \x1b(B\x1b[m\x1b=\x1b>\x1b7\x1b8x", "red x"),
        (b"\x1b]0;a title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bP1$r0m\x1b\\\x1b_Gf=100;AAAA\x1b\\end", "end"),
        (b"\x1b[?2004hprompt$ ls\x1b[?2004l\r\r\nfile\r\n", "prompt$ ls\nfile\n"),
        (b" 10%\r 50%\r100%\x1b[K\r\ndone\r\n", "100%\ndone\n"),
        (b"b\x08bo\x08ol\x08ld lz\x08 \x08s\x07", "bold ls"),
        (b"\xa9\xa9half a character, then whole: \xe2\x82\xac", "half a character, then whole: \u20ac"),
        (b"x\x1b[38;5;196", "x"),
        (b"", ""),
    ],
)
def test_what_a_terminal_showed_is_what_is_read(written: bytes, read: str) -> None:
    text = terminal_text.readable(written, terminal=True)
    assert text == read
    assert text is not None
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_a_carriage_return_in_a_file_loses_nothing() -> None:
    assert terminal_text.readable(b"one\rtwo\r\nthree", terminal=False) == "one\ntwo\nthree"


@pytest.mark.parametrize("data", [bytes(range(256)) * 4, b"\x7fELF\x02\x01\x01" + bytes(50), b"\xff\xfe" * 30])
def test_what_is_no_text_is_known(data: bytes) -> None:
    assert terminal_text.readable(data, terminal=False) is None


def ended(output_bytes: int) -> ProcessInfo:
    return ProcessInfo(
        id="proc_1", command="make", cwd="/w", pid=1, pty=False, exit_code=0, output_bytes=output_bytes, created_at=""
    )


def test_a_long_output_keeps_whole_lines_of_its_beginning_and_its_end() -> None:
    lines = b"".join(b"line %04d\n" % number for number in range(1000))
    shown = told(ended(len(lines)), lines[-2005:], offset=len(lines) - 2005, head=lines[:1005]).text
    output = shown.partition("<output>\n")[2]
    assert output.startswith("line 0000\n")
    assert output.endswith("line 0999\n</output>")
    assert f"\nline 0099\n[... {(1000 - 100 - 200) * 10} bytes are left out here ...]\nline 0800\n" in output
    assert "[3000 bytes that are no text are left out]" in told(ended(3000), bytes(3000), offset=0).text


# -- in the next request to the model

KEY = sandbox_token.key(b"s" * 32, "here")

in_order = pytest.mark.asyncio(loop_scope="module")


class Sandbox:
    """A session whose sandbox has a gateway; its runner may be killed."""

    def __init__(self, spec: RunnerSpec, log: Ledger, folder: Path) -> None:
        self.spec = spec
        self.log = log
        self._folder = folder
        self.runner = Runner(spec, folder)

    async def boot(self) -> None:
        mark = len(self.log.events)
        self.runner.start()
        for kind in ("gateway", "processes"):
            await self.log.until(
                machine.ServiceChanged,
                lambda said, kind=kind: (said.service, said.state) == (kind, "running"),
                after=mark,
            )
        await self.log.until(agent.RunnerReady, after=mark)

    async def kill(self) -> None:
        """SIGKILL, and a runner of the next epoch."""
        self.runner.end(9)
        self.spec = msgspec.structs.replace(self.spec, epoch=self.spec.epoch + 1)
        self.log.current_epoch = self.spec.epoch
        self.runner = Runner(self.spec, self._folder)

    async def run(self, *argv: str, **more: Any) -> str:
        """Start a program for the agent to see; its id."""
        claims = sandbox_token.Claims(sub="u1", sid=self.spec.session_id, svc="*", exp=int(time.time()) + 600)
        token = sandbox_token.mint(self.spec.gateway_key, claims)
        assert self.spec.gateway_socket
        body = {"argv": argv, "session_id": self.spec.session_id, **more}
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": argv[-1][:100]}
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(self.spec.gateway_socket), headers=headers) as http,
            http.post("http://gateway/v1/processes", json=body) as response,
        ):
            assert response.status == 201, await response.text()
            return (await response.json())["id"]

    async def exited(self, id: str) -> None:
        await self.log.until(machine.ProcessExited, lambda said: said.process.id == id)

    async def prompt(self, model: ScriptedModel) -> str:
        """What the model is asked next."""
        turn = await self.log.dispatch(f"say seen {len(self.log.events)}")
        await self.log.until(agent.TurnEnded, turn=turn)
        return model.requests[-1].prompt


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(new_spec: Any, nats: Broker, folder: Path) -> AsyncIterator[Sandbox]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spec = msgspec.structs.replace(
        new_spec(), gateway_key=KEY, gateway_socket=str(folder / "gw.sock"), gateway_port=port
    )
    async with Ledger(nats.url, spec.session_id) as log:
        sandbox = Sandbox(spec, log, folder / spec.session_id)
        await sandbox.boot()
        try:
            yield sandbox
        finally:
            sandbox.runner.close()
            print(sandbox.runner.log())


@in_order
async def test_much_output_binary_output_and_a_terminal_are_told_readably_and_once(
    sandbox: Sandbox, model: ScriptedModel
) -> None:
    size = {"rows": 24, "cols": 80}
    many = await sandbox.run("sh", "-c", "echo FIRST; yes 0123456789 | head -c 11000000; echo LAST")
    binary = await sandbox.run("head", "-c", "5000", "/dev/urandom")
    colours = await sandbox.run("sh", "-c", r"printf '\033[31mRED\033(B\033[m 1%%\r 99%%\033]0;t\007\n'", pty=size)
    for id in (many, binary, colours):
        await sandbox.exited(id)
    asked = await sandbox.prompt(model)
    assert "\nFIRST\n" in asked
    assert "\nLAST\n</output>" in asked
    assert re.search(r"\n\[\.\.\. 109\d{5} bytes are left out here \.\.\.\]\n", asked)
    assert len(asked) < 40_000
    assert "[5000 bytes that are no text are left out]" in asked
    assert "<output>\n 99%\n</output>" in asked
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd]", asked)
    assert asked.count("executed by the user") == 3
    assert "executed by the user" not in await sandbox.prompt(model)


@in_order
async def test_a_runner_that_is_killed_between_the_exit_and_the_prompt_forgets_nothing_and_tells_it_once(
    sandbox: Sandbox, model: ScriptedModel
) -> None:
    told_already = await sandbox.run("sh", "-c", "echo before-$((40 + 1))")
    await sandbox.exited(told_already)
    racing = await sandbox.run("sh", "-c", "echo BEGINNING; yes | head -c 2000000; echo racing-$((40 + 2))")
    await sandbox.kill()  # whatever became of that one, it is said
    await sandbox.boot()
    await sandbox.exited(racing)
    asked = await sandbox.prompt(model)
    for id, words in ((told_already, "before-$((40 + 1))"), (racing, "racing-$((40 + 2))")):
        assert asked.count(words) == 1, id
        assert len([said for said in sandbox.log.said(machine.ProcessExited) if said.process.id == id]) == 1
    assert "\nbefore-41\n" in asked
    assert "executed by the user" not in await sandbox.prompt(model)
