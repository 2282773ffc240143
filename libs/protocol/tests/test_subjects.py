"""Claims about subjects: what is built can be taken apart, and filters catch what they say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from valet_protocol import subjects
from valet_protocol.catalogue import EVENTS, EventType
from valet_protocol.errors import BadSubject
from valet_protocol.ids import ulid

SESSIONS = st.builds(ulid, st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
SESSION = "01JABCDEFGHJKMNPQRSTVWXYZ0"


def catches(subject_filter: str, subject: str) -> bool:
    """NATS's own matching of a subject against a filter."""
    wanted, tokens = subject_filter.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(tokens) >= len(wanted) and all(
            one in ("*", two) for one, two in zip(wanted[:-1], tokens, strict=False)
        )
    return len(tokens) == len(wanted) and all(one in ("*", two) for one, two in zip(wanted, tokens, strict=True))


@given(SESSIONS, st.sampled_from(EVENTS))
def test_parsing_is_the_inverse_of_building(session_id: str, line: EventType) -> None:
    parts = subjects.parse(subjects.event(session_id, line.source, line.name))
    assert parts == subjects.SubjectParts(
        shard=subjects.shard_of(session_id), session_id=session_id, source=line.source, event=line.name
    )


@given(SESSIONS)
def test_a_session_is_in_one_shard_for_ever(session_id: str) -> None:
    assert 0 <= subjects.shard_of(session_id) < subjects.SHARDS


def test_the_shard_function_is_fixed() -> None:
    """A change of it would orphan every stored session."""
    assert [subjects.shard_of(name) for name in ("", "a", SESSION)] == [0, 3, 14]


@given(SESSIONS, SESSIONS)
def test_filters_catch_their_own_and_nothing_else(one: str, other: str) -> None:
    fact = subjects.event(one, "fact", "prompt_accepted")
    chunk = subjects.delta(one, "text", "msg_1")
    for subject in (fact, chunk):
        assert catches(subjects.session(one), subject)
        assert catches(subjects.shard(subjects.shard_of(one)), subject)
    assert catches(subjects.source(one, "fact"), fact)
    assert not catches(subjects.source(one, "fact"), chunk)
    assert catches(subjects.every("fact", "prompt_accepted"), fact)
    assert not catches(subjects.every("fact", "turn_dispatched"), fact)
    assert catches(subjects.every_of("fact"), fact)
    assert catches(subjects.every_of("fact", subjects.shard_of(one)), fact)
    assert not catches(subjects.every_of("fact"), chunk)
    assert catches(subjects.deltas_of(one, "msg_1"), chunk)
    assert not catches(subjects.deltas_of(one, "msg_2"), chunk)
    assert not catches(subjects.deltas_of(one, "msg_1"), fact)
    if one != other:
        assert not catches(subjects.session(other), fact)


def test_a_delta_parses_to_its_kind() -> None:
    parts = subjects.parse(subjects.delta(SESSION, "reasoning", "msg_1"))
    assert (parts.session_id, parts.source, parts.event) == (SESSION, "delta", "reasoning")


@pytest.mark.parametrize("subject", ["", "session", "session.1.x.fact", "live.1.x.fact.y", "session.².x.fact.y"])
def test_other_subjects_are_refused(subject: str) -> None:
    with pytest.raises(BadSubject):
        subjects.parse(subject)


def test_a_sandbox_may_ask_for_its_own_session_only() -> None:
    assert SESSION in subjects.sandbox_request(SESSION, "attach_runner").split(".")
    assert SESSION in subjects.runner_consumer(SESSION)
    assert SESSION in subjects.runner_inbox(SESSION)
