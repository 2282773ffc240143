"""The people of a run: each does what the schedule says, at its time, with what it finds at that moment."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import cast

from valet_local.chaos import limits, plan
from valet_local.chaos.api import Api
from valet_local.chaos.check_effects import TOKEN
from valet_local.chaos.plan import Act
from valet_local.chaos.records import ActKind, ActRecord, Stored

_MARK = "mkdir -p marks; echo {token} >> marks/{token}"


class People:
    """Everybody in every session. `forked(session_id, source)` is told of a new session."""

    def __init__(
        self,
        api: Api,
        sessions: list[str],
        acts: tuple[Act, ...],
        *,
        clock: Callable[[], float],
        forked: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._api = api
        self._sessions = sessions
        self._acts = acts
        self._clock = clock
        self._forked = forked
        self._asks = {act.tokens[0]: act for act in acts if act.kind == "ask"}
        self._asked: set[str] = set()
        self._children: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._do: dict[ActKind, Callable[[Act, str, str], Awaitable[object]]] = {
            "prompt": self._prompt,
            "collect": self._collect,
            "steer": self._steer,
            "ask": self._ask,
            "abort": self._abort,
            "edit": self._edit,
            "withdraw": self._withdraw,
            "reorder": self._reorder,
            "revert": self._revert,
            "unrevert": self._unrevert,
            "shell": self._shell,
            "fork": self._fork,
            "note": self._note,
            "spawn": self._spawn_child,
        }

    async def run(self) -> None:
        """Do everything. A person does one thing after the other, late when the one before took long."""
        people = [(session, client) for session in range(len(self._sessions)) for client in range(plan.CLIENTS)]
        await asyncio.gather(*(self._one(session, client) for session, client in people))
        await self.done()

    async def done(self) -> None:
        """Return when what somebody began by the way is done as well."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def hear(self, event: Stored) -> None:
        """An event was stored: somebody may have to answer."""
        if event.type == "fact.child_requested":
            self._spawn(self._child(event.session_id, str(event.data.get("child_id", ""))))
        if event.type != "agent.question_asked":
            return
        question_id = str(event.data.get("question_id", ""))
        questions = cast(list[dict[str, object]], event.data.get("questions") or [])
        found = TOKEN.search(" ".join(str(question.get("question", "")) for question in questions))
        act = self._asks.get(found[1]) if found else None
        if act is None or question_id in self._asked:
            return
        self._asked.add(question_id)
        for client in {"person": [0], "both": [0, 1], "nobody": []}[act.answer]:
            self._spawn(self._answer(event.session_id, f"{act.session}.{client}", question_id, act.after))

    async def _one(self, session: int, client: int) -> None:
        for act in self._acts:
            if (act.session, act.client) == (session, client):
                await asyncio.sleep(max(0.0, act.at - self._clock()))
                if act.kind == "fork":  # what it makes has a life of its own
                    self._spawn(self._do[act.kind](act, self._sessions[session], f"{session}.{client}"))
                else:
                    await self._do[act.kind](act, self._sessions[session], f"{session}.{client}")

    def _spawn(self, work: Awaitable[object]) -> None:
        async def run() -> None:
            await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- prompts

    async def send(self, act: ActKind, session_id: str, client: str, content: str, **options: str) -> ActRecord:
        """Give a session a prompt."""
        return await self._api.act(act, session_id, client, "POST", "/messages", {"content": content, **options})

    async def _prompt(self, act: Act, session_id: str, client: str) -> None:
        await self.send("prompt", session_id, client, f"please mark {act.tokens[0]}")

    async def _collect(self, act: Act, session_id: str, client: str) -> None:
        await self.send("collect", session_id, client, f"please mark {act.tokens[0]}", mode="collect")

    async def _steer(self, act: Act, session_id: str, client: str) -> None:
        await self.send("steer", session_id, client, f"please mark {act.tokens[0]}", mode="steer")

    async def _ask(self, act: Act, session_id: str, client: str) -> None:
        await self.send("ask", session_id, client, f"ask: mark {act.tokens[0]}")

    async def _shell(self, act: Act, session_id: str, client: str) -> None:
        token = act.tokens[0]
        await self.send("shell", session_id, client, f": mark {token}; {_MARK.format(token=token)}", kind="shell")

    async def _note(self, act: Act, session_id: str, client: str) -> None:
        await self.send("note", session_id, client, f"note {act.tokens[0]}")

    async def _spawn_child(self, act: Act, session_id: str, client: str) -> None:
        await self.send("spawn", session_id, client, f"spawn {act.tokens[0]}")

    async def _child(self, parent: str, child: str) -> None:
        """An agent's child session: it works, and is ended."""
        if child in self._children:
            return
        self._children.add(child)
        asked = self._clock()
        while await self._api.read(f"/api/sessions/{child}") is None:
            await asyncio.sleep(1.0)  # it is asked for and will be made; if not, the checker says so
            if self._clock() > asked + limits.RECOVERY_MOST:
                return
        await self._forked(child, parent)
        await asyncio.sleep(limits.CHILD_LIFE)
        for _ in range(limits.BETWEEN_TURNS):
            if (await self._api.act("terminate", child, "child", "DELETE", "")).status != 404:
                return
            await asyncio.sleep(1.0)  # it is asked for and will be made

    async def _answer(self, session_id: str, client: str, question_id: str, after: float) -> None:
        await asyncio.sleep(after)
        body = {"question_id": question_id, "answers": [["Yes"]]}
        await self._api.act("answer", session_id, client, "POST", "/answer", body, about=question_id)

    # -- the queue

    async def _edit(self, act: Act, session_id: str, client: str) -> None:
        """Two prompts, so that the second waits; its text is then another one, or it is too late for that."""
        first, second, other = act.tokens
        await self.send("prompt", session_id, client, f"please mark {first}")
        sent = await self.send("prompt", session_id, client, f"please mark {second}")
        if prompt_id := sent.answer.get("prompt_id"):
            body = {"content": f"please mark {other}"}
            await self._api.act(
                "edit", session_id, client, "PATCH", f"/prompts/{prompt_id}", body, about=str(prompt_id)
            )

    async def _withdraw(self, act: Act, session_id: str, client: str) -> None:
        await self.send("prompt", session_id, client, f"please mark {act.tokens[0]}")
        sent = await self.send("prompt", session_id, client, f"please mark {act.tokens[1]}")
        if prompt_id := sent.answer.get("prompt_id"):
            await self._api.act("withdraw", session_id, client, "DELETE", f"/prompts/{prompt_id}", about=str(prompt_id))

    async def _reorder(self, act: Act, session_id: str, client: str) -> None:
        view = await self._api.read(f"/api/sessions/{session_id}") or {}
        waiting = [str(prompt["prompt_id"]) for prompt in view.get("queued", [])]
        if waiting:
            random.Random(act.choice).shuffle(waiting)
            await self._api.act("reorder", session_id, client, "POST", "/queue", {"prompt_ids": waiting})

    # -- the turn and the conversation

    async def _abort(self, act: Act, session_id: str, client: str) -> None:
        await self._api.act("abort", session_id, client, "POST", "/abort")

    async def _revert(self, act: Act, session_id: str, client: str) -> None:
        messages = await self._api.read_all(f"/api/sessions/{session_id}/messages")
        mine = [message for message in messages if message.get("role") == "user"][-3:]
        if mine:
            message = mine[act.choice % len(mine)]
            await self._between_turns("revert", session_id, client, {"message_id": message["id"]})

    async def _unrevert(self, act: Act, session_id: str, client: str) -> None:
        await self._between_turns("unrevert", session_id, client, None)

    async def _between_turns(self, kind: ActKind, session_id: str, client: str, body: object) -> None:
        """What is refused while a turn runs is tried a few times."""
        for _ in range(limits.BETWEEN_TURNS):
            record = await self._api.act(kind, session_id, client, "POST", f"/{kind}", body)
            if record.status != 409:
                return
            await asyncio.sleep(1.0)

    async def _fork(self, act: Act, session_id: str, client: str) -> None:
        """A session of its own from what there is; it works, and is ended with its last prompt unanswered."""
        record = await self._api.act("fork", session_id, client, "POST", "/fork", {"title": "a fork"})
        if record.status != 201:
            return
        fork = str(record.answer["id"])
        await self._forked(fork, session_id)
        await self.send("prompt", fork, client, f"please mark {act.tokens[0]}")
        await asyncio.sleep(limits.FORK_LIFE)
        await self.send("prompt", fork, client, f"please mark {act.tokens[1]}")
        if act.choice % 2:
            await self._api.act("terminate", fork, client, "DELETE", "")
