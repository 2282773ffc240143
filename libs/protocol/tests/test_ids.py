"""Claims about identifiers."""

from hypothesis import given
from hypothesis import strategies as st
from valet_protocol.ids import derived_id, is_ulid, new_id, ulid

MOMENTS = st.integers(0, 2**48 - 1)
RANDOM = st.binary(min_size=10, max_size=10)


@given(MOMENTS, RANDOM, MOMENTS, RANDOM)
def test_ulids_sort_as_their_moments(one: int, one_random: bytes, other: int, other_random: bytes) -> None:
    first, second = ulid(one, one_random), ulid(other, other_random)
    assert is_ulid(first)
    assert (first < second) == ((one, one_random) < (other, other_random))


def test_a_ulid_is_the_one_of_the_specification() -> None:
    assert ulid(1_469_918_176_385, bytes(10)) == "01ARYZ6S410000000000000000"
    assert ulid(2**48 - 1, b"\xff" * 10) == "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"


def test_new_ids_differ() -> None:
    assert len({new_id() for _ in range(1_000)}) == 1_000


@given(st.lists(st.text() | st.integers(), min_size=1))
def test_a_derived_id_is_shaped_like_a_ulid(parts: list[str | int]) -> None:
    assert is_ulid(derived_id(*parts))
    assert derived_id(*parts) == derived_id(*parts)


def test_derived_ids_are_fixed() -> None:
    """A change would make a decision taken before an upgrade happen again after it."""
    assert derived_id("session", "turn", 1) == "27GYYG9T0337EHSZ9E3P6A4GQ4"


def test_where_one_part_ends_matters() -> None:
    assert derived_id("ab", "c") != derived_id("a", "bc")
    assert derived_id("a", 1) == derived_id("a", "1")


def test_other_texts_are_not_ulids() -> None:
    for text in ("", "01J", "8" + "0" * 25, "0" * 27, "0" * 25 + "U", "0" * 25 + "a", "0" * 26 + "\n"):
        assert not is_ulid(text)
