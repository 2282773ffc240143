"""The pure part: ring, registry, history, patience, requests, OpenCode's shapes."""

import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from valet_processes import limits, opencode_shapes, registry, requests
from valet_processes.event_log import EventLog
from valet_processes.holding import Patience
from valet_processes.opencode_shapes import PtyCreate
from valet_processes.registry import Kept
from valet_processes.requests import Create, Filter, Input, Size
from valet_processes.ring import Ring
from valet_processes.spool import Spool
from valet_processes.tickets import Tickets
from valet_protocol.errors import BadRequest, Conflict, NotFound, Refused, TooLarge, TooMany, Unprocessable
from valet_protocol.events.machine import ProcessInfo

CAPACITY = limits.RING_CHUNK_BYTES + limits.RING_CHUNK_COST

writes = st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from([0, 1, 7, 300, 30_000])), max_size=12)
"""Stream and length of what is written."""


def output(number: int, size: int) -> bytes:
    """Bytes that differ from those of the writes beside it."""
    return bytes((number * 31 + position) % 251 for position in range(size))


def read_all(source: Ring | Spool, offset: int, limit: int) -> list[tuple[int, int]]:
    """(stream, byte) of everything from `offset`."""
    found: list[tuple[int, int]] = []
    while piece := source.read(offset, limit):
        assert 0 < len(piece.data) <= limit
        found += [(piece.stream, byte) for byte in piece.data]
        offset = piece.end
    return found


@given(writes, st.sampled_from([999, 70_000]))
@settings(max_examples=30, deadline=None)
def test_a_ring_holds_an_unbroken_end_of_all_output_within_its_memory(written: list[tuple[int, int]], limit: int):
    ring, everything = Ring(CAPACITY), []
    for number, (stream, size) in enumerate(written):
        data = output(number, size)
        before, promised = ring.end, ring.start_after(size)
        ring.append(stream, data)
        everything += [(stream, byte) for byte in data]
        assert min(ring.start, before) <= promised, "what was said to stay was dropped"
        assert ring.cost <= CAPACITY
    assert ring.end == len(everything)
    assert read_all(ring, ring.start, limit) == everything[ring.start :]
    assert read_all(ring, 0, limit) == everything[ring.start :]


