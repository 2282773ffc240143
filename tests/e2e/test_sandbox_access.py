"""From outside into a sandbox, the whole way: a token of the API, the portal's port, the gateway, what is behind it."""

import contextlib
import json
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from harness import limits
from harness.platform import Platform
from harness.waiting import until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol


@pytest.fixture(scope="module")
def session(platform: Platform) -> str:
    """A session whose sandbox stays for all tests here, booted so far that it has its processes."""
    made = platform.create(title="seen from outside")["id"]
    way = way_in(platform, made)

    def serves() -> bool:
        return httpx.get(way["urls"]["processes"], params={"token": way["token"]}).status_code == 200

    until(serves, limits.TURN, "the process service")
    return made


def way_in(platform: Platform, session: str, **query: str) -> dict[str, Any]:
    """Token and addresses, as soon as the sandbox's gateway serves."""

    def asked() -> dict[str, Any] | None:
        response = platform.request("GET", f"/api/sessions/{session}/sandbox-token", params=query)
        if response.status_code == 409:
            assert response.json()["code"] == "sandbox_not_running"
            return None
        assert response.status_code == 200, response.text
        return response.json()

    return until(asked, limits.TURN, "the sandbox's gateway")


@pytest.fixture
def way(platform: Platform, session: str) -> dict[str, Any]:
    return way_in(platform, session)


@pytest.fixture
def inside(way: dict[str, Any]) -> Iterator[httpx.Client]:
    """A program that has the token."""
    headers = {"Authorization": f"Bearer {way['token']}"}
    with httpx.Client(base_url=way["urls"]["gateway"], headers=headers, timeout=limits.REQUEST) as client:
        yield client


def test_a_terminal_in_a_browser_reaches_a_shell_in_the_workspace(way: dict[str, Any]) -> None:
    page = httpx.get(way["urls"]["ttyd"], params={"token": way["token"]}, follow_redirects=True)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert way["token"] not in page.text
    url = way["urls"]["ttyd"].replace("http", "ws", 1) + f"ws?token={way['token']}"
    with connect(url, subprotocols=[Subprotocol("tty")], open_timeout=limits.REQUEST, proxy=None) as terminal:
        assert terminal.subprotocol == "tty"
        terminal.send(json.dumps({"AuthToken": "", "columns": 80, "rows": 24}).encode())
        terminal.send(b"0echo from-$((40 + 2))-$(pwd)\r")
        seen = b""
        while b"from-42-/workspace" not in seen:
            message = terminal.recv(limits.REQUEST)
            assert isinstance(message, bytes)
            seen += message[1:] if message[:1] == b"0" else b""


def test_a_program_is_started_and_its_output_read_by_the_process_api(inside: httpx.Client) -> None:
    script = "echo to-out; echo to-err >&2; test -e /run/valet/runner.json || exit 5"
    made = inside.post("/v1/processes", json={"command": "sh", "args": ["-c", script]})
    assert made.status_code == 201, made.text
    at = f"/v1/processes/{made.json()['id']}"
    until(lambda: inside.get(at).json()["status"] == "exited", limits.REQUEST, "the end of the program")
    assert inside.get(at).json()["exit_code"] == 5
    assert sorted(inside.get(f"{at}/output").text.split()) == ["to-err", "to-out"]


def test_the_command_line_runs_programs_and_passes_their_status_on(platform: Platform, session: str, way: Any) -> None:
    # what the harness adds behind the command goes to `sh`, which leaves it alone
    known = {"VALET_URL": platform.url, "VALET_TOKEN": platform.token}
    words = ("exec", session, "--", "sh", "-c", "pwd; exit 7")
    done = platform.cli(*words, timeout=limits.TURN, **known)
    assert (done.returncode, done.stdout) == (7, "/workspace\n"), done.stderr
    shown = platform.cli("open", session, "terminal")
    assert shown.stdout.startswith(way["urls"]["ttyd"] + "?token="), shown.stderr


def test_a_tunnel_leads_to_a_server_in_the_sandbox(
    platform: Platform, session: str, way: dict[str, Any], inside: httpx.Client
) -> None:
    script = "mkdir site && echo hello-from-inside >site/index.html && exec python3 -m http.server 8123 -d site"
    started = inside.post("/v1/processes", json={"command": "sh", "args": ["-c", script], "tag": "site"})
    assert started.status_code == 201, started.text

    def register() -> bool:
        response = inside.post("/api/tunnels", json={"name": "site", "port": 8123})
        assert response.is_success or response.status_code in (502, 503), response.text
        return response.is_success  # the runner answers this, and it may still be cloning

    until(register, limits.TURN, "the tunnel")

    def tunnel() -> str | None:
        return way_in(platform, session)["urls"]["tunnels"].get("site")

    url = until(tunnel, limits.REQUEST, "the tunnel in the session's log")
    token = way_in(platform, session, service="t")["token"]

    def page() -> str | None:
        response = httpx.get(url, params={"token": token}, follow_redirects=True)
        return response.text if response.status_code == 200 else None

    assert until(page, limits.REQUEST, "the server behind the tunnel") == "hello-from-inside\n"
    inside.delete("/v1/processes/site")


