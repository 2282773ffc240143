"""What the server remembers: the requests it saw, for tests, and how often each step was tried, for faults."""

from collections import OrderedDict, deque

import msgspec

from valet_local.model import limits
from valet_local.model.plan import Plan
from valet_local.model.request import ChatRequest, Message


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that was answered."""

    at: float  # seconds since 1970
    session: str  # the agent's own session id (`x-session-id`); empty if it sends none
    model: str
    stream: bool
    prompt: str
    tools: tuple[str, ...]  # names of the tools that were offered
    since_prompt: tuple[Message, ...]  # what followed the prompt: earlier steps and the outputs of tools
    turn: str
    step: int
    tries: int  # how often this step was tried before
    fault: bool  # whether this try was made to fail


class Memory:
    """Bounded in both parts. A restarted server has forgotten everything, so `tries` counts from 0 again."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=limits.RECORDS)
        self._tries: OrderedDict[str, int] = OrderedDict()

    @property
    def records(self) -> tuple[Record, ...]:
        """The latest requests, oldest first."""
        return tuple(self._records)

    def count_try(self, digest: str) -> int:
        """How often this request was tried before; this try is counted."""
        before = self._tries.pop(digest, 0)
        self._tries[digest] = before + 1
        while len(self._tries) > limits.TRIES_REMEMBERED:
            self._tries.popitem(last=False)
        return before

    def add(self, request: ChatRequest, plan: Plan, *, at: float, session: str, tries: int) -> None:
        """Remember a request and what was decided about it."""
        self._records.append(
            Record(
                at=at,
                session=session,
                model=request.model,
                stream=request.stream,
                prompt=request.prompt,
                tools=tuple(tool.function.name for tool in request.tools),
                since_prompt=request.since_prompt,
                turn=plan.turn,
                step=plan.step,
                tries=tries,
                fault=plan.fault is not None,
            )
        )
