"""Claims about what the gateway decides, without a network."""

import time

import pytest
from valet_gateway import admission, cookies, headers, origins, provider_documents, queries, routes, targets, tunnels
from valet_gateway import ttyd_protocol as ttyd
from valet_gateway.admission import Access, Door, Shown
from valet_gateway.cookies import Grant
from valet_gateway.errors import AgentsOnly, BadTarget, HeadRefused, MethodRefused, NotAdmitted
from valet_gateway.headers import Onward
from valet_gateway.targets import Target
from valet_gateway.testing import KEY, SESSION, TOOLS_TOKEN, token
from valet_protocol.errors import Forbidden, NotFound, Refused, TooMany, Unprocessable
from valet_protocol.events.machine import Tunnel
from valet_service.sandbox_token import Service

DOOR = Door(session_id=SESSION, key=KEY, tools_token=TOOLS_TOKEN)
ALL = Access(seq=0, since={"usr_1": 0})
APP = Target(port=3000)
ONWARD = Onward(host="box.example", prefix="/t/app", secure=False, peer="10.0.0.1", subject="usr_1")

# -- routes


@pytest.mark.parametrize(
    ("path", "kind", "service", "passed_on"),
    [
        ("/health", "health", None, "/health"),
        ("/vscode/a/b", "service", "vscode", "/a/b"),
        ("/vscode", "service", "vscode", ""),
        ("/t/app/x%2Fy", "tunnel", "t", "/x%2Fy"),
        ("/t/app//x", "tunnel", "t", "//x"),
        ("/t/app", "tunnel", "t", ""),
        ("/v1/processes", "processes", "processes", "/v1/processes"),
        ("/v1/processes/p/connect", "processes", "processes", "/v1/processes/p/connect"),
        ("/v1/events", "processes", "processes", "/v1/events"),
        ("/pty/pty_1/connect", "processes", "processes", "/pty/pty_1/connect"),
        ("/api/tunnels/app", "tools", "t", "/api/tunnels/app"),
        ("/api/tasks", "tools", None, "/api/tasks"),
        ("/api/tunnelsx", "tools", None, "/api/tunnelsx"),
        ("/mcp", "tools", None, "/mcp"),
        ("/opencode/session", "opencode", "opencode", "/session"),
    ],
)
def test_a_path_has_one_route(path: str, kind: str, service: str | None, passed_on: str) -> None:
    route = routes.find(path)
    assert (route.kind, route.service, route.path) == (kind, service, passed_on)


@pytest.mark.parametrize(
    "path", ["/", "/vscodex/", "/v1/processesx", "/v1/eventsx", "/ptyx", "/t/", "/t//x", "/t/.x/", "/t/a%2Fb/", "//x"]
)
def test_what_is_no_route_is_not_found(path: str) -> None:
    with pytest.raises(NotFound):
        routes.find(path)


@pytest.mark.parametrize(
    "path",
    [
        "/t/app/../../v1/processes",
        "/t/app/%2e%2e/x",
        "/t/app/.%2E/x",
        "/t/app/..%2fx",
        "/t/app/..%5cx",
        "/t/app/%252e%252e/x",
        "/t/app/..;/x",
        "/t/app/./x",
        "/t/app/\\..\\x",
        "/t/app/%00",
        "/t/../t/app/",
        "http://127.0.0.1:5432/",
        "x",
        "",
        "*",
        "/t/app/ä",
        "/t/app/a b",
        "/t/app/#x",
    ],
)
def test_a_path_that_leaves_its_folder_or_is_odd_is_refused(path: str) -> None:
    with pytest.raises(HeadRefused):
        routes.find(path)


# -- who may


@pytest.mark.parametrize(
    ("path", "services"),
    [
        ("/vscode/", {"vscode", "*"}),
        ("/vnc/", {"vnc", "*"}),
        ("/ttyd/", {"ttyd", "*"}),
        ("/t/app/", {"t", "*"}),
        ("/v1/processes", {"processes", "*"}),
        ("/pty", {"processes", "*"}),
        ("/api/tunnels", {"t", "*"}),
        ("/api/tasks", set[str]()),
        ("/mcp", set[str]()),
        ("/opencode/session", set[str]()),
    ],
)
def test_a_persons_token_opens_its_service_only(path: str, services: set[str]) -> None:
    every: tuple[Service, ...] = ("vscode", "vnc", "ttyd", "t", "processes", "opencode", "*")
    opened: set[str] = set()
    for service in every:
        try:
            admission.admit(routes.find(path), Shown(bearer=token(service)), DOOR, ALL, time.time())
        except (NotAdmitted, AgentsOnly):
            continue
        opened.add(service)
    assert opened == services


