"""Claims about the way into a sandbox and about pictures: who gets a token, for what, and what is sent as what."""

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jwt
import pytest
from nats.aio.client import Client
from valet_api.images import media_type
from valet_api.models import listed
from valet_api.testing import FakeLedger, problem
from valet_protocol import codec, subjects
from valet_protocol.errors import Conflict, NotFound
from valet_protocol.events.machine import Tunnel, TunnelsChanged
from valet_protocol.ids import new_id
from valet_protocol.requests import Endpoint, GetEndpoint
from valet_service import object_store, rpc, sandbox_token
from valet_service.config_file import Objects, parse
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess

SECRET = b"s" * 32
"""As the api of these tests has it."""

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 2000


class Portal:
    """Says where sandboxes are."""

    def __init__(self) -> None:
        self.running: set[str] = set()

    async def endpoint(self, request: GetEndpoint) -> Endpoint:
        if request.session_id not in self.running:
            raise Conflict("sandbox_not_running", "The session's sandbox is not running.")
        if request.tunnel == "web":
            return Endpoint(url="http://127.0.0.1:4712")
        if request.tunnel is not None:
            raise NotFound("no_tunnel_address", "The tunnel has no address of its own.")
        return Endpoint(url="http://127.0.0.1:4711")


@pytest.fixture
async def portal(nc: Client) -> Portal:
    fake = Portal()
    await rpc.serve(nc, subjects.service("portal", GetEndpoint.method), GetEndpoint, fake.endpoint, queue="portal")
    await nc.flush()
    return fake


async def token_of(client: httpx.AsyncClient, session: str, **query: str) -> httpx.Response:
    return await client.get(f"/api/sessions/{session}/sandbox-token", params=query)


def claims(response: httpx.Response, session: str) -> dict[str, Any]:
    """What its token says, if that session's gateway would believe it."""
    return jwt.decode(response.json()["token"], sandbox_token.key(SECRET, session), algorithms=["HS256"])


async def test_a_token_opens_this_sessions_gateway_and_no_other(
    client: httpx.AsyncClient, portal: Portal, session: str
) -> None:
    portal.running.add(session)
    response = await token_of(client, session)
    assert response.status_code == 200, response.text
    said = claims(response, session)
    assert (said["sid"], said["svc"], said["sub"]) == (session, "*", (await client.get("/api/me")).json()["id"])
    assert 3500 < said["exp"] - time.time() <= 3600
    body = response.json()
    assert body["expires_at"].endswith("Z")
    assert response.headers["cache-control"] == "no-store"
    assert body["urls"] == {
        "gateway": "http://127.0.0.1:4711",
        "vscode": "http://127.0.0.1:4711/vscode/",
        "vnc": "http://127.0.0.1:4711/vnc/",
        "ttyd": "http://127.0.0.1:4711/ttyd/",
        "processes": "http://127.0.0.1:4711/v1/processes",
        "tunnels": {},
    }
    with pytest.raises(jwt.InvalidSignatureError):
        claims(response, new_id())


@pytest.mark.parametrize("service", ["vscode", "vnc", "ttyd", "t", "processes"])
async def test_a_token_is_for_what_was_asked(
    client: httpx.AsyncClient, portal: Portal, session: str, service: str
) -> None:
    portal.running.add(session)
    assert claims(await token_of(client, session, service=service), session)["svc"] == service


@pytest.mark.parametrize("service", ["opencode", "platform", "", "*,opencode"])
async def test_nobody_gets_a_token_for_what_is_the_platforms_own(
    client: httpx.AsyncClient, portal: Portal, session: str, service: str
) -> None:
    portal.running.add(session)
    problem(await token_of(client, session, service=service), 400)


async def test_collaborators_get_in_viewers_and_strangers_do_not(
    client: httpx.AsyncClient, other: httpx.AsyncClient, ledger: FakeLedger, portal: Portal, session: str
) -> None:
    portal.running.add(session)
    user = (await other.get("/api/me")).json()["id"]
    problem(await token_of(other, session), 404, "session_not_found")
    ledger.participants[session][user] = "viewer"
    problem(await token_of(other, session), 403, "role_too_low")
    ledger.participants[session][user] = "collaborator"
    response = await token_of(other, session)
    assert claims(response, session)["sub"] == user
    problem(await token_of(httpx.AsyncClient(base_url=client.base_url), session), 401)


async def test_a_token_says_up_to_where_the_log_was_known_when_its_users_role_was_looked_at(
    client: httpx.AsyncClient, portal: Portal, outbox: Outbox, session: str
) -> None:
    portal.running.add(session)
    before = claims(await token_of(client, session), session)["seq"]
    event = codec.new_event(TunnelsChanged(tunnels=[]), id=new_id(), session_id=session, now_ms=1, epoch=1)
    stored = await outbox.put(codec.encode(event, source="/test"))
    assert before < stored
    assert claims(await token_of(client, session), session)["seq"] == stored


async def test_nobody_gets_into_a_session_that_was_ended_while_its_sandbox_still_ends(
    client: httpx.AsyncClient, portal: Portal, session: str
) -> None:
    portal.running.add(session)
    assert (await client.delete(f"/api/sessions/{session}")).is_success
    problem(await token_of(client, session), 409, "sandbox_not_running")


