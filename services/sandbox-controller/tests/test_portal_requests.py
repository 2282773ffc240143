"""Claims about reading portal requests and choosing a model's route, without a socket."""

import base64

import pytest
from valet_sandbox_controller import portal_token
from valet_sandbox_controller.errors import BadPortalRequest
from valet_sandbox_controller.portal import heads, routes
from valet_service import config_file

SECRET = b"s" * 32
CONFIG = config_file.parse(
    """
    [providers.ollama]
    base_url = "http://127.0.0.1:11434/v1/"
    models = ["llama"]

    [providers.hosted]
    base_url = "https://models.example/v1"
    api_key_env = "HOSTED_KEY"
    models = ["big"]
    """
)


def _table(environ: dict[str, str]) -> dict[str, routes.Route]:
    return routes.table(config_file.with_environment(CONFIG, environ), environ)


def test_a_token_is_read_from_bearer_and_from_basic() -> None:
    basic = base64.b64encode(b"valet:TOKEN").decode()
    for value in ("Bearer TOKEN", f"Basic {basic}", f"basic {basic}"):
        head = heads.parse(f"CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: {value}".encode())
        assert heads.proxy_token(head) == "TOKEN"


def test_a_request_without_a_token_is_asked_for_one() -> None:
    with pytest.raises(BadPortalRequest) as caught:
        heads.proxy_token(heads.parse(b"CONNECT a:1 HTTP/1.1"))
    assert caught.value.status == 407
    assert b"Proxy-Authenticate: Basic" in heads.refusal(407, "x")


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:99999", "[::1:80"])
def test_a_target_that_is_not_host_and_port_is_refused(text: str) -> None:
    with pytest.raises(BadPortalRequest):
        heads.authority(text)


def test_the_portals_token_is_not_passed_on_by_the_proxy() -> None:
    head = heads.parse(
        b"GET http://h.test:81/a?b=c HTTP/1.1\r\nHost: h.test:81\r\nProxy-Authorization: Bearer T\r\nX-A: 1"
    )
    where, sent = heads.split_absolute(head)
    assert where == heads.Authority("h.test", 81)
    assert sent == b"GET /a?b=c HTTP/1.1\r\nHost: h.test:81\r\nX-A: 1\r\nConnection: close\r\n\r\n"


def test_a_token_for_something_else_or_of_another_installation_is_refused() -> None:
    good = portal_token.mint(SECRET, "S", 3, 4_000_000_000)
    assert portal_token.verify(SECRET, good) == portal_token.Bearer(session_id="S", epoch=3)
    for secret, token in ((b"x" * 32, good), (SECRET, portal_token.mint(SECRET, "S", 3, 1)), (SECRET, "junk")):
        with pytest.raises(BadPortalRequest):
            portal_token.verify(secret, token)


def test_a_file_provider_goes_to_its_base_url_with_a_bearer_key() -> None:
    found = routes.destination(_table({"HOSTED_KEY": "k"}), "/model/hosted/chat/completions?x=1")
    assert found.url == "https://models.example/v1/chat/completions?x=1"
    assert (found.route.key_header, found.route.key, found.route.direct) == ("authorization", "k", False)


def test_a_server_on_the_hosts_loopback_is_reached_past_any_proxy() -> None:
    found = routes.destination(_table({}), "/model/ollama/chat/completions")
    assert found.url == "http://127.0.0.1:11434/v1/chat/completions"
    assert found.route.direct


def test_each_builtin_provider_gets_its_key_in_its_own_field() -> None:
    table = _table({"ANTHROPIC_API_KEY": "a", "GEMINI_API_KEY": "g", "OPENAI_API_KEY": "o"})
    assert {name: (table[name].key_header, table[name].key) for name in ("anthropic", "google", "openai")} == {
        "anthropic": ("x-api-key", "a"),
        "google": ("x-goog-api-key", "g"),
        "openai": ("authorization", "o"),
    }
    assert routes.destination(table, "/model/anthropic/messages").url == "https://api.anthropic.com/v1/messages"


def test_a_missing_key_names_its_variable() -> None:
    with pytest.raises(BadPortalRequest, match="HOSTED_KEY") as caught:
        routes.destination(_table({}), "/model/hosted/chat/completions")
    assert caught.value.status == 401


@pytest.mark.parametrize("target", ["/", "/model", "/model/nobody/x", "/model/hosted/../../x", "/other/hosted/x"])
def test_what_is_no_route_is_refused(target: str) -> None:
    with pytest.raises(BadPortalRequest):
        routes.destination(_table({"HOSTED_KEY": "k"}), target)
