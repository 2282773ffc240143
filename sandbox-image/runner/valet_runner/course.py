"""The course of one turn: handed to OpenCode, watched, stopped, ended.

It holds what is known of the running turn. What a frame means is `translate`'s, what a turn came to is `turns`', what
follows a try is `sequel`'s and done by `tries`; decided here is only when to look and what to wait for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable

import msgspec
from valet_protocol.events.agent import AgentError, ReviewCompleted, TurnEnded
from valet_service import logs

from valet_runner import (
    closing,
    failover,
    hand_over,
    limits,
    message_ids,
    reconcile,
    sequel,
    steering,
    translate,
    turn_state,
    turns,
)
from valet_runner.aborts import Aborts
from valet_runner.bridge_state import BridgeState, Chunk, Item
from valet_runner.conversation import Conversations
from valet_runner.errors import OpencodeRefused, OpencodeUnavailable
from valet_runner.opencode_client import OpencodeClient
from valet_runner.opencode_process import OpencodeProcess
from valet_runner.publisher import Publisher
from valet_runner.tries import AWAY, Tries
from valet_runner.turns import Steered, Turn

_log = logs.get(__name__)


class Course:
    """One turn at a time. `now_ms` is milliseconds since 1970, `clock` seconds of a monotonic clock."""

    def __init__(
        self,
        *,
        process: OpencodeProcess,
        publisher: Publisher,
        conversations: Conversations,
        work: closing.Work,
        now_ms: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._process = process
        self._publisher = publisher
        self._conversations = conversations
        self._work = work
        self._now_ms = now_ms
        self.clock = clock
        self.state = BridgeState(root="")
        """What is known of the turn's conversation."""
        self.turn: Turn | None = None
        """The running turn."""
        self.ended: set[str] = set()
        """Turns whose end was said."""
        self.spoke = clock()
        """When anything but a delta was said last, by the clock."""
        self._ending = False
        self._aborts = Aborts(process, clock)
        self._tries = Tries(self, process)
        self._over = asyncio.Event()
        self._try_over = asyncio.Event()
        self._settling: asyncio.Task[None] | None = None
        self._settle_again = False
        self._call: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def current(self) -> Turn | None:
        """The running turn, unless its end is being said."""
        return None if self._ending else self.turn

    def runs(self, turn_id: str) -> bool:
        """Whether this is it."""
        return self.current is not None and self.current.turn_id == turn_id

    def say(self, items: Iterable[Item]) -> asyncio.Future[int] | None:
        """Put events on their way; gives the future sequence of the last."""
        said, turn = list(items), self.turn
        if any(not isinstance(item, Chunk) for item in said):
            self.spoke = self.clock()
        if turn and turn.first_token is None and any(isinstance(item, Chunk) for item in said):
            self.turn = msgspec.structs.replace(turn, first_token=self.clock())
        return self._publisher.say(said)

    # -- its begin

    def begin(self, turn: Turn) -> None:
        """This turn runs from now on; no frame counts before its prompt has an id."""
        self.turn = turn
        self._over = asyncio.Event()
        self._try_over = asyncio.Event()
        self._ending = False
        self._publisher.turn = turn.turn_id
        self.state = turn_state.begin_turn(self.state, "~")

    def new_message_id(self, key: str, *, attempt: int = 0) -> str:
        """An id for a user message, greater than all of the conversation."""
        newest = max([*self.state.messages, self._conversations.seen(self.state.root) or ""])
        message_id = message_ids.user_message_id(key, self._now_ms(), newest or None, attempt=attempt)
        self._conversations.saw(self.state.root, message_id)
        return message_id

    async def hand_over(self, client: OpencodeClient, turn: Turn) -> None:
        """Give OpenCode the turn, which has a user message now. Returns when OpenCode has it, or the call runs."""
        self.turn = turn
        self.state = turn_state.begin_turn(self.state, turn.user_message)
        await self.give(client, turn, as_prompt=False)

    async def not_taken(self, turn_id: str, error: Exception) -> None:
        """The turn could not be handed over: it ends, unless OpenCode has it all the same."""
        turn = self.current
        if turn is None or not self.runs(turn_id):
            return  # it has ended meanwhile
        if isinstance(error, OpencodeUnavailable) and turn.user_message and await self.has(turn.user_message):
            return  # it was slow to say so, but has the prompt
        failure = AgentError(name="opencode_unavailable", message=str(error))
        await self.finish(msgspec.structs.replace(turn, failure=failure), "not started")

    async def has(self, message_id: str) -> bool:
        """Whether OpenCode is known to have a message."""
        try:
            client = await self._process.client(limits.READY_TIMEOUT)
            return any(message.info.id == message_id for message in await client.messages(self.state.root))
        except AWAY:
            return False

    async def client(self) -> OpencodeClient:
        """The OpenCode to hand something to: none on which an abort may still come down. Raises what the client
        raises."""
        await self._aborts.none_left()
        return await self._process.client(limits.READY_TIMEOUT)

    async def give(self, client: OpencodeClient, turn: Turn, *, as_prompt: bool) -> None:
        """Give OpenCode the turn's user message. Raises what the client raises."""
        call = await hand_over.give(client, self.state.root, turn, as_prompt=as_prompt)
        if call:
            self._call = self._spawn(self._run_call(turn, call))

    async def _run_call(self, turn: Turn, call: Coroutine[None, None, None]) -> None:
        """A call of OpenCode's that lasts as long as its turn. What it does is told by the stream."""
        try:
            await call
        except OpencodeRefused as error:
            if (now := self.current) and now.user_message == turn.user_message:
                refused = AgentError(name="command_refused", message=str(error))
                self.turn = msgspec.structs.replace(now, refused=refused)
        except OpencodeUnavailable as error:
            await asyncio.sleep(limits.CALL_LOST_WAIT)
            if (now := self.current) and now.user_message == turn.user_message and not now.interrupted:
                failure = AgentError(name="command_stopped", message=str(error))
                self.turn = msgspec.structs.replace(now, failure=failure)
                self._stop(self._over)
        self.settle_soon()

    # -- prompts that steer it

    async def give_steered(self, steered: Steered) -> None:
        """Give OpenCode a prompt while it runs. Raises what the client raises."""
        turn = self.turn
        assert turn
        client = await self._process.client(limits.READY_TIMEOUT)
        await client.prompt(
            self.state.root,
            message_id=steered.message_id,
            parts=steered.parts,
            model=turn.model,
            variant=turn.fact.variant,
        )

    def steered(self, turn: Turn) -> None:
        """What is known of the turn's steering prompts has changed."""
        self.turn = turn
        self.state = msgspec.structs.replace(self.state, asked=steering.asked_last(turn))

    async def _repeat(self, passed: Steered) -> None:
        """OpenCode went idle without answering a prompt that came in its very last moment: it gets it once more."""
        turn = self.turn
        assert turn
        again = msgspec.structs.replace(passed, message_id=self.new_message_id(passed.prompt_id), repeated=True)
        _log.warning("steering_prompt_repeated", turn=turn.turn_id, prompt=passed.prompt_id)
        self.steered(steering.put(turn, again))
        try:
            await self.give_steered(again)
        except AWAY as error:
            _log.warning("steering_prompt_not_repeated", prompt=passed.prompt_id, error=str(error))

    # -- looking

    async def look(self, client: OpencodeClient) -> reconcile.Listing:
        """Read OpenCode's own state and say what is new in it. Raises what the client raises."""
        listing = await reconcile.look(client, self.state)
        self.state, items = translate.translate_all(self.state, reconcile.frames_of(listing, self.state))
        self.say(items)
        return listing

    def settle_soon(self) -> None:
        """It may be over: look."""
        self._settle_again = True  # a look that is under way may not see what has just come
        settling = self._settling and not self._settling.done()
        if (turn := self.current) and turn.user_message and not settling:
            self._settling = self._spawn(self._settle(turn.turn_id))

    async def _settle(self, turn_id: str) -> None:
        """Idle, or an error: is the turn over, and is everything of it here?"""
        until = self.clock() + limits.SETTLE_MAX
        while self.runs(turn_id):
            self._settle_again = False
            try:
                listing = await self.look(await self._process.client(limits.READY_TIMEOUT))
            except AWAY as error:
                _log.info("settling_waits", error=str(error))
                if isinstance(error, OpencodeRefused) and self.clock() > until and self.state.idle:
                    break  # it will not tell; what the stream has said must do
                await asyncio.sleep(limits.SETTLE_POLL)
                continue
            turn = self.current
            if turn is None:
                return
            if self.state.root in listing.statuses:
                if not self._settle_again:
                    return  # it goes on; the next idle comes back here
                await asyncio.sleep(limits.SETTLE_POLL)
                continue
            if turns.settled(self.state, turn):
                break
            begun = self.state.last is not None or self.state.error is not None
            patience = 0 if begun else limits.BEGIN_MAX - limits.SETTLE_MAX
            if self.clock() > until + patience and all(steered.taken for steered in turn.steered):
                passed = turns.unanswered(self.state, turn)
                if passed is None:
                    break
                await self._repeat(passed)
                until = self.clock() + limits.SETTLE_MAX
            await asyncio.sleep(limits.SETTLE_POLL)
        if (turn := self.current) and self.runs(turn_id):
            if follows := sequel.of(self.state, turn):
                self._try_over.set()  # the aborts that were for this try
                await self._tries.go_on(turn, follows)
            else:
                await self.finish(turn, "the turn ended")
            self._settling = None  # what was begun may be over already
            if self._settle_again:
                self.settle_soon()

    # -- another model

    def give_up_soon(self) -> None:
        """If the provider is to be tried too often, have OpenCode stop: the next model gets the turn then."""
        turn = self.current
        if turn and turn.user_message and (why := failover.gives_up(self.state, turn, self._now_ms())):
            self.turn = msgspec.structs.replace(turn, giving_up=why)
            self._try_over = asyncio.Event()
            self._stop(self._try_over)

    # -- its end

    def interrupt(self, turn_id: str) -> None:
        """Have OpenCode stop, for good."""
        turn = self.current
        if turn and self.runs(turn_id) and not turn.interrupted:
            self.turn = msgspec.structs.replace(turn, interrupted=True)
            self._stop(self._over)

    def _stop(self, over: asyncio.Event) -> None:
        """Have OpenCode stop what it has of this turn, and nothing else."""
        turn_id = self.turn.turn_id if self.turn else ""

        def session() -> str | None:
            handed = (turn := self.current) and turn.turn_id == turn_id and turn.user_message
            return self.state.root if handed else None

        self._spawn(self._aborts.until_over(session, over))

    async def finish(self, turn: Turn, reason: str) -> None:
        """Say what is left to say, in order: open messages, what changed in the workspace, the end. Whatever fails in
        that, the turn ends."""
        self._ending = True
        self.turn = turn
        self._over.set()
        self._try_over.set()
        if self._call:
            self._call.cancel()
            self._call = None
        ended = turns.unaccounted(turn)
        try:
            ended = turns.outcome(self.state, turn, self.clock())
            await self._account(turn, ended, reason)
        except Exception:  # noqa: BLE001 - no turn may wait for its end because of what is said before it
            _log.exception("turn_not_accounted", turn=turn.turn_id)
        self._over_with(turn, ended)

    async def _account(self, turn: Turn, ended: TurnEnded, reason: str) -> None:
        """Say everything but the end itself."""
        reviewed = turns.review(self.state, turn) if turn.fact.kind == "review" else None
        review: list[Item] = []
        if isinstance(reviewed, ReviewCompleted) and ended.status == "completed":
            review = [reviewed]
        self.state, items = turn_state.end_turn(self.state, reason)
        self.say([*items, *review])
        for message_id in self.state.messages:
            self._conversations.saw(self.state.root, message_id)
        client: OpencodeClient | None = None
        if not turn.lost:
            try:
                client = await self._process.client(limits.PROBE_TIMEOUT)
            except AWAY as error:
                _log.info("conversation_not_saved", error=str(error))
        workspace = await closing.said_of_workspace(
            turn.turn_id,
            work=self._work,
            conversations=self._conversations.known(),
            client=client,
        )
        self.say(workspace)

    def _over_with(self, turn: Turn, ended: TurnEnded) -> None:
        try:
            self.say([ended])
        finally:
            self.state = msgspec.structs.replace(self.state, floor=None)
            self.ended.add(turn.turn_id)
            self.turn = None
            self._ending = False
            self._publisher.turn = None
        if turns.leaves_opencode_broken(ended):
            _log.warning("opencode_is_replaced", turn=turn.turn_id)
            self._process.kill()

    # -- small things

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # the watch looks at the turn again
            _log.error("turn_task_failed", exc_info=error)
