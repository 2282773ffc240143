"""Claims about events as bytes: every type survives the way there and back, old and unknown ones included."""

import json
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from valet_protocol import codec, subjects
from valet_protocol.catalogue import BY_TYPE, EVENTS, EventType, type_of
from valet_protocol.errors import BadEvent
from valet_protocol.events import delta, facts
from valet_protocol.events.envelope import Event, Unknown
from valet_protocol.upcasts import UPCASTS

SESSION = "01JABCDEFGHJKMNPQRSTVWXYZ0"
# JSON cannot carry half a surrogate pair, and times are of this century
_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
_TIMES = st.integers(min_value=0, max_value=4_102_444_800_000)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type, as far as the catalogue uses types."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin is list:
        return st.lists(values_of(inner[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(_TEXT, st.none() | st.booleans() | st.integers(-9, 9) | _TEXT, max_size=3)
    if inner:
        return st.one_of([values_of(one) for one in inner])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs_of(kind)
    return {
        str: _TEXT,
        int: st.integers(min_value=-(2**53), max_value=2**53),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        type(None): st.none(),
    }[kind]


def structs_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{field.name: values_of(field.type) for field in msgspec.structs.fields(kind)})


@pytest.mark.parametrize("line", EVENTS, ids=[line.type for line in EVENTS])
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_every_event_survives_the_way_to_the_log_and_back(line: EventType, data: st.DataObject) -> None:
    event = Event(
        id="01JE",
        type=line.type,
        session_id=SESSION,
        time_ms=data.draw(_TIMES),
        turn=data.draw(st.none() | _TEXT),
        epoch=data.draw(st.none() | st.integers(1, 99)),
        data=data.draw(structs_of(line.data)),
    )
    stored = codec.encode(event, source="/test")
    parts = subjects.parse(stored.subject)
    assert (parts.session_id, f"{parts.source}.{parts.event}", stored.msg_id) == (SESSION, line.type, event.id)
    assert codec.decode(stored.payload, seq=7) == msgspec.structs.replace(event, seq=7)


def test_the_stored_form_is_a_cloud_event() -> None:
    event = codec.new_event(facts.SessionTerminated(by="u"), id="01JE", session_id=SESSION, now_ms=1)
    assert json.loads(codec.encode(event, source="/session-ledger").payload) == {
        "specversion": "1.0",
        "id": "01JE",
        "source": "/session-ledger",
        "type": "fact.session_terminated",
        "subject": SESSION,
        "time": "1970-01-01T00:00:00.001Z",
        "dataversion": 1,
        "data": {"by": "u"},
    }


def test_a_delta_is_stored_under_its_message() -> None:
    chunk = delta.Delta(message_id="m1", part_id="p1", offset=0, text="hi")
    event = Event(id="01JE", type="delta.text", session_id=SESSION, time_ms=0, data=chunk)
    assert codec.encode(event, source="/t").subject == subjects.delta(SESSION, "text", "m1")


def stored(type: str, data: object, dataversion: int = 1) -> bytes:
    return json.dumps(
        {
            "specversion": "1.0",
            "id": "01JE",
            "source": "/elsewhere",
            "type": type,
            "subject": SESSION,
            "time": "2026-01-02T03:04:05.678Z",
            "dataversion": dataversion,
            "data": data,
        }
    ).encode()


def test_an_unknown_type_is_passed_on() -> None:
    event = codec.decode(stored("agent.dreamt", {"of": "sheep"}), seq=3)
    assert isinstance(event.data, Unknown)
    assert json.loads(bytes(event.data.raw)) == {"of": "sheep"}
    assert (event.type, event.seq) == ("agent.dreamt", 3)


def test_a_newer_version_than_ours_is_passed_on() -> None:
    event = codec.decode(stored("fact.session_terminated", {"by": ["u"]}, dataversion=2))
    assert isinstance(event.data, Unknown)


def test_a_field_we_do_not_know_is_not_in_the_way() -> None:
    event = codec.decode(stored("fact.session_terminated", {"by": "u", "why": "enough"}))
    assert event.data == facts.SessionTerminated(by="u")


def test_the_first_version_of_prompt_accepted_is_read_as_the_second() -> None:
    first = {"prompt_id": "p", "text": "fix it", "author": "u", "model": "a/b"}
    event = codec.decode(stored("fact.prompt_accepted", first))
    assert event.data == facts.PromptAccepted(prompt_id="p", content="fix it", mode="queue", author="u", model="a/b")


def test_every_older_version_has_an_upcast() -> None:
    needed = {(line.type, version) for line in EVENTS for version in range(1, line.version)}
    assert set(UPCASTS) == needed


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        stored("fact.session_terminated", {"by": 7}),
        stored("fact.session_terminated", {}),
        stored("fact.session_terminated", {"by": "u"}, dataversion=0),
        stored("fact.prompt_accepted", ["not", "an", "object"]),
        stored("fact.session_terminated", {"by": "u"}).replace(b"05.678Z", b"05.678"),
        stored("fact.session_terminated", {"by": "u"}).replace(b"2026-01-02T", b"yesterday "),
    ],
)
def test_what_is_not_an_event_is_refused(payload: bytes) -> None:
    with pytest.raises(BadEvent):
        codec.decode(payload)


@given(_TIMES)
def test_times_survive_to_the_millisecond(time_ms: int) -> None:
    text = codec.rfc3339(time_ms)
    assert text.endswith("Z")
    assert len(text) == len("2026-01-02T03:04:05.678Z")
    assert codec.from_rfc3339(text) == time_ms


def test_a_time_with_another_offset_is_taken() -> None:
    assert codec.from_rfc3339("1970-01-01T01:00:00+01:00") == 0


def test_the_sequence_is_put_in_front_without_touching_the_event() -> None:
    payload = stored("agent.dreamt", {"of": "sheep"})
    assert json.loads(codec.with_seq(payload, 12)) == {"seq": 12, **json.loads(payload)}
    assert codec.with_seq(payload, 12).startswith(b'{"seq":12,')


def test_every_struct_but_the_deltas_belongs_to_one_type() -> None:
    own = [line.data for line in EVENTS if line.source != "delta"]
    assert len(set(own)) == len(own)
    assert len(BY_TYPE) == len(EVENTS)
    assert type_of(facts.SessionTerminated(by="u")).type == "fact.session_terminated"
