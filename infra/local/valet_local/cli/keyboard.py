"""Puts the agent's questions to the person at the keyboard while the session goes on being shown."""

import asyncio
import os
import sys

from valet_protocol.errors import Refused
from valet_protocol.events.agent import QuestionAsked, QuestionResolved
from valet_protocol.events.envelope import Data
from valet_protocol.events.facts import QuestionAnswered

from valet_local.cli import asking
from valet_local.cli.terminal import Terminal
from valet_local.client.errors import ClientError
from valet_local.client.http import Client

_LINE_BYTES = 64 << 10
"""A terminal gives a line at a time, at most 4 KiB of it."""


class Keyboard:
    """Reads standard input only while a question is open, and only if it is a terminal."""

    def __init__(self, client: Client, session_id: str, terminal: Terminal) -> None:
        self._client = client
        self._session_id = session_id
        self._terminal = terminal
        self._open: list[asking.Asking] = []
        self._listening = False
        self._sending: set[asyncio.Task[None]] = set()
        self._usable = sys.stdin is not None and sys.stdin.isatty()

    def notice(self, data: Data) -> None:
        """Follow the questions of the session."""
        if not self._usable:
            return
        match data:
            case QuestionAsked():
                self._open.append(asking.begin(data))
                if len(self._open) == 1:
                    self._ask()
            case QuestionAnswered(question_id=question_id) | QuestionResolved(question_id=question_id):
                self._open = [one for one in self._open if one.question_id != question_id]
                self._ask() if self._open else self.close()
            case _:
                pass

    def close(self) -> None:
        """Leave standard input alone."""
        if self._listening:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._listening = False

    def _ask(self) -> None:
        if not self._listening:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)
            self._listening = True
        self._terminal.ask(self._open[0].prompt)

    def _read(self) -> None:
        line = os.read(sys.stdin.fileno(), _LINE_BYTES).decode(errors="replace")
        if not line:  # Ctrl-D: the question keeps its deadline
            self.close()
            return
        self._terminal.typed()
        if not self._open:
            return
        answered = asking.take(self._open[0], line)
        if answered is None:
            self._terminal.ask(self._open[0].prompt)
        elif answered.complete:
            self._open.pop(0)
            self._send(answered)
        else:
            self._open[0] = answered
            self._terminal.ask(answered.prompt)

    def _send(self, answered: asking.Asking) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(answered))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _answer(self, answered: asking.Asking) -> None:
        answers = [list(answer) for answer in answered.answers]
        try:
            await self._client.answer(self._session_id, answers, question_id=answered.question_id)
        except (Refused, ClientError) as error:  # somebody else was first, or the deadline: said, and no more
            self._terminal.tell(f"Your answer was not taken: {error}")
