"""A small, faultless history to be doctored: one session, two prompts, a question, two clients."""

from typing import Any

import msgspec
from valet_local.chaos.records import (
    ActKind,
    ActRecord,
    ClientRecord,
    History,
    Received,
    SessionRecord,
    Stored,
)

SESSION = "01SESSION"
FIRST, SECOND = "t0000000001", "t0000000002"
TEXT = "one two three"


def stored(seq: int, type: str, turn: str | None = None, **data: Any) -> Stored:
    return Stored(seq=seq, session_id=SESSION, id=f"id-{seq}", type=type, turn=turn, epoch=1, data=data)


def turn(first_seq: int, name: str, prompt: str, token: str) -> list[Stored]:
    """A prompt and all that comes of it, from `first_seq` on; eight events."""
    content = f"please mark {token}"
    message = f"msg-{name}"
    return [
        stored(first_seq, "fact.prompt_accepted", prompt_id=prompt, content=content),
        stored(first_seq + 1, "fact.turn_dispatched", prompt_id=prompt, turn_id=name, content=content),
        stored(first_seq + 2, "agent.turn_started", name, turn_id=name, prompt_id=prompt),
        stored(first_seq + 3, "agent.message_created", name, message_id=message),
        stored(first_seq + 6, "agent.text_completed", name, message_id=message, part_id=f"prt-{name}", text=TEXT),
        stored(first_seq + 7, "agent.message_completed", name, message_id=message),
        stored(first_seq + 8, "agent.question_asked", name, question_id=f"que-{name}"),
        stored(first_seq + 9, "fact.question_answered", question_id=f"que-{name}", answered_by="person"),
        stored(first_seq + 10, "agent.turn_ended", name, turn_id=name, status="completed"),
    ]


def deltas(first_seq: int, name: str) -> list[Stored]:
    """The two pieces of the turn's text, at the two sequences that the turn leaves free; purged later."""
    part = f"prt-{name}"
    return [
        stored(first_seq + 4, "delta.text", name, part_id=part, offset=0, text=TEXT[:4]),
        stored(first_seq + 5, "delta.text", name, part_id=part, offset=4, text=TEXT[4:]),
    ]


def received(event: Stored, connection: int = 0) -> Received:
    return Received(
        seq=event.seq,
        id=event.id,
        type=event.type,
        at=float(event.seq),
        connection=connection,
        part=str(event.data.get("part_id", "")),
        offset=int(str(event.data.get("offset", 0))),
        text=str(event.data.get("text", "")) if "part_id" in event.data else "",
    )


def act(kind: ActKind, status: int | None = 202, *, about: str = "", **answer: object) -> ActRecord:
    return ActRecord(
        at=0.0,
        session_id=SESSION,
        client="0.0",
        kind=kind,
        method="POST",
        path=f"/{kind}",
        status=status,
        attempts=1,
        about=about,
        answer=answer,
    )


def patch(**marks: int) -> str:
    """A diff in which each token's file has so many lines."""
    files = [
        f"diff --git a/marks/{token} b/marks/{token}\nnew file mode 100644\n--- /dev/null\n+++ b/marks/{token}\n"
        f"@@ -0,0 +1 @@\n" + f"+{token}\n" * count
        for token, count in marks.items()
    ]
    return "".join(files)


def faultless() -> History:
    stream = [*turn(1, "turn-1", "prompt-1", FIRST), *turn(20, "turn-2", "prompt-2", SECOND)]
    purged = [*deltas(1, "turn-1"), *deltas(20, "turn-2")]
    everything = sorted([*stream, *purged], key=lambda event: event.seq)
    return History(
        stream=stream,
        tapped=purged,
        clients=[
            ClientRecord(
                name=name, session_id=SESSION, received=[received(event) for event in everything], connections=1
            )
            for name in ("one", "two")
        ],
        acts=[
            act("prompt", prompt_id="prompt-1", seq=1),
            act("prompt", prompt_id="prompt-2", seq=20),
            act("answer", 200, about="que-turn-1"),
            act("answer", 409, about="que-turn-1"),
        ],
        faults=[],
        sessions=[
            SessionRecord(
                session_id=SESSION,
                status="ready",
                detail="",
                at_rest=True,
                closing="completed",
                patch=patch(**{FIRST: 1, SECOND: 1}),
                prompts={"prompt-1": "done", "prompt-2": "done"},
            )
        ],
    )


def with_session(history: History, **changed: Any) -> History:
    return msgspec.structs.replace(history, sessions=[msgspec.structs.replace(history.sessions[0], **changed)])


def with_received(history: History, changed: list[Received], *, connections: int = 1) -> History:
    """The first client got something else."""
    first, *others = history.clients
    doctored = msgspec.structs.replace(first, received=changed, connections=connections)
    return msgspec.structs.replace(history, clients=[doctored, *others])
