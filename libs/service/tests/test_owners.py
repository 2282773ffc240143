"""Claims about whose session it is: a real broker, and a ledger that only knows owners."""

import pytest
from nats.aio.client import Client
from valet_protocol.errors import NotFound
from valet_service.owners import Owners
from valet_service.testing_sandbox import OwnerLedger


async def test_the_ledger_is_asked_once_for_each_session(nc: Client) -> None:
    ledger = OwnerLedger({"s1": "olga", "s2": "carl"})
    await ledger.serve(nc)
    owners = Owners(nc, keep=10)
    assert [(await owners.of(one)).user for one in ("s1", "s2", "s1", "s2")] == ["olga", "carl", "olga", "carl"]
    assert ledger.asked == ["s1", "s2"]


async def test_those_not_asked_for_longest_are_forgotten_first(nc: Client) -> None:
    ledger = OwnerLedger(dict.fromkeys(("s1", "s2", "s3"), "olga"))
    await ledger.serve(nc)
    owners = Owners(nc, keep=2)
    for one in ("s1", "s2", "s1", "s3", "s1", "s2"):
        await owners.of(one)
    assert ledger.asked == ["s1", "s2", "s3", "s2"]


async def test_a_session_that_is_not_there_is_not_remembered_as_such(nc: Client) -> None:
    ledger = OwnerLedger({})
    await ledger.serve(nc)
    owners = Owners(nc, keep=2)
    with pytest.raises(NotFound):
        await owners.of("s1")
    ledger.owners["s1"] = "olga"
    assert (await owners.of("s1")).user == "olga"
