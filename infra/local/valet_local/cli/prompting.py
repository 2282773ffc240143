"""One prompt in a session of its own, from its creation to the end of its turn."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from contextlib import aclosing

import msgspec
from valet_protocol.errors import Conflict, Refused
from valet_protocol.events.agent import GitChanged

from valet_local.cli import limits, outcome
from valet_local.cli.keyboard import Keyboard
from valet_local.cli.outcome import Outcome
from valet_local.cli.terminal import Terminal
from valet_local.cli.watch import Follower, View
from valet_local.client.errors import ClientError
from valet_local.client.follow import Entry
from valet_local.client.http import Client
from valet_local.invocation import typed


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants done."""

    prompt: str
    repo: str | None = None
    """URL or absolute path; None is an empty workspace."""
    branch: str | None = None
    model: str | None = None
    title: str | None = None


class Prompting:
    """Does a wish and shows it. `outcome` afterwards; Ctrl-C or SIGTERM stops the turn in order."""

    def __init__(self, client: Client, terminal: Terminal, view: View, wish: Wish, *, ask: bool) -> None:
        self._client = client
        self._terminal = terminal
        self._view = view
        self._wish = wish
        self._ask = ask
        self.session_id: str | None = None
        self.events = 0
        """Events seen, chunks included."""
        self.chunks = 0
        """Those of them that are streamed chunks."""
        self.changed: GitChanged | None = None
        """What the turn changed, once it has said so."""

    async def run(self) -> Outcome:
        """Until the turn is over. Raises `Refused` and `ClientError`."""
        with _interruptions() as interrupted:
            work = asyncio.create_task(self._work())
            stop = asyncio.create_task(interrupted.acquire())
            try:
                await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    return work.result()
                return await self._interrupt(work, interrupted)
            finally:
                for task in (work, stop):
                    task.cancel()
                await asyncio.gather(work, stop, return_exceptions=True)

    async def _work(self) -> Outcome:
        wish = self._wish
        session = await self._client.create_session(
            repo=wish.repo, branch=wish.branch, title=wish.title, model=wish.model
        )
        self.session_id = session.id
        self._terminal.tell(f"Session {session.id}")
        accepted = await self._client.send_message(session.id, wish.prompt)
        aim = outcome.Aim(prompt_id=accepted.prompt_id)
        keyboard = Keyboard(self._client, session.id, self._terminal) if self._ask else None
        follower = Follower(self._client, self._terminal, self._view)
        try:
            async with aclosing(follower.follow(session.id)) as items:
                async for item in items:
                    if not isinstance(item, Entry):
                        continue
                    self.events += 1
                    self.chunks += item.envelope.type.startswith("delta.")
                    if isinstance(item.data, GitChanged):
                        self.changed = item.data
                    aim, over = outcome.judge(aim, item)
                    if over is not None:
                        return over
                    if keyboard is not None:
                        keyboard.notice(item.data)
        finally:
            if keyboard is not None:
                keyboard.close()
        raise AssertionError("a session is followed without end")

    async def _interrupt(self, work: "asyncio.Task[Outcome]", interrupted: asyncio.Semaphore) -> Outcome:
        """Stop the turn and wait for its end, a little; a second Ctrl-C does not wait."""
        self._terminal.tell("Interrupted; stopping the turn …")
        again = asyncio.create_task(interrupted.acquire())
        ending = asyncio.create_task(self._stop_turn(work))
        try:
            await asyncio.wait((ending, again), timeout=limits.ABORT_WAIT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (again, ending):
                task.cancel()
        if not work.done():
            where = f"; `{typed(f'show {self.session_id}')}` tells how it ended" if self.session_id else ""
            self._terminal.tell(f"The turn has not ended yet{where}.")
        return Outcome(status="interrupted")

    async def _stop_turn(self, work: "asyncio.Task[Outcome]") -> None:
        if self.session_id is None:
            work.cancel()
            return
        try:
            try:
                await self._client.abort(self.session_id)
            except Conflict:
                # The prompt waits for its sandbox: nothing runs yet that could be aborted, and left alone it
                # would run with nobody watching.
                await self._client.terminate(self.session_id)
        except (Refused, ClientError) as error:
            self._terminal.tell(f"The turn could not be stopped: {error}", "bad")
            return
        await asyncio.wait((work,))


@contextlib.contextmanager
def _interruptions() -> Iterator[asyncio.Semaphore]:
    """Counts Ctrl-C and SIGTERM instead of ending the process."""
    counted = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, counted.release)
    try:
        yield counted
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
