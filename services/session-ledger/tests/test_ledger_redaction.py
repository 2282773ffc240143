"""Claims about what an export does not carry. Pure."""

import json

import pytest
from valet_protocol.codec import decode, encode, new_event
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_session_ledger.redact import for_export

LINK = facts.ShareLinkCreated(link_id="l", token_sha256="f" * 64, role="viewer", by="ada")
PROMPT = facts.PromptAccepted(
    prompt_id="p", content="Hi", author="bob", author_name="Bob", author_email="bob@example.org", model="m/x"
)
TURN = facts.TurnDispatched(
    turn_id="t", prompt_id="p", content="Hi", author="bob", author_email="bob@example.org", model="m/x"
)


def _wrapped(data: Data, kind: str) -> facts.EventImported:
    inner = json.loads(encode(new_event(data, id="i", session_id="S", now_ms=1), source="/s").payload)["data"]
    return facts.EventImported(type=kind, version=2, time="2026-01-01T00:00:00Z", source_seq=1, data=inner)


def _exported(data: Data, user: str) -> tuple[bytes, bytes, Data]:
    event = new_event(data, id="e", session_id="S", now_ms=1)
    stored = encode(event, source="/session-ledger").payload
    out = for_export(event.type, stored, user=user, is_owner=user == "ada")
    return stored, out, decode(out).data


@pytest.mark.parametrize("user", ["ada", "bob", "vic"])
@pytest.mark.parametrize("data", [LINK, _wrapped(LINK, "fact.share_link_created")])
def test_no_export_has_the_digest_of_a_share_links_token(data: Data, user: str) -> None:
    stored, out, again = _exported(data, user)
    assert b"ffff" in stored
    assert b"ffff" not in out
    assert type(again) is type(data)


@pytest.mark.parametrize("data", [PROMPT, TURN, _wrapped(PROMPT, "fact.prompt_accepted")])
def test_an_address_is_in_the_exports_of_its_own_person_and_of_the_owner_only(data: Data) -> None:
    for user, seen in (("ada", True), ("bob", True), ("vic", False)):
        stored, out, again = _exported(data, user)
        assert (b"bob@example.org" in out) is seen
        assert (out == stored) is seen
        assert type(again) is type(data)


def test_all_else_leaves_byte_for_byte() -> None:
    for data in (facts.SessionTerminated(by="bob"), facts.SessionRenamed(title="a@b.org", by="bob")):
        stored, out, _ = _exported(data, "vic")
        assert out == stored
    assert for_export("fact.prompt_accepted", b"not an event", user="vic", is_owner=False) == b"not an event"
