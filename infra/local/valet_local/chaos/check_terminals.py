"""Terminals: every byte of a process's output, once and in order, however often the way to it broke. Pure.

The program writes numbered lines, so that the bytes at any offset are known from the offset alone.
"""

from collections.abc import Iterator

from valet_local.chaos.records import History, TerminalConnection, TerminalRecord, Violation

_LINE = len("00000000\r\n")
RULE = "a terminal's output is whole"


def output_is_whole(history: History) -> Iterator[Violation]:
    """What came at each offset is what the program wrote there; who comes back goes on where it was."""
    for record in history.terminals:
        for number, one in enumerate(record.connections):
            wrong = _wrong(one)
            if wrong:
                what = f"process {record.process_id}, connection {number}: {wrong}"
                yield Violation(rule=RULE, session_id=record.session_id, seq=None, what=what)
        yield from _backwards(record)


def _wrong(one: TerminalConnection) -> str:
    if one.refused:
        return f"it runs, and does not know of the {one.asked} bytes that it has given out"
    if one.offset != one.asked + one.dropped:
        return f"asked for {one.asked}, it was given {one.offset} and told that {one.dropped} bytes are gone"
    if one.dropped and one.running:
        return f"{one.dropped} bytes of a process that runs are gone, though it never wrote much"
    wanted = written(one.offset, len(one.text))
    if one.text != wanted:
        at = next(at for at, (a, b) in enumerate(zip(one.text, wanted, strict=True)) if a != b)
        return f"at {one.offset + at} came {one.text[at : at + 20]!r} and not {wanted[at : at + 20]!r}"
    if one.running and one.ended is not None and one.ended != one.offset + len(one.text):
        return f"its end is at {one.ended}, and what came ends at {one.offset + len(one.text)}"
    return ""


def _backwards(record: TerminalRecord) -> Iterator[Violation]:
    """Nobody asks for what it has, which would be our own mistake, nor leaves anything out."""
    have = 0
    for number, one in enumerate(record.connections):
        if one.asked != have:
            what = f"process {record.process_id}, connection {number}: asked for {one.asked} having {have}"
            yield Violation(rule=RULE, session_id=record.session_id, seq=None, what=what)
        have = one.offset + len(one.text)


def written(offset: int, length: int) -> str:
    """What the program has written there."""
    first, last = offset // _LINE, (offset + length) // _LINE
    text = "".join(f"{number:08d}\r\n" for number in range(first, last + 1))
    return text[offset - first * _LINE :][:length]