@pytest.mark.parametrize("path", ["/api/memories", "/mcp", "/opencode/session"])
def test_who_is_let_in_elsewhere_is_told_that_no_token_of_a_person_opens_this(path: str) -> None:
    """Bug class: "open it again" is said of what never opens."""
    good, expired = (Grant(sub="usr_1", until={"ttyd": until}) for until in (2**40, 1))
    for shown in (Shown(bearer=token("vscode")), Shown(url_token=token()), Shown(cookies=(expired, good))):
        with pytest.raises(AgentsOnly):
            admission.admit(routes.find(path), shown, DOOR, ALL, time.time())
    out = Access(seq=9, since={})
    for shown in (Shown(cookies=(expired,)), Shown(bearer=token(seconds=-1)), Shown(bearer="x"), Shown()):
        with pytest.raises(NotAdmitted):
            admission.admit(routes.find(path), shown, DOOR, ALL, time.time())
    for shown in (Shown(cookies=(good,)), Shown(bearer=token("vscode"))):
        with pytest.raises(NotAdmitted):
            admission.admit(routes.find(path), shown, DOOR, out, time.time())


def test_the_tools_token_opens_the_tools_and_nothing_else() -> None:
    for path in ("/api/tasks", "/api/tunnels/app", "/mcp"):
        admitted = admission.admit(routes.find(path), Shown(bearer=TOOLS_TOKEN, inside=True), DOOR, ALL, 0)
        assert (admitted.subject, admitted.grant) == ("agent", None)
    for path in ("/ttyd/", "/v1/processes", "/opencode/session", "/t/app/"):
        with pytest.raises(NotAdmitted):
            admission.admit(routes.find(path), Shown(bearer=TOOLS_TOKEN, inside=True), DOOR, ALL, 0)
    with pytest.raises(NotAdmitted):
        admission.admit(routes.find("/mcp"), Shown(url_token=TOOLS_TOKEN, inside=True), DOOR, ALL, 0)


def test_the_tools_token_is_of_no_use_outside_the_sandbox() -> None:
    with pytest.raises(NotAdmitted):
        admission.admit(routes.find("/mcp"), Shown(bearer=TOOLS_TOKEN), DOOR, ALL, 0)


def test_only_the_platform_reaches_the_agents_server_and_gets_no_cookie_for_it() -> None:
    route = routes.find("/opencode/session")
    admitted = admission.admit(route, Shown(bearer=token("opencode", sub="platform")), DOOR, ALL, time.time())
    assert admitted.grant is None
    forged = Grant(sub="platform", until={"opencode": 2**40, "*": 2**40})
    for shown in (Shown(cookies=(forged,)), Shown(bearer=token("opencode")), Shown(bearer=token("*", sub="platform"))):
        with pytest.raises(AgentsOnly):
            admission.admit(route, shown, DOOR, ALL, time.time())


def test_a_bad_token_is_not_made_good_by_a_cookie_beside_it() -> None:
    cookie = Grant(sub="usr_1", until={"*": 2**40})
    with pytest.raises(NotAdmitted):
        admission.admit(
            routes.find("/ttyd/"), Shown(url_token=token(seconds=-1), cookies=(cookie,)), DOOR, ALL, time.time()
        )


def test_the_own_authorization_of_a_program_passes_beside_a_cookie() -> None:
    cookie = Grant(sub="usr_1", until={"t": 2**40})
    admitted = admission.admit(routes.find("/t/app/"), Shown(bearer="its own", cookies=(cookie,)), DOOR, ALL, 0)
    assert not admitted.authorization_is_ours
    with pytest.raises(NotAdmitted):
        admission.admit(routes.find("/t/app/"), Shown(bearer="its own"), DOOR, ALL, 0)


# -- cookies


def test_a_cookie_is_good_for_a_quarter_of_an_hour_and_for_what_its_tokens_opened() -> None:
    grant = cookies.extend(cookies.extend(None, "usr_1", "vscode", 0, 1000), "usr_1", "ttyd", 0, 1600)
    assert grant.opens("vscode", 1899)
    assert not grant.opens("vscode", 1900)
    assert grant.opens("ttyd", 1900)
    assert not grant.opens("t", 1600)


def test_what_another_user_had_does_not_become_ones_own() -> None:
    grant = cookies.extend(Grant(sub="usr_2", until={"*": 2**40}), "usr_1", "ttyd", 0, 1000)
    assert grant == Grant(sub="usr_1", until={"ttyd": 1900})


