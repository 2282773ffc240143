"""From a seed to everything that will be tried: what clients do and what breaks, when. Pure.

The same seed, length and number of sessions give the same schedule on every machine. What the platform makes of it
depends on timing as well: a schedule is repeatable, a run is not.
"""

import random
from collections.abc import Iterator
from typing import Literal

import msgspec

from valet_local.chaos import limits
from valet_local.chaos.records import ActKind, FaultKind

Answer = Literal["person", "both", "nobody"]

SMALL = "knowledge+automation"
"""The process that small services share on one machine."""

PROCESSES = ("nats", "postgres", "api", "session-ledger", "event-bus", "sandbox-controller", "portal", SMALL)
"""The control plane."""

SANDBOX = ("runner", "opencode")
"""What a session's turns need."""

INSIDE = ("gateway", "processes")
"""What is in a sandbox besides; turns go on without."""

LINKED = ("api", "session-ledger", "event-bus", "sandbox-controller", "portal", SMALL)
"""Services whose connections go through a link of the run."""

CLIENTS = 2
"""People in a session, each with a stream of their own."""

WEIGHTS: dict[ActKind, int] = {
    "prompt": 30,
    "collect": 12,
    "steer": 12,
    "ask": 14,
    "abort": 8,
    "edit": 6,
    "withdraw": 5,
    "reorder": 3,
    "revert": 4,
    "unrevert": 2,
    "shell": 6,
    "note": 8,
}


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """Something one client of one session does."""

    at: float
    session: int
    client: int
    kind: ActKind
    tokens: tuple[str, ...] = ()
    """Words that its prompts mark: three, of which most kinds need one."""
    answer: Answer = "person"
    """Of `ask`: who answers."""
    after: float = 0.0
    """Of `ask`: how long they think, seconds."""
    choice: int = 0
    """Any number, to choose among what there is at that moment."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that breaks."""

    at: float
    kind: FaultKind
    target: str
    """A process, `nats:<service>` and `postgres:<service>` for a link, `front` for the clients' way to the api,
    `client` for a client that goes away by itself."""
    seconds: float = 0.0
    """How long it stays so."""
    session: int = 0
    """Whose runner, agent or client."""
    choice: int = 0


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, in order of time. Times are seconds since the sessions are there."""

    seed: int
    seconds: float
    sessions: int
    acts: tuple[Act, ...]
    faults: tuple[Fault, ...]


def schedule(seed: int, *, seconds: float, sessions: int) -> Schedule:
    """The schedule of a seed."""
    acts: list[Act] = []
    for session in range(sessions):
        for client in range(CLIENTS):
            acts += _acts(random.Random(f"acts/{seed}/{session}/{client}"), seconds, session, client)
    acts += _rare("fork", limits.FORKS, random.Random(f"forks/{seed}"), seconds, sessions)
    acts += _rare("spawn", limits.SPAWNS, random.Random(f"spawns/{seed}"), seconds, sessions)
    acts.sort(key=lambda act: (act.at, act.session, act.client))
    faults = tuple(_faults(random.Random(f"faults/{seed}"), seconds, sessions))
    return Schedule(seed=seed, seconds=seconds, sessions=sessions, acts=tuple(acts), faults=faults)


def _acts(chance: random.Random, seconds: float, session: int, client: int) -> Iterator[Act]:
    at = chance.uniform(0.0, 1.0)
    first = True
    while at < seconds:
        # the first thing a session gets is a prompt, so that there is something to act on
        kind = "prompt" if first else chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        first = False
        count = chance.randint(2, 3) if kind in ("collect", "prompt") and chance.random() < 0.4 else 1
        for _ in range(count):
            yield Act(
                at=round(at, 3),
                session=session,
                client=client,
                kind=kind,
                tokens=_tokens(chance),
                answer=chance.choice(("person", "person", "both", "nobody")),
                after=round(chance.uniform(0.0, limits.ANSWER_SOON), 3),
                choice=chance.randrange(1 << 16),
            )
            at += chance.uniform(0.1, 0.8)
        at += chance.uniform(0.3, 1.7) * limits.ACT_GAP


def _rare(kind: ActKind, most: int, chance: random.Random, seconds: float, sessions: int) -> Iterator[Act]:
    """What makes a session more."""
    for _ in range(min(most, sessions // 2)):
        at = chance.uniform(0.3, 0.7) * seconds
        yield Act(
            at=round(at, 3),
            session=chance.randrange(sessions),
            client=chance.randrange(CLIENTS),
            kind=kind,
            tokens=_tokens(chance),
            choice=chance.randrange(1 << 16),
        )


def _faults(chance: random.Random, seconds: float, sessions: int) -> Iterator[Fault]:
    deck: list[tuple[FaultKind, str]] = []
    at = limits.WARM_UP + chance.uniform(0.0, 2.0)
    while at < seconds:
        if not deck:
            deck = _dealt(chance)
        kind, target = deck.pop()
        length = 0.0
        if kind in ("pause", "freeze"):
            # mostly short: a long one holds everything else up, and a few of them say enough
            shortest, longest = limits.PAUSE
            length = shortest + (longest - shortest) * chance.random() ** 3
        elif kind == "cut":
            length = limits.CUT_OUT
        if at + length >= seconds:
            return
        yield Fault(
            at=round(at, 3),
            kind=kind,
            target=target,
            seconds=round(length, 3),
            session=chance.randrange(sessions),
            choice=chance.randrange(1 << 16),
        )
        if chance.random() < limits.SECOND_FAULT:
            at += chance.uniform(0.0, 0.5)
        else:
            at += length + chance.uniform(*limits.FAULT_GAP)


def _dealt(chance: random.Random) -> list[tuple[FaultKind, str]]:
    """Every fault once before any comes again; kills, which are the worst of them, among the others from the start."""
    kills = [fault for fault in every_fault() if fault[0] == "kill"]
    others = [fault for fault in every_fault() if fault[0] != "kill"]
    chance.shuffle(kills)
    chance.shuffle(others)
    deck: list[tuple[FaultKind, str]] = []
    while kills or others:
        pile = kills if kills and (len(deck) % 5 in (0, 2, 3) or not others) else others
        deck.append(pile.pop())
    return deck[::-1]  # dealt from the end


def every_fault() -> Iterator[tuple[FaultKind, str]]:
    """One of each."""
    for target in (*PROCESSES, *SANDBOX, *INSIDE):
        yield "kill", target
        yield "pause", target
    for service in LINKED:
        yield "cut", f"nats:{service}"
        if service != "portal":  # it has no database
            yield "cut", f"postgres:{service}"
    yield "freeze", "nats:session-ledger"
    yield "freeze", "nats:portal"
    yield "freeze", "postgres:session-ledger"
    yield "cut", "front"
    yield "freeze", "front"
    yield "cut", "client"


def _tokens(chance: random.Random) -> tuple[str, ...]:
    """Words that are used once: `t` and ten hexadecimal digits."""
    return tuple(f"t{chance.getrandbits(40):010x}" for _ in range(3))


def in_words(planned: Schedule) -> str:
    """The schedule for people, a line for each thing."""
    lines = [f"seed {planned.seed}, {planned.seconds:g} s, {planned.sessions} sessions"]
    entries = [(act.at, f"session {act.session} client {act.client}: {act.kind}") for act in planned.acts]
    entries += [(fault.at, _fault_in_words(fault)) for fault in planned.faults]
    return "\n".join([*lines, *(f"{at:8.2f}  {words}" for at, words in sorted(entries))])


def _fault_in_words(fault: Fault) -> str:
    where = f" of session {fault.session}" if fault.target in (*SANDBOX, *INSIDE, "client") else ""
    length = f" for {fault.seconds:.1f} s" if fault.kind in ("pause", "freeze") else ""
    return f"** {fault.kind} {fault.target}{where}{length}"
