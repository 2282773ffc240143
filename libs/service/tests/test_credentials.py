"""Claims about keys, JWTs and permissions made by hand. The server's view of them: `infra/local/tests`."""

# nkeys carries no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

import base64
import json

import nkeys
import pytest
from valet_protocol import subjects
from valet_protocol.tools import TOOLS
from valet_service import credentials

ACCOUNT = credentials.key_from_entropy("account", b"a" * 32)
SESSION = "01JABCDEFGHJKMNPQRSTVWXYZ0"


def _claims(token: str) -> dict[str, object]:
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def test_a_key_comes_back_from_its_seed() -> None:
    assert credentials.key_from_seed(ACCOUNT.seed + "\n") == ACCOUNT
    assert ACCOUNT.public.startswith("A")
    assert credentials.key_from_entropy("operator", b"o" * 32).public.startswith("O")
    assert credentials.key_from_entropy("user", b"u" * 32).public.startswith("U")


def test_the_same_inputs_make_the_same_credentials() -> None:
    permissions = credentials.runner_permissions(SESSION)
    one = credentials.creds(ACCOUNT, "runner", permissions, entropy=b"e" * 32, now=1_000)
    assert one == credentials.creds(ACCOUNT, "runner", permissions, entropy=b"e" * 32, now=1_000)
    assert one != credentials.creds(ACCOUNT, "runner", permissions, entropy=b"f" * 32, now=1_000)


def test_a_token_is_signed_by_the_account_and_expires_when_told() -> None:
    token = credentials.user_jwt(ACCOUNT, "UABC", "n", credentials.Permissions(), now=10, expires=20)
    signed, _, signature = token.rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    assert nkeys.from_seed(bytearray(ACCOUNT.seed.encode())).verify(signed.encode(), raw)
    assert (_claims(token)["exp"], _claims(token)["iss"]) == (20, ACCOUNT.public)


def test_no_permission_is_said_to_the_server_as_a_denial() -> None:
    nats = _claims(credentials.user_jwt(ACCOUNT, "U", "n", credentials.Permissions(), now=1))["nats"]
    assert isinstance(nats, dict)
    assert nats["pub"] == {"deny": [">"]}
    assert nats["sub"] == {"deny": [">"]}


def test_every_permission_of_a_runner_names_its_session() -> None:
    permissions = credentials.runner_permissions(SESSION)
    assert all(SESSION in subject for subject in permissions.publish + permissions.subscribe)
    assert subjects.source(SESSION, "agent") in permissions.publish
    assert subjects.source(SESSION, "fact") not in permissions.publish


@pytest.mark.parametrize("source", ["fact", "sandbox", "agent", "delta"])
def test_a_source_has_one_writer_among_the_services(source: str) -> None:
    writers = [
        service
        for service in (*credentials.SERVICES, credentials.SUBSCRIBER)
        if f"session.*.*.{source}.>" in credentials.service_permissions(service).publish
    ]
    assert writers == {"fact": ["session-ledger"], "sandbox": ["sandbox-controller"]}.get(source, [])


def test_no_service_may_publish_to_every_session_subject() -> None:
    for service in (*credentials.SERVICES, credentials.SUBSCRIBER):
        for subject in credentials.service_permissions(service).publish:
            assert not subject.startswith((">", "*", "session.>", "session.*.*.>", "session.*.>"))


@pytest.mark.parametrize(
    ("service", "category"), [("knowledge", "memory"), ("automation", "tasks"), ("event-bus", "notifications")]
)
def test_a_service_hears_every_tool_it_answers_and_no_other(service: str, category: str) -> None:
    declared = {subjects.sandbox_request("*", tool.method) for tool in TOOLS if tool.category == category}
    heard = {one for one in credentials.service_permissions(service).subscribe if one.startswith("rpc.session.")}
    assert heard == declared