@given(writes)
@settings(max_examples=20, deadline=None)
def test_a_spool_holds_all_output_and_which_stream_it_came_from(tmp_path_factory, written: list[tuple[int, int]]):
    spool = Spool(tmp_path_factory.mktemp("spool") / "proc_1", room=lambda: 1 << 30)
    everything = []
    for number, (stream, size) in enumerate(written):
        data = output(number, size)
        spool.append(stream, data)
        everything += [(stream, byte) for byte in data]
    assert read_all(spool, 0, 5000) == everything
    assert read_all(spool, len(everything) // 2, 5000) == everything[len(everything) // 2 :]
    spool.remove()
    spool.close()


def test_a_spool_without_room_keeps_what_it_has_and_takes_no_more(tmp_path: Path):
    room = 10
    spool = Spool(tmp_path / "proc_1", room=lambda: room)
    spool.append(1, b"12345")
    room = 3
    spool.append(1, b"6789")
    room = 100
    spool.append(1, b"a")
    assert spool.full
    assert spool.end == 5
    assert read_all(spool, 0, 100) == [(1, byte) for byte in b"12345"]


@given(st.lists(st.text(max_size=200), max_size=30))
@settings(max_examples=30, deadline=None)
def test_a_cursor_in_utf16_units_finds_the_character_after_it(texts: list[str]):
    ring = Ring(CAPACITY, text=True)
    for text in texts:
        ring.append(1, text.encode("utf-8", "replace"))
    whole = b"".join(text.encode("utf-8", "replace") for text in texts)
    text = whole.decode()
    for cut in range(0, len(text) + 1, max(1, len(text) // 7)):
        count = len(text[:cut].encode("utf-16-le")) // 2
        offset = ring.offset_of(count)
        assert whole[offset:].decode() == text[cut:]
        assert ring.units_at(offset) == count


def test_a_cursor_whose_text_is_gone_finds_the_oldest_kept():
    ring = Ring(CAPACITY, text=True)
    ring.append(1, "€".encode() * 100_000)
    assert ring.start > 0
    assert ring.offset_of(0) == ring.start
    assert ring.units_at(ring.end) == 100_000
    assert ring.offset_of(99_999) == ring.end - 3


def kept(id: str, *, tag: str | None = None, exited_ms: int | None = None, cost: int = 0) -> Kept:
    info = ProcessInfo(
        id=id,
        command="x",
        cwd="/",
        tag=tag,
        pid=1,
        pty=False,
        created_at="2026-01-01T00:00:00Z",
        status="running" if exited_ms is None else "exited",
    )
    return Kept(info=info, exited_ms=exited_ms, output_cost=cost)


def test_a_tag_is_unique_among_those_that_run_only():
    ended = kept("proc_1", tag="web", exited_ms=5)
    registry.admit([ended], Create(command="x", tag="web"))
    with pytest.raises(Conflict, match="proc_2"):
        registry.admit([ended, kept("proc_2", tag="web")], Create(command="x", tag="web"))
    registry.admit([kept("proc_2", tag="web")], Create(command="x"))


def test_there_are_only_so_many_running_processes():
    running = [kept(f"proc_{number}") for number in range(limits.RUNNING_MAX)]
    with pytest.raises(TooMany):
        registry.admit(running, Create(command="x"))
    registry.admit([*running[1:], kept("proc_0", exited_ms=1)], Create(command="x"))


def test_a_tag_means_the_running_process_else_the_last_that_ended():
    records = {
        each.info.id: each
        for each in (
            kept("proc_1", tag="a", exited_ms=9),
            kept("proc_2", tag="a"),
            kept("proc_3", tag="b", exited_ms=1),
        )
    }
    assert registry.find(records, "a") == "proc_2"
    assert registry.find({**records, "proc_2": kept("proc_2", tag="a", exited_ms=5)}, "a") == "proc_1"
    assert registry.find(records, "proc_3") == "proc_3"
    with pytest.raises(NotFound, match="nothing"):
        registry.find(records, "nothing")


def test_old_and_surplus_records_of_ended_processes_go_and_running_ones_never():
    now = 10 * 24 * 3600 * 1000
    records = [kept("proc_r"), *(kept(f"proc_{n:03}", exited_ms=now - n) for n in range(limits.EXITED_KEPT + 2))]
    assert registry.forgettable(records, now) == [f"proc_{n:03}" for n in (limits.EXITED_KEPT, limits.EXITED_KEPT + 1)]
    assert registry.forgettable([kept("proc_r"), kept("proc_o", exited_ms=1)], now) == ["proc_o"]


def test_output_in_memory_is_given_up_by_the_longest_ended_first():
    records = [kept("run", cost=50), kept("new", exited_ms=9, cost=50), kept("old", exited_ms=1, cost=50)]
    assert registry.give_up_output(records, budget=150) == []
    assert registry.give_up_output(records, budget=149) == ["old"]
    assert registry.give_up_output(records, budget=10) == ["old", "new"]


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_resumed_history_is_complete_or_says_that_it_is_not(count: int, position: int):
    log = EventLog(7, complete=True, capacity=20)
    ids = []
    for number in range(count):
        log.append("process.created", b"%d" % number)
        ids.append(log.last)
    after = ids[position] if position < count else 0
    missed = log.since(after)
    wanted = [id for id in ids if id > after]
    assert missed is None if len(wanted) > 20 else missed is not None and [event.id for event in missed] == wanted


def test_events_of_an_earlier_life_cannot_be_resumed_and_their_ids_are_smaller():
    first = EventLog(1_000, complete=True)
    first.append("process.created", b"")
    second = EventLog(1_001, complete=False)
    second.append("process.exited", b"")
    assert second.last > first.last
    assert second.since(first.last) is None
    assert second.since(0) is None
    assert second.since(second.last + 1) is None, "an id that was never given"
    third = EventLog(1_002, complete=True)
    assert third.since(0) == []
    assert third.since(second.last) is None, "what was deleted just before the restart is not known here"


def test_a_client_that_reads_steadily_is_never_out_of_patience_and_one_that_does_not_is():
    steady = Patience(5.0)
    for _ in range(1000):
        steady.held(0.1)
        steady.read(limits.RING_BYTES // 40)
    assert not steady.used_up
    silent = Patience(5.0)
    silent.held(4.9)
    assert not silent.used_up
    silent.held(0.2)
    assert silent.used_up
    saver = Patience(5.0)
    saver.read(limits.RING_BYTES * 100)
    assert saver.left == 5.0, "patience is not saved up"


BAD_REQUESTS = [
    (Create(command=""), "command is empty"),
    (Create(command="a\0b"), "NUL"),
    (Create(command="a", args=["\0"]), "NUL"),
    (Create(command="a", env={"": "x"}), "environment variable"),
    (Create(command="a", env={"A=B": "x"}), "environment variable"),
    (Create(command="a", env={"A": "\0"}), "NUL"),
    (Create(command="a", tag=""), "tag"),
    (Create(command="a", tag="a/b"), "tag"),
    (Create(command="a", tag="proc_1"), "tag"),
    (Create(command="a", tag="x" * 65), "tag"),
    (Create(command="a", session_id=""), "session_id"),
    (Create(command="a", label="x" * 201), "label"),
    (Create(command="a", pty=Size(rows=0, cols=1)), "rows"),
    (Create(command="a", pty=Size(rows=1, cols=70_000)), "rows"),
]


@pytest.mark.parametrize(("request_", "words"), BAD_REQUESTS)
def test_a_request_that_cannot_be_tried_is_refused_with_the_reason(request_: Create, words: str):
    with pytest.raises(Unprocessable, match=words):
        requests.check(request_)


def test_a_process_for_the_agent_of_another_session_is_refused():
    for own in (None, "s1"):
        requests.check(Create(command="a", session_id=own), session_id="s1")
    with pytest.raises(Unprocessable, match="sandbox of session s1") as refused:
        requests.check(Create(command="a", session_id="s2"), session_id="s1")
    assert refused.value.code == "other_session"


BAD_JSON = [
    (b"", Create, BadRequest),
    (b'{"command"', Create, BadRequest),
    (b"\xff", Create, BadRequest),
    (b"[]", Create, Unprocessable),
    (b"{}", Size, Unprocessable),
    (b'{"command":1}', Create, Unprocessable),
    (b'{"command":"a","arg":[]}', Create, Unprocessable),
    (b'{"rows":1.5,"cols":2}', Size, Unprocessable),
]


@pytest.mark.parametrize(("body", "kind", "error"), BAD_JSON)
def test_a_body_that_is_not_the_request_is_refused(body: bytes, kind: type, error: type[Refused]):
    with pytest.raises(error):
        requests.decode(body, kind)


@pytest.mark.parametrize("said", ["SIGKILL", "KILL", "kill", "sigkill", "9", 9])
def test_a_signal_is_named_as_kill_takes_it(said: str | int):
    assert requests.signal_number(said) is signal.SIGKILL


@pytest.mark.parametrize("said", ["", "SIG", "SIGSIGKILL", "0", 0, -9, "-9", 1000, "9.0", "²"])
def test_what_is_no_signal_is_refused(said: str | int):
    with pytest.raises(Unprocessable, match="no signal"):
        requests.signal_number(said)


def test_input_is_text_or_base64_and_bounded():
    assert requests.input_bytes(Input(data="é")) == "é".encode()
    assert requests.input_bytes(Input(data_base64="AP8=")) == b"\0\xff"
    assert requests.input_bytes(Input(close=True)) == b""
    for bad in (Input(), Input(data="a", data_base64="YQ=="), Input(data_base64="?")):
        with pytest.raises(Unprocessable):
            requests.input_bytes(bad)
    with pytest.raises(TooLarge):
        requests.input_bytes(Input(data="x" * (limits.INPUT_BYTES + 1)))


def test_an_offset_is_a_number_up_to_the_end_or_the_word_end():
    assert [requests.offset_in(text, end=7) for text in (None, "0", "7", "end")] == [0, 0, 7, 7]
    for bad in ("8", "-1", "x", "1.0", "²", "9" * 30):
        with pytest.raises(Unprocessable):
            requests.offset_in(bad, end=7)


def test_a_query_filters_by_all_it_names():
    wanted = requests.decode_query({"status": "running", "pty": "false", "tag": "a"}, Filter)
    assert wanted.fits(kept("proc_1", tag="a").info)
    assert not wanted.fits(kept("proc_1", tag="b").info)
    assert not wanted.fits(kept("proc_1", tag="a", exited_ms=1).info)
    for bad in ({"status": "dead"}, {"pty": "perhaps"}, {"colour": "red"}):
        with pytest.raises(Unprocessable):
            requests.decode_query(bad, Filter)


def test_a_shell_of_opencode_is_a_login_shell_in_its_directory():
    create = opencode_shapes.create(PtyCreate(args=["--norc"]), shell="/bin/bash", directory="/w")
    assert (create.command, create.args, create.cwd) == ("/bin/bash", ["--norc", "-l"], "/w")
    create = opencode_shapes.create(PtyCreate(command="top", cwd="/x"), shell="/bin/bash", directory="/w")
    assert (create.command, create.args, create.cwd) == ("top", [], "/x")


def test_shells_are_those_that_exist_and_the_preferred_one_is_posix():
    listed = "# shells\n/bin/sh\n/bin/bash\n/usr/bin/bash\n/usr/bin/fish\n/bin/gone\n"
    found = opencode_shapes.shells(listed, ["/bin/sh", "/bin/bash", "/usr/bin/bash", "/usr/bin/fish"])
    assert [(shell.path, shell.acceptable) for shell in found] == [
        ("/bin/sh", True),
        ("/bin/bash", True),
        ("/usr/bin/fish", False),
    ]
    assert opencode_shapes.preferred(None, found) == "/bin/bash"
    assert opencode_shapes.preferred("/usr/bin/fish", found) == "/bin/bash"
    assert opencode_shapes.preferred("/bin/zsh", found) == "/bin/zsh"
    assert opencode_shapes.preferred(None, []) == "sh"


def test_a_ticket_lets_in_once_for_its_terminal_and_not_for_long():
    tickets = Tickets()
    for ticket, process, now, good in (("a", "p", 1.0, True), ("b", "q", 1.0, False), ("c", "p", 61.0, False)):
        tickets.issue(ticket, "p", 0.0)
        assert tickets.use(ticket, process, now) is good
        assert not tickets.use(ticket, "p", 1.0), "twice"