def test_nobody_else_gets_in(platform: Platform, session: str, way: dict[str, Any]) -> None:
    made = platform.request("POST", "/api/users", json={"name": f"u{uuid.uuid4().hex[:12]}"}).json()
    at = f"/api/sessions/{session}/sandbox-token"
    with platform.client(made["token"]) as stranger:
        assert stranger.get(at).status_code == 404
        role = platform.request("PUT", f"/api/sessions/{session}/participants/{made['id']}", json={"role": "viewer"})
        assert role.status_code == 200
        assert stranger.get(at).status_code == 403
    head, body, signature = way["token"].split(".")
    url = way["urls"]["processes"]
    for token in (f"{head}.{body}.{signature[::-1]}", "none", platform.token, "x.y.z"):
        for response in (
            httpx.get(url, headers={"Authorization": f"Bearer {token}"}),
            httpx.get(url, params={"token": token}),
        ):
            assert response.status_code == 401, token
            assert token not in response.text or token == "none"
    vnc = way_in(platform, session, service="vnc")["token"]
    assert httpx.get(url, params={"token": vnc}).status_code == 401
    assert httpx.get(way["urls"]["gateway"] + "/health").json()["healthy"] is True


@contextlib.contextmanager
def terminal(way: dict[str, Any]) -> Iterator[ClientConnection]:
    """A page with a terminal, which has shown something."""
    url = way["urls"]["ttyd"].replace("http", "ws", 1) + f"ws?token={way['token']}"
    with connect(url, subprotocols=[Subprotocol("tty")], open_timeout=limits.REQUEST, proxy=None) as page:
        page.send(json.dumps({"AuthToken": "", "columns": 80, "rows": 24}).encode())
        assert page.recv(limits.REQUEST)
        yield page


def put_out(page: ClientConnection) -> int | None:
    """Wait until a page is; gives the code it is told."""
    try:
        while True:
            page.recv(limits.REQUEST)
    except ConnectionClosed:
        return page.close_code


def test_whoever_may_no_longer_write_is_out_at_once_and_in_again_with_a_new_token(
    platform: Platform, session: str, way: dict[str, Any]
) -> None:
    made = platform.request("POST", "/api/users", json={"name": f"u{uuid.uuid4().hex[:12]}"}).json()
    at = f"/api/sessions/{session}"
    theirs = f"{at}/participants/{made['id']}"

    def role(role: str) -> None:
        assert platform.request("PUT", theirs, json={"role": role}).status_code == 200

    def link() -> str:
        link = platform.request("POST", f"{at}/links", json={"role": "collaborator"}).json()
        assert client.post("/api/join", json={"token": link["token"]}).status_code == 200
        return f"{at}/links/{link['link_id']}"

    def status(**how: Any) -> int:
        return httpx.get(way["urls"]["processes"], timeout=limits.REQUEST, **how).status_code

    old: list[str] = []
    with platform.client(made["token"]) as client, terminal(way) as mine:
        for let_in, put_away in (
            (lambda: role("collaborator"), lambda _: platform.request("DELETE", theirs)),
            (lambda: role("collaborator"), lambda _: role("viewer")),
            (lambda: platform.request("DELETE", theirs) and link(), lambda made: platform.request("DELETE", made)),
        ):
            how = let_in()
            given = client.get(f"{at}/sandbox-token").json()
            browser = httpx.Cookies(httpx.get(given["urls"]["processes"], params={"token": given["token"]}).cookies)
            assert browser
            assert [status(params={"token": token}) for token in [*old, given["token"]]] == [401] * len(old) + [200]
            assert status(cookies=browser) == 200
            with terminal(given) as one, terminal(given) as another:
                put_away(how)
                assert [put_out(one), put_out(another)] == [1008, 1008]
            assert (status(params={"token": given["token"]}), status(cookies=browser)) == (401, 401)
            assert client.get(f"{at}/sandbox-token").status_code in (403, 404)
            old.append(given["token"])
        mine.send(b"0echo owner-$((40 + 2))\r")
        seen = b""
        while b"owner-42" not in seen:
            message = mine.recv(limits.REQUEST)
            assert isinstance(message, bytes)
            seen += message[1:]


def test_a_killed_portal_is_back_at_the_same_address(platform: Platform, way: dict[str, Any]) -> None:
    portal = platform.find("valet_sandbox_controller.portal")
    portal.kill()
    psutil.wait_procs([portal], limits.STOP)

    def healthy() -> bool:
        try:
            return httpx.get(way["urls"]["gateway"] + "/health", timeout=limits.REQUEST).status_code == 200
        except httpx.TransportError:
            return False

    until(healthy, limits.READY, "the same port")
    assert urlsplit(way["urls"]["gateway"]).hostname == "127.0.0.1"


def test_nothing_of_a_session_that_was_ended_can_be_reached_at_its_port(
    platform: Platform, session: str, way: dict[str, Any]
) -> None:
    """The last here: it ends the session of all the others."""
    with terminal(way) as page:
        assert platform.request("DELETE", f"/api/sessions/{session}").is_success
        put_out(page)

    def gone() -> bool:
        try:
            return httpx.get(way["urls"]["gateway"] + "/health", timeout=limits.REQUEST).status_code >= 500
        except httpx.TransportError:
            return True

    until(gone, limits.REQUEST, "the end of the sandbox")
    assert platform.request("GET", f"/api/sessions/{session}/sandbox-token").status_code == 409
