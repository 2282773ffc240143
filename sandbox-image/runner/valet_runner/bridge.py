"""The bridge: OpenCode on one side, the log on the other, one turn at a time.

An edge without decisions of its own: what a frame means is `translate`'s, what a turn came to is `turns`', how fast
things are said is `pacing`'s. What is decided here is only when to look and whom to ask.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from valet_protocol.events import agent, facts
from valet_protocol.events.agent import AgentError, GitChanged
from valet_service import logs

from valet_runner import frames, limits, message_ids, reconcile, translate, turns
from valet_runner.bridge_state import BridgeState, Chunk, Item
from valet_runner.errors import GitFailed, OpencodeFailed, OpencodeRefused, OpencodeUnavailable
from valet_runner.opencode_client import OpencodeClient
from valet_runner.opencode_process import OpencodeProcess
from valet_runner.publisher import Publisher
from valet_runner.turns import Turn

_NO_ANSWER = "No answer was given; use your own judgement."
_log = logs.get(__name__)


class Bridge:
    """One conversation of one OpenCode, bridged to one session's log.

    `newest` is the conversation's greatest message id so far; `changes` says what differs from the base commit;
    `now_ms` is milliseconds since 1970, `clock` seconds of a monotonic clock.
    """

    def __init__(
        self,
        *,
        process: OpencodeProcess,
        publisher: Publisher,
        session: frames.Session,
        newest: str | None,
        changes: Callable[[], Awaitable[GitChanged | None]],
        now_ms: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._process = process
        self._publisher = publisher
        self._changes = changes
        self._now_ms = now_ms
        self._clock = clock
        self._state = BridgeState(root=session.id, title=session.title)
        self._newest = newest
        self._turn: Turn | None = None
        self._over = asyncio.Event()
        self._settling: asyncio.Task[None] | None = None
        self._ending = False
        self._ended: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- from OpenCode

    async def frame(self, frame: frames.Shape) -> None:
        """A frame of the stream."""
        self._state, items = translate.translate(self._state, frame)
        if items:
            self._say(items)
            await self._publisher.room()
        if self._state.idle or isinstance(frame, frames.SessionError):
            self._settle_soon()

    async def connected(self, client: OpencodeClient) -> None:
        """The stream has begun (again): read from the API what it did not tell.

        Raises what the client raises.
        """
        if self._turn is None:
            return
        self._state = translate.after_gap(self._state)
        await self._look(client)
        self._settle_soon()

    async def opencode_ended(self, detail: str) -> None:
        """OpenCode is gone, and the running turn with it."""
        if self._turn is None or self._ending:
            return
        failure = AgentError(name="opencode_lost", message=f"{detail}. It is being restarted; send the prompt again.")
        self._turn = msgspec.structs.replace(self._turn, lost=True, failure=failure)
        await self._finish(self._turn, "OpenCode ended")

    def restarted(self, detail: str) -> None:
        """Another OpenCode has taken the place of one that ended."""
        self._say([agent.OpencodeRestarted(detail=detail)])

    # -- from the log

    async def dispatch(self, fact: facts.TurnDispatched, *, again: bool) -> bool:
        """Start a turn. False when another one runs: deliver it again. `again`: somebody has tried before.

        Returns when `turn_started` is stored and OpenCode has the prompt, or when the turn has ended without.
        """
        if fact.turn_id in self._ended or (self._turn and self._turn.turn_id == fact.turn_id):
            return True
        if self._turn is not None:
            return False
        turn = Turn(turn_id=fact.turn_id, prompt_id=fact.prompt_id, user_message="", began=self._clock())
        self._begin(turn)
        try:
            client = await self._process.client(limits.READY_TIMEOUT)
            started = agent.TurnStarted(
                turn_id=fact.turn_id, prompt_id=fact.prompt_id, opencode_session=self._state.root
            )
            if again and await self._was_sent(client, fact.turn_id):
                self._say([started])
                failure = AgentError(name="runner_lost", message="The sandbox's runner was restarted during the turn.")
                await self._finish(msgspec.structs.replace(turn, lost=True, failure=failure), "interrupted")
                return True
            message_id = message_ids.user_message_id(fact.turn_id, self._now_ms(), self._newest)
            turn = self._turn = msgspec.structs.replace(turn, user_message=message_id, began=self._clock())
            self._state = translate.begin_turn(self._state, message_id)
            stored = self._say([started])
            await client.prompt(self._state.root, message_id=message_id, text=fact.content, model=fact.model)
            if stored:
                await stored
        except (OpencodeUnavailable, OpencodeRefused, OpencodeFailed) as error:
            await self._not_taken(turn, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, a turn that was begun must end
            _log.exception("turn_not_started", turn=fact.turn_id)
            await self._not_taken(turn, error)
        return True

    async def interrupt(self, turn_id: str) -> None:
        """End a turn because a person wants it. One that never started is said to have ended all the same."""
        if self._turn and self._turn.turn_id == turn_id:
            if not self._turn.interrupted:
                self._turn = msgspec.structs.replace(self._turn, interrupted=True)
                self._spawn(self._abort(turn_id))
        elif turn_id not in self._ended:
            self._ended.add(turn_id)
            self._say([agent.TurnEnded(turn_id=turn_id, status="interrupted")])

    async def answer(self, fact: facts.QuestionAnswered) -> None:
        """Pass an answer on. One for a question that is no longer open is nobody's any more.

        Raises `OpencodeUnavailable`: deliver it again.
        """
        kind = self._state.questions.get(fact.question_id)
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

    async def stop_turn(self) -> None:
        """The session has ended: nothing more is to run."""
        if self._turn:
            await self.interrupt(self._turn.turn_id)

    async def watch(self) -> None:
        """Compare a long turn with OpenCode's own state now and then. Ends only by cancellation."""
        while True:
            await asyncio.sleep(limits.WATCH_EVERY)
            if self._turn and not self._ending:
                try:
                    await self._look(await self._process.client(limits.READY_TIMEOUT))
                    self._settle_soon()
                except (OpencodeUnavailable, OpencodeRefused, OpencodeFailed) as error:
                    _log.warning("opencode_not_compared", error=str(error))

    # -- the turn's way

    def _begin(self, turn: Turn) -> None:
        self._turn = turn
        self._over.clear()
        self._ending = False
        self._publisher.turn = turn.turn_id
        self._state = translate.begin_turn(self._state, "~")  # no frame counts before the prompt has an id

    async def _not_taken(self, turn: Turn, error: Exception) -> None:
        if self._turn is None or self._ending or self._turn.turn_id != turn.turn_id:
            return  # it has ended meanwhile
        if isinstance(error, OpencodeUnavailable) and turn.user_message and await self._has(turn.user_message):
            return  # it was slow to say so, but has the prompt
        failure = AgentError(name="opencode_unavailable", message=str(error))
        await self._finish(msgspec.structs.replace(self._turn, failure=failure), "not started")

    async def _was_sent(self, client: OpencodeClient, turn_id: str) -> bool:
        messages = await client.messages(self._state.root)
        return any(message_ids.belongs_to(message.info.id, turn_id) for message in messages)

    async def _has(self, message_id: str) -> bool:
        try:
            client = await self._process.client(limits.READY_TIMEOUT)
            return any(message.info.id == message_id for message in await client.messages(self._state.root))
        except (OpencodeUnavailable, OpencodeRefused, OpencodeFailed):
            return False

    async def _look(self, client: OpencodeClient) -> reconcile.Listing:
        listing = await reconcile.look(client, self._state)
        self._state, items = translate.translate_all(self._state, reconcile.frames_of(listing, self._state))
        self._say(items)
        return listing

    def _settle_soon(self) -> None:
        settling = self._settling and not self._settling.done()
        if self._turn and self._turn.user_message and not self._ending and not settling:
            self._settling = self._spawn(self._settle(self._turn.turn_id))

    async def _settle(self, turn_id: str) -> None:
        """Idle, or an error: is the turn over, and is everything of it here?"""
        until = self._clock() + limits.SETTLE_MAX
        while self._turn and self._turn.turn_id == turn_id and not self._ending:
            try:
                listing = await self._look(await self._process.client(limits.READY_TIMEOUT))
            except (OpencodeUnavailable, OpencodeRefused, OpencodeFailed) as error:
                _log.info("settling_waits", error=str(error))
                await asyncio.sleep(limits.SETTLE_POLL)
                continue
            if self._state.root in listing.statuses:
                return  # it goes on; the next idle comes back here
            if turns.settled(self._state) or self._clock() > until:
                break
            await asyncio.sleep(limits.SETTLE_POLL)
        if self._turn and self._turn.turn_id == turn_id and not self._ending:
            await self._finish(self._turn, "the turn ended")

    async def _finish(self, turn: Turn, reason: str) -> None:
        """Say what is left to say, in order: open messages, what changed in the workspace, the end."""
        self._ending = True
        ended = turns.outcome(self._state, turn, self._clock())
        self._state, items = translate.end_turn(self._state, reason)
        try:
            changed = await self._changes()
        except GitFailed as error:
            _log.warning("changes_unknown", error=str(error))
            changed = None
        except Exception:  # noqa: BLE001 - whatever git shows us, the turn must end
            _log.exception("changes_not_read")
            changed = None
        self._say([*items, *([changed] if changed else []), ended])
        self._ended.add(turn.turn_id)
        self._newest = max([*self._state.messages, turn.user_message, self._newest or ""])
        self._turn = None
        self._publisher.turn = None
        self._over.set()

    async def _abort(self, turn_id: str) -> None:
        """Ask until it has ended; an OpenCode that does not listen is killed, which ends the turn too."""
        until = self._clock() + limits.ABORT_GRACE
        while self._turn and self._turn.turn_id == turn_id:
            if self._clock() > until:
                _log.warning("abort_ignored", turn=turn_id)
                self._process.kill()
                until = self._clock() + limits.ABORT_GRACE
            try:
                client = await self._process.client(limits.ABORT_REPEAT)
                await client.abort(self._state.root)
            except (OpencodeUnavailable, OpencodeRefused, OpencodeFailed) as error:
                _log.info("abort_repeats", error=str(error))
            try:
                await asyncio.wait_for(self._over.wait(), limits.ABORT_REPEAT)
            except TimeoutError:
                continue

    # -- small things

    def _say(self, items: list[Item]) -> asyncio.Future[int] | None:
        turn = self._turn
        if turn and turn.first_token is None and any(isinstance(item, Chunk) for item in items):
            self._turn = msgspec.structs.replace(turn, first_token=self._clock())
        return self._publisher.say(items)

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # the watch looks at the turn again
            _log.error("bridge_task_failed", exc_info=error)