async def test_without_a_running_sandbox_it_is_409_and_without_a_portal_503(
    client: httpx.AsyncClient, nc: Client, ledger: FakeLedger, session: str
) -> None:
    problem(await token_of(client, session), 503, "unavailable")
    subject = subjects.service("portal", GetEndpoint.method)
    await rpc.serve(nc, subject, GetEndpoint, Portal().endpoint, queue="portal")
    problem(await token_of(client, session), 409, "sandbox_not_running")


async def test_the_agents_tunnels_are_those_it_has_now(
    client: httpx.AsyncClient, portal: Portal, outbox: Outbox, session: str
) -> None:
    portal.running.add(session)
    for names in (["web", "old"], ["web", "a b"]):
        data = TunnelsChanged(tunnels=[Tunnel(name=name, port=3000) for name in names])
        event = codec.new_event(data, id=new_id(), session_id=session, now_ms=1, epoch=1)
        await outbox.put(codec.encode(event, source="/test"))
    assert (await token_of(client, session)).json()["urls"]["tunnels"] == {
        "web": "http://127.0.0.1:4712/",
        "a b": "http://127.0.0.1:4711/t/a%20b/",
    }


async def put(nats: BrokerProcess, nc: Client, name: str, content: bytes) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    await object_store.open_store(Objects(), nc=nc).put(name, pieces(), limit=1 << 20)


async def test_a_picture_is_shown_as_what_it_is_and_can_do_nothing_else(
    client: httpx.AsyncClient, other: httpx.AsyncClient, nats: BrokerProcess, nc: Client, ledger: FakeLedger,
    session: str,
) -> None:  # fmt: skip
    await put(nats, nc, f"sessions/{session}/images/one", PNG)
    at = f"/api/sessions/{session}/images/one"
    shown = await client.get(at)
    assert (shown.status_code, shown.content) == (200, PNG)
    assert shown.headers["content-type"] == "image/png"
    assert shown.headers["content-length"] == str(len(PNG))
    assert shown.headers["content-disposition"] == "inline"
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in shown.headers["content-security-policy"]
    problem(await other.get(at), 404, "session_not_found")
    ledger.participants[session][(await other.get("/api/me")).json()["id"]] = "viewer"
    assert (await other.get(at)).status_code == 200


async def test_a_fork_shows_the_pictures_of_its_source_to_who_sees_only_the_fork(
    client: httpx.AsyncClient, other: httpx.AsyncClient, nats: BrokerProcess, nc: Client, ledger: FakeLedger,
    session: str,
) -> None:  # fmt: skip
    await put(nats, nc, f"sessions/{session}/images/old", PNG)
    fork = (await client.post(f"/api/sessions/{session}/fork", json={})).json()["id"]
    at = f"/api/sessions/{fork}/images/old"
    problem(await client.get(at), 404, "image_not_found")  # the log of the fork does not say that it came with it
    ledger.images[fork, "old"] = session
    problem(await other.get(at), 404, "session_not_found")
    ledger.participants[fork][(await other.get("/api/me")).json()["id"]] = "viewer"
    assert (await other.get(at)).content == PNG
    problem(await other.get(f"/api/sessions/{session}/images/old"), 404, "session_not_found")


async def test_what_is_no_picture_comes_as_a_download(
    client: httpx.AsyncClient, nats: BrokerProcess, nc: Client, session: str
) -> None:
    await put(nats, nc, f"sessions/{session}/images/two", b"<svg xmlns='http://www.w3.org/2000/svg' onload='x()'/>")
    shown = await client.get(f"/api/sessions/{session}/images/two")
    assert shown.headers["content-type"] == "application/octet-stream"
    assert shown.headers["content-disposition"] == "attachment"


@pytest.mark.parametrize("id", ["none", "%00", "a.b>*", "%2e%2e%2fsaved%2fx"])
async def test_an_unknown_picture_is_404(client: httpx.AsyncClient, ledger: FakeLedger, session: str, id: str) -> None:
    problem(await client.get(f"/api/sessions/{session}/images/{id}"), 404)


def test_pictures_are_told_by_their_first_bytes() -> None:
    assert media_type(PNG) == "image/png"
    assert media_type(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert media_type(b"GIF89a") == "image/gif"
    assert media_type(b"RIFF\0\0\0\0WEBPVP8 ") == "image/webp"
    assert media_type(b"RIFF\0\0\0\0WAVE") == media_type(b"") == "application/octet-stream"


def test_a_provider_is_connected_when_there_is_a_key_or_it_needs_none() -> None:
    config = parse(
        '[providers.near]\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["a"]\n'
        '[providers.far]\nbase_url = "https://x.example/v1"\napi_key_env = "FAR_KEY"\nmodels = ["b"]\n'
    )
    near, far = listed(config, missing_keys={"far": "FAR_KEY"}).providers
    assert (near.connected, near.missing_variable) == (True, None)
    assert (far.connected, far.missing_variable) == (False, "FAR_KEY")


async def test_the_list_of_models_says_which_providers_are_connected(client: httpx.AsyncClient) -> None:
    found = (await client.get("/api/models")).json()["providers"]
    assert found == [{"id": "scripted", "any_model": False, "connected": True, "missing_variable": None}]
