"""The bridge: OpenCode on one side, the log on the other.

An edge without decisions of its own: it takes frames from one side and facts from the other to the turn they are about,
and says what comes of it. The turn's own course is `course`'s.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
from valet_protocol.events import agent, facts
from valet_protocol.events.agent import AgentError
from valet_service import logs

from valet_runner import (
    closing,
    frames,
    git_environment,
    hand_over,
    limits,
    message_ids,
    permissions,
    prompt_parts,
    reviews,
    steering,
    translate,
    turn_state,
)
from valet_runner.commands import Commands
from valet_runner.conversation import Conversations
from valet_runner.course import Course
from valet_runner.errors import OpencodeFailed, OpencodeRefused, OpencodeUnavailable
from valet_runner.opencode_client import OpencodeClient
from valet_runner.opencode_process import OpencodeProcess
from valet_runner.preambles import PreambleFile
from valet_runner.prompt_parts import TextInput
from valet_runner.publisher import Publisher
from valet_runner.shown_processes import Shown, ShownProcesses
from valet_runner.tries import AWAY
from valet_runner.turns import Steered, Turn

Taken = Literal["delivered", "missed", "refused"]

_NO_ANSWER = "No answer was given; use your own judgement."
_log = logs.get(__name__)


class Bridge:
    """The conversations of one OpenCode, bridged to one session's log.

    `shown` is what people ran for the agent to see ahead of the next prompt on any channel; `home` is the agent's;
    `now_ms` is milliseconds since 1970, `clock` seconds of a monotonic clock.
    """

    def __init__(
        self,
        *,
        process: OpencodeProcess,
        publisher: Publisher,
        conversations: Conversations,
        policy: facts.SessionPolicy,
        work: closing.Work,
        attachments: prompt_parts.AttachmentSource,
        shown: ShownProcesses,
        home: Path,
        now_ms: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._process = process
        self._publisher = publisher
        self._conversations = conversations
        self._policy = policy
        self._work = work
        self._attachments = attachments
        self._preambles = PreambleFile(home)
        self._shown = shown
        self._home = home
        self._commands = Commands(process, conversations, home=home, now_ms=now_ms)
        self._course = Course(
            process=process,
            publisher=publisher,
            conversations=conversations,
            work=work,
            now_ms=now_ms,
            clock=clock,
        )
        self._started = ""
        self._taken: dict[str, Taken] = {}

    # -- from OpenCode

    async def frame(self, frame: frames.Shape) -> None:
        """A frame of the stream."""
        course = self._course
        course.state, items = translate.translate(course.state, frame)
        if items:
            course.say(items)
            await self._publisher.room()
        if isinstance(frame, frames.SessionStatus):
            course.give_up_soon()
        if course.state.idle or isinstance(frame, frames.SessionError):
            course.settle_soon()

    async def connected(self, client: OpencodeClient) -> None:
        """The stream has begun (again): read from the API what it did not tell.

        Raises what the client raises.
        """
        if self._course.current is None:
            return
        self._course.state = turn_state.after_gap(self._course.state)
        await self._course.look(client)
        self._course.settle_soon()

    async def opencode_ended(self, detail: str) -> None:
        """OpenCode is gone, and the running turn with it, unless it was not handed over yet."""
        if (turn := self._course.current) is None or not turn.user_message:
            return
        failure = AgentError(name="opencode_lost", message=f"{detail}. It is being restarted; send the prompt again.")
        await self._course.finish(msgspec.structs.replace(turn, lost=True, failure=failure), "OpenCode ended")

    def restarted(self, detail: str) -> None:
        """Another OpenCode has taken the place of one that ended."""
        self._course.say([agent.OpencodeRestarted(detail=detail)])

    # -- from the log: turns

    async def dispatch(self, fact: facts.TurnDispatched, *, again: bool) -> bool:
        """Start a turn. False when another one runs: deliver it again. `again`: somebody has tried before.

        Returns when `turn_started` is stored and OpenCode has the prompt, or when the turn has ended without.
        """
        running = self._course.turn
        if fact.turn_id in self._course.ended or (running and running.turn_id == fact.turn_id):
            return True
        if running is not None:
            return False
        self._course.begin(Turn(fact=fact, began=self._course.clock()))
        until = self._course.clock() + limits.READY_TIMEOUT
        while True:
            try:
                await self._start(fact, again=again)
            except OpencodeUnavailable as error:
                turn = self._course.current
                untouched = turn is not None and turn.turn_id == fact.turn_id and not turn.user_message
                if untouched and self._course.clock() < until:  # OpenCode has just died, and had nothing of it
                    _log.info("dispatch_repeats", turn=fact.turn_id, error=str(error))
                    await asyncio.sleep(limits.RESTART_WAIT)
                    continue
                await self._course.not_taken(fact.turn_id, error)
            except AWAY as error:
                await self._course.not_taken(fact.turn_id, error)
            except Exception as error:  # noqa: BLE001 - whatever it is, a turn that was begun must end
                _log.exception("turn_not_started", turn=fact.turn_id)
                await self._course.not_taken(fact.turn_id, error)
            return True

    async def _start(self, fact: facts.TurnDispatched, *, again: bool) -> None:
        """Everything between the dispatch and OpenCode's having the prompt. May be tried again until it is there."""
        course = self._course
        await course.client()
        await self._process.apply(self._policy)
        client = await self._process.client(limits.READY_TIMEOUT)
        session = await self._conversations.resume(client, fact.channel)
        names = self._conversations.names_session(fact.channel)
        course.state = turn_state.begin_turn(
            turn_state.of_conversation(course.state, session, names_session=names), "~"
        )
        said = agent.TurnStarted(turn_id=fact.turn_id, prompt_id=fact.prompt_id, opencode_session=session.id)
        stored = None if self._started == fact.turn_id else course.say([said])
        self._started = fact.turn_id
        if (cut := await self._cut(client, fact, again)) and (turn := course.current):
            await self._shown.untold(client, session)  # what went ahead of it
            await course.finish(msgspec.structs.replace(turn, lost=True, failure=cut), "interrupted")
            return
        await self._apply_rules(client, session)
        await self._conversations.newest(client, session.id)
        git_environment.set_author(self._home, fact.author_name, fact.author_email)
        await self._work.begin(fact.turn_id)
        text = fact.content
        if fact.kind == "review":
            changed = await self._work.changes()
            if changed is None:
                if turn := course.current:
                    nothing = reviews.nothing_changed(fact.turn_id)
                    await course.finish(msgspec.structs.replace(turn, review=nothing), "nothing to review")
                return
            text = reviews.instructions(fact.content, changed)
        parts = await prompt_parts.of_prompt(self._attachments, text, fact.attachments, model=fact.model)
        if (turn := course.current) is None or turn.turn_id != fact.turn_id:
            return  # it has ended meanwhile
        shown: list[Shown] = []
        if fact.kind in ("prompt", "review"):
            shown = await self._shown.untold(client, session)
            untold = await self._preambles.untold(client, session, fact.channel)
            ahead = [*untold, *(one.text for one in shown)]
            parts = [*(TextInput(text=text, synthetic=True) for text in ahead), *parts]
        elif fact.kind == "command" and (texts := await self._preambles.untold(client, session, fact.channel)):
            key = f"{fact.turn_id} preamble"  # not the turn's: with that message alone it was not begun
            await hand_over.tell(client, session.id, course.new_message_id(key), texts, fact.model)
        if (turn := course.current) is None or turn.turn_id != fact.turn_id:
            return  # it has ended meanwhile
        if turn.interrupted:  # an abort of a run that is only just beginning may leave OpenCode broken
            await course.finish(turn, "interrupted")
            return
        message_id = course.new_message_id(fact.turn_id)
        began = course.clock()
        await course.hand_over(client, msgspec.structs.replace(turn, user_message=message_id, parts=parts, began=began))
        self._shown.given(shown)
        if stored:
            await stored

    async def _cut(self, client: OpencodeClient, fact: facts.TurnDispatched, again: bool) -> AgentError | None:
        """Why the turn must not be given to OpenCode: it had it before, and was cut off."""
        if not again and not fact.steered:
            return None
        seen = [message.info.id for message in await client.messages(self._course.state.root)]
        if again and any(message_ids.belongs_to(message_id, fact.turn_id) for message_id in seen):
            return AgentError(name="runner_lost", message="The sandbox's runner was restarted during the turn.")
        return steering.CUT if fact.steered and steering.was_delivered(fact, seen) else None

    async def interrupt(self, turn_id: str) -> None:
        """End a turn because that is wanted. One that never started is said to have ended all the same."""
        course = self._course
        if course.turn and course.turn.turn_id == turn_id:
            course.interrupt(turn_id)
        elif turn_id not in course.ended:
            course.ended.add(turn_id)
            course.say([agent.TurnEnded(turn_id=turn_id, status="interrupted")])

    async def stop_turn(self) -> None:
        """The session has ended: nothing more is to run."""
        if self._course.turn:
            await self.interrupt(self._course.turn.turn_id)

    # -- from the log: what a turn is told while it runs

    async def steer(self, fact: facts.PromptSteered) -> None:
        """Give a prompt to the running turn, and say whether it got it.

        Nothing is said when that cannot be known: then OpenCode is gone, the turn ends, and whoever dispatches the
        prompt again has to look.
        """
        course = self._course
        known = self._taken.get(fact.prompt_id)
        if known is None and (turn := course.current) and steering.takes(turn, fact):
            parts = await prompt_parts.of_prompt(self._attachments, fact.content, fact.attachments, model=turn.model)
            known = await self._give_steered(fact, parts)
            if known is None:
                return
        known = known or "missed"
        self._taken[fact.prompt_id] = known
        taken = agent.PromptTaken(turn_id=fact.turn_id, prompt_id=fact.prompt_id, outcome=known)
        stored = course.say([taken])
        if stored:
            await stored

    async def _give_steered(self, fact: facts.PromptSteered, parts: list[prompt_parts.InputPart]) -> Taken | None:
        """Whether OpenCode has it; none when that is not known."""
        course = self._course
        if (turn := course.current) is None or not steering.takes(turn, fact):
            return "missed"
        message_id = course.new_message_id(fact.prompt_id)
        steered = Steered(prompt_id=fact.prompt_id, message_id=message_id, parts=parts)
        course.steered(steering.put(turn, steered))
        outcome: Taken | None = "delivered"
        try:
            await course.give_steered(steered)
        except OpencodeRefused as error:
            _log.warning("steering_prompt_refused", prompt=fact.prompt_id, error=str(error))
            outcome = "refused"
        except (OpencodeUnavailable, OpencodeFailed) as error:
            _log.warning("steering_prompt_unsure", prompt=fact.prompt_id, error=str(error))
            outcome = "delivered" if await course.has(message_id) else None
        if (turn := course.current) and turn.turn_id == fact.turn_id:
            taken = msgspec.structs.replace(steered, taken=True)
            course.steered(steering.put(turn, taken) if outcome == "delivered" else steering.drop(turn, fact.prompt_id))
            course.settle_soon()
        return outcome

    async def answer(self, fact: facts.QuestionAnswered) -> None:
        """Pass an answer on. One for a question that is no longer open is nobody's any more.

        Raises `OpencodeUnavailable`: deliver it again.
        """
        kind = self._course.state.questions.get(fact.question_id)
        if kind is None:
            return
        client = await self._process.client(limits.READY_TIMEOUT)
        try:
            if kind == "permission":
                reply = fact.answers[0][0] if fact.answers and fact.answers[0] else "reject"
                await client.answer_permission(
                    fact.question_id, reply if reply in ("once", "always", "reject") else "reject"
                )
            else:
                answers = [answer or [_NO_ANSWER] for answer in fact.answers or [[]]]
                await client.answer_question(fact.question_id, answers)
        except OpencodeRefused as error:
            _log.info("answer_not_taken", question=fact.question_id, error=str(error))

    # -- from the log: between turns

    async def command(self, fact: facts.CommandRequested) -> None:
        """Carry out a command between turns and say what came of it; returns when that is stored."""
        items = await self._commands.carry_out(fact, busy=self._course.turn is not None)
        if stored := self._course.say(items):
            await stored

    async def change_policy(self, policy: facts.SessionPolicy) -> None:
        """Permissions are treated so from now on. A run of OpenCode keeps the rules it began with (measured)."""
        self._policy = policy
        if self._course.current is None or not self._course.state.root:
            return
        try:
            client = await self._process.client(limits.READY_TIMEOUT)
            session = await client.session(self._course.state.root)
            if session:
                await self._apply_rules(client, session)
        except AWAY as error:
            _log.info("rules_wait_for_the_next_turn", error=str(error))

    async def _apply_rules(self, client: OpencodeClient, session: frames.Session) -> None:
        rules = permissions.rules(self._policy)
        if not permissions.in_force(session.permission, rules):
            await client.add_rules(session.id, rules)

    # -- its own

    async def watch(self) -> None:
        """Compare a long turn with OpenCode's own state now and then, and say that it goes on. Ends only by
        cancellation."""
        course = self._course
        while True:
            await asyncio.sleep(limits.WATCH_EVERY)
            if (turn := course.current) is None or not turn.user_message:
                continue
            try:
                listing = await course.look(await self._process.client(limits.READY_TIMEOUT))
            except AWAY as error:
                _log.warning("opencode_not_compared", error=str(error))
                continue
            quiet = course.clock() - course.spoke >= limits.PULSE_AFTER
            if quiet and course.current and course.state.root in listing.statuses:
                course.say([_pulse(course.state.retry if course.state.root in course.state.retrying else None)])
            course.settle_soon()


def _pulse(retry: frames.Status | None) -> agent.StatusChanged:
    """That OpenCode works on the turn, or still waits for its provider."""
    if retry is None:
        return agent.StatusChanged(status="busy")
    return agent.StatusChanged(
        status="retrying",
        attempt=retry.attempt,
        message=retry.message,
        retry_at_ms=None if retry.next is None else int(retry.next),
    )