def test_a_neighbour_on_the_same_host_name_cannot_overwrite_a_sessions_cookie() -> None:
    mine = Grant(sub="usr_1", until={"*": 2**40})
    own_name, shared_name = cookies.names(SESSION)
    jar = f"{shared_name}={cookies.seal('k' * 32, mine)}; {own_name}={cookies.seal(KEY, mine)}"
    assert cookies.shown(KEY, SESSION, [jar])[0] == mine
    assert cookies.shown("k" * 32, "ses_other", [jar])[0] == mine  # by the shared name, with its own key


def test_a_page_behind_the_gateway_cannot_keep_its_visitors_out_with_cookies_of_its_own() -> None:
    mine = Grant(sub="usr_1", until={"*": 2**40})
    name = cookies.names(SESSION)[0]
    over, removed = Grant(sub="usr_1", until={"*": 1}), Grant(sub="eve", until={"*": 2**40})
    values = ["x"] * 150 + [cookies.seal(KEY, grant) for grant in (over, removed, mine)]
    shown = cookies.shown(KEY, SESSION, ["; ".join(f"{name}={value}" for value in values)])
    assert shown == (over, removed, mine)
    assert admission.admit(routes.find("/ttyd/"), Shown(cookies=shown), DOOR, ALL, 100).subject == "usr_1"


@pytest.mark.parametrize("change", ["x{}", "{}x", "{}.", "", ".", "é.é"])
def test_a_changed_cookie_opens_nothing(change: str) -> None:
    value = change.format(cookies.seal(KEY, Grant(sub="usr_1", until={"*": 2**40})))
    assert cookies.unseal(KEY, value) is None


def test_a_cookie_is_no_token_and_a_token_no_cookie() -> None:
    assert cookies.unseal(KEY, token()) is None
    sealed = cookies.seal(KEY, Grant(sub="usr_1", until={"*": 2**40}))
    with pytest.raises(NotAdmitted):
        admission.admit(routes.find("/ttyd/"), Shown(bearer=sealed), DOOR, ALL, time.time())


def test_cookies_are_out_of_reach_of_scripts_and_of_other_sites() -> None:
    for cookie in cookies.given(KEY, SESSION, Grant(sub="u", until={}), secure=True):
        assert "; HttpOnly; SameSite=Lax; Secure" in cookie
    assert "Secure" not in cookies.given(KEY, SESSION, Grant(sub="u", until={}), secure=False)[0]


def test_no_program_sees_a_gateways_cookie() -> None:
    jar = "a=1; gateway_session=x; gateway_session_ses_other=y; __Host-gateway_session=z; Gateway_Session=q; b=2"
    assert cookies.to_backend(jar) == "a=1; b=2"
    assert cookies.to_backend("gateway_session=x") == ""


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        ("a=1", "a=1"),
        ("a=1; Path=/; Secure", "a=1; Path=/t/app/; Secure"),
        ("a=1; path=/x; Domain=evil.example", "a=1; Path=/t/app/x"),
        ("a=1; Path=/t/app/x", "a=1; Path=/t/app/x"),
        ("gateway_session=1; Path=/", None),
        ("GATEWAY_SESSION_x =1", None),
    ],
)
def test_a_programs_cookie_stays_below_its_prefix_and_is_never_one_of_ours(said: str, passed: str | None) -> None:
    assert cookies.from_backend(said, "/t/app") == passed


# -- tokens in URLs


def test_a_sandbox_token_leaves_the_query_and_all_else_stays_byte_for_byte() -> None:
    good = token()
    assert queries.take(f"a=%20+&token={good}&b&&c=").query == "a=%20+&b&&c="
    assert queries.take(f"a=1&%74oken={good}").token == good
    assert queries.take("token=of-the-program").query == "token=of-the-program"
    assert queries.take(f"token={good}&token={token('t')}").query == ""


def test_a_referer_carries_no_sandbox_token() -> None:
    assert queries.without_token(f"http://h/x?a=1&token={token()}#f") == "http://h/x?a=1#f"
    assert queries.without_token(f"http://h/x?token={token()}") == "http://h/x"
    assert queries.without_token(f"http://h/x#token={token()}") == "http://h/x#"


# -- heads


