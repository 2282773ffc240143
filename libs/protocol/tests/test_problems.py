"""Claims about refusals as problem documents."""

import msgspec
import pytest
from valet_protocol import errors
from valet_protocol.errors import Problem, Refused, Unavailable, from_problem

KINDS = [kind for kind in Refused.__subclasses__() if kind.__module__ == errors.__name__]
"""Those of the protocol: a program may have refusals of its own, which go nowhere but to its own clients."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_survives_the_way_as_a_problem(kind: type[Refused]) -> None:
    wire = msgspec.json.encode(kind("some_code", "What to do.").problem())
    back = from_problem(msgspec.json.decode(wire, type=Problem))
    assert type(back) is kind
    assert (back.code, back.detail, str(back)) == ("some_code", "What to do.", "What to do.")


def test_every_refusal_has_a_status_of_its_own_and_is_in_the_tree() -> None:
    statuses = [kind.status for kind in KINDS]
    assert len(set(statuses)) == len(statuses)
    assert errors.__doc__
    for kind in KINDS:
        assert f"{kind.__name__} " in errors.__doc__
        assert str(kind.status) in errors.__doc__


def test_an_unknown_status_asks_to_try_again() -> None:
    assert isinstance(from_problem(Problem(title="?", status=599, code="c")), Unavailable)