@pytest.mark.parametrize(
    "fields",
    [
        [("Content-Length", "5"), ("Content-Length", "6")],
        [("Content-Length", "5"), ("Content-Length", "5")],
        [("Content-Length", "+5")],
        [("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
        [("Transfer-Encoding", "gzip, chunked")],
        [("Transfer-Encoding", "xchunked")],
        [("Transfer-Encoding", "chunked"), ("transfer-encoding", "chunked")],
        [("Authorization", "a"), ("Authorization", "b")],
        [("Origin", "a"), ("Origin", "b")],
    ],
)
def test_a_request_that_two_programs_could_read_in_two_ways_is_refused(fields: list[tuple[str, str]]) -> None:
    with pytest.raises(HeadRefused):
        headers.check("POST", (1, 1), fields)


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "get", "G ET", ""])
def test_verbs_that_no_proxy_passes_on_are_refused(method: str) -> None:
    with pytest.raises(MethodRefused):
        headers.check(method, (1, 1), [])


def test_hop_by_hop_headers_end_here_and_what_we_say_cannot_be_forged() -> None:
    came = [
        ("Host", "box.example"),
        ("Connection", "keep-alive, X-Secret, X-Forwarded-Host"),
        ("X-Secret", "1"),
        ("Keep-Alive", "5"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "x"),
        ("Upgrade", "h2c"),
        ("X-Forwarded-For", "6.6.6.6"),
        ("X_Forwarded_Prefix", "/evil"),
        ("Forwarded", "for=6.6.6.6"),
        ("X-Real-IP", "6.6.6.6"),
        ("X-Valet-Subject", "platform"),
        ("Authorization", "Bearer x"),
        ("Accept", "text/html"),
        ("Cookie", "gateway_session=1; a=2"),
        ("Referer", f"http://box.example/t/app/?token={token()}"),
    ]
    assert dict(headers.to_backend(came, ONWARD)) == {
        "Accept": "text/html",
        "Cookie": "a=2",
        "Referer": "http://box.example/t/app/",
        "Host": "box.example",
        "X-Forwarded-Host": "box.example",
        "X-Forwarded-Proto": "http",
        "X-Forwarded-For": "10.0.0.1",
        "X-Forwarded-Prefix": "/t/app",
        "X-Valet-Subject": "usr_1",
    }


def test_bytes_that_are_no_utf8_pass_as_latin_1() -> None:
    value = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert headers.to_backend([("X-Name", value)], ONWARD)["X-Name"] == "café"


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        ("/login?a=/x", "/t/app/login?a=/x"),
        ("login", "login"),
        ("http://127.0.0.1:3000/login#f", "/t/app/login#f"),
        ("http://localhost:3000", "/t/app/"),
        ("https://box.example/login", "/t/app/login"),
        ("/t/app/login", "/t/app/login"),
        ("/t/apple", "/t/app/t/apple"),
        ("https://elsewhere.example/x", "https://elsewhere.example/x"),
        ("//elsewhere.example/x", "//elsewhere.example/x"),
        ("http://127.0.0.1:3001/x", "http://127.0.0.1:3001/x"),
        ("///evil.example", "/t/app/evil.example"),
    ],
)
def test_a_redirect_of_a_program_to_itself_stays_below_its_prefix(said: str, passed: str) -> None:
    assert headers.below(said, prefix="/t/app", target=APP, host="box.example") == passed


def test_a_program_cannot_make_itself_the_service_worker_of_the_whole_host() -> None:
    head = headers.from_backend([("Service-Worker-Allowed", "/")], prefix="/t/app", target=APP, host="h")
    assert head["Service-Worker-Allowed"] == "/t/app/"


def test_a_program_cannot_speak_for_the_whole_host() -> None:
    said = [
        ("Clear-Site-Data", '"cookies"'),
        ("Strict-Transport-Security", "max-age=1"),
        ("Alt-Svc", 'h2="evil.example:443"'),
        ("NEL", "{}"),
        ("Report-To", "{}"),
        ("X-Frame-Options", "DENY"),
    ]
    head = headers.from_backend(said, prefix="/t/app", target=APP, host="h")
    assert dict(head) == {"X-Frame-Options": "DENY"}


# -- origins


@pytest.mark.parametrize(
    ("method", "upgrade", "origin", "site", "allowed"),
    [
        ("GET", True, "http://127.0.0.1:9000", "same-origin", True),
        ("GET", True, "http://127.0.0.1:9001", "same-site", False),
        ("GET", True, "http://evil.example", "cross-site", False),
        ("GET", True, "null", None, False),
        ("GET", True, None, None, False),
        ("POST", False, "http://127.0.0.1:9000", None, True),
        ("POST", False, "http://127.0.0.1:9001", None, False),
        ("POST", False, None, None, True),
        ("DELETE", False, None, "same-site", False),
        ("GET", False, None, "same-site", False),
        ("GET", False, None, "same-origin", True),
        ("GET", False, None, None, True),
    ],
)
def test_a_cookie_speaks_only_for_our_own_pages(
    method: str, upgrade: bool, origin: str | None, site: str | None, allowed: bool
) -> None:
    def check() -> None:
        origins.check_cookie_use(
            method=method, upgrade=upgrade, host="127.0.0.1:9000", origin=origin, site=site, mode="cors"
        )

    if allowed:
        check()
    else:
        with pytest.raises(Forbidden):
            check()


def test_a_link_from_elsewhere_may_be_followed_with_a_cookie() -> None:
    origins.check_cookie_use(method="GET", upgrade=False, host="h", origin=None, site="cross-site", mode="navigate")


@pytest.mark.parametrize("hosts", [[], ["a", "a"], ["a b"], ["a/b"], ["user@a"], [""], ["a:b"]])
def test_a_request_has_one_host(hosts: list[str]) -> None:
    with pytest.raises(HeadRefused):
        origins.check_host(hosts)


# -- programs and tunnels


@pytest.mark.parametrize(
    "text",
    [
        "http://169.254.169.254:80",
        "http://localhost:3000",
        "http://127.0.0.1@evil.example:80",
        "http://127.0.0.1:0",
        "http://127.0.0.1:65536",
        "http://127.0.0.1:80/x",
        "https://127.0.0.1:80",
        "http://0x7f000001:80",
        "http://127.0.0.2:80",
        "unix:relative",
        "file:///etc/passwd",
        "",
    ],
)
def test_a_program_is_on_a_port_of_this_sandbox_or_a_unix_socket(text: str) -> None:
    with pytest.raises(BadTarget):
        targets.parse(text)
    assert str(targets.parse("http://127.0.0.1:8765")) == "http://127.0.0.1:8765"
    assert targets.parse("unix:/run/x.sock").path == "/run/x.sock"


@pytest.mark.parametrize(
    ("name", "port"),
    [("app", 0), ("app", 65_536), ("app", 9000), ("", 1), ("..", 1), ("a/b", 1), ("a b", 1), ("x" * 64, 1)],
)
def test_a_tunnel_that_cannot_be_is_refused(name: str, port: int) -> None:
    with pytest.raises(Unprocessable):
        tunnels.register((), Tunnel(name=name, port=port), {9000: "this gateway itself"})


def test_registering_a_tunnel_twice_is_the_same_as_once_and_there_is_an_end_to_them() -> None:
    one = tunnels.register((), Tunnel(name="app", port=3000), {})
    assert tunnels.register(one, Tunnel(name="app", port=3000), {}) == one
    many: tunnels.Tunnels = ()
    for number in range(64):
        many = tunnels.register(many, Tunnel(name=f"t{number}", port=3000), {})
    assert tunnels.register(many, Tunnel(name="t1", port=1), {})
    with pytest.raises(TooMany):
        tunnels.register(many, Tunnel(name="one-more", port=3000), {})


# -- keys of providers


def test_documents_of_the_agents_server_lose_every_key() -> None:
    document = b'{"providers":[{"id":"p","key":"sk-1","env":["P_KEY"],"options":{"apiKey":"sk-2","baseURL":"u"}}]}'
    cleaned = provider_documents.without_keys(document)
    assert b"sk-" not in cleaned
    assert b'"baseURL":"u"' in cleaned
    assert all(provider_documents.holds_keys(path) for path in ("/config", "/config/providers", "/provider"))
    assert not provider_documents.holds_keys("/event")
    with pytest.raises(Refused):
        provider_documents.check("/auth/openai")


# -- ttyd's protocol


def test_the_protocol_of_ttyd_is_read_as_its_clients_write_it() -> None:
    assert ttyd.hello(b'{"AuthToken":"","columns":120,"rows":40}') == ttyd.Size(columns=120, rows=40)
    assert ttyd.hello(b"{}") == ttyd.Size()
    assert ttyd.hello(b'{"columns":0,"rows":1000000}') == ttyd.Size(columns=1, rows=1000)
    assert ttyd.hello(b"ls\n") is None
    assert ttyd.said(b"0ls\r") == ttyd.Input(b"ls\r")
    assert ttyd.said(b'1{"columns":90,"rows":30}') == ttyd.Size(columns=90, rows=30)
    assert (ttyd.said(b"2"), ttyd.said(b"3")) == (ttyd.Pause(True), ttyd.Pause(False))
    assert (ttyd.said(b"9"), ttyd.said(b""), ttyd.said(b"1x")) == (None, None, None)
