"""Claims about the tokens that open a sandbox's gateway."""

import base64
import json

import jwt
import msgspec
import pytest
from valet_service import sandbox_token
from valet_service.sandbox_token import BadToken, Claims, Service

SESSION = "ses_1"
SIGNING = sandbox_token.key(b"s" * 32, SESSION)
NOW = 1_000.0
GOOD = Claims(sub="usr_1", sid=SESSION, svc="ttyd", exp=1_060)


def _refusal(token: str, signing: str = SIGNING) -> str:
    with pytest.raises(BadToken) as caught:
        sandbox_token.verify(signing, token, session_id=SESSION, now=NOW)
    return str(caught.value)


def _signed(algorithm: str = "HS256", signing: str = SIGNING, changes: dict[str, object] | None = None) -> str:
    said: dict[str, object] = {**msgspec.to_builtins(GOOD), **(changes or {})}
    return jwt.encode({name: value for name, value in said.items() if value is not None}, signing, algorithm=algorithm)


def _unsigned(algorithm: str, signature: bytes = b"") -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    head = json.dumps({"alg": algorithm, "typ": "JWT"}).encode()
    return ".".join([part(head), part(msgspec.json.encode(GOOD)), part(signature)])


def test_a_token_says_what_was_minted() -> None:
    token = sandbox_token.mint(SIGNING, GOOD)
    assert sandbox_token.verify(SIGNING, token, session_id=SESSION, now=NOW) == GOOD


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", ""])
def test_an_unsigned_token_is_refused(algorithm: str) -> None:
    assert "expired" not in _refusal(_unsigned(algorithm))
    assert "expired" not in _refusal(_unsigned(algorithm, b"x" * 32))


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
def test_a_token_of_another_algorithm_is_refused_though_the_key_is_right(algorithm: str) -> None:
    assert _refusal(_signed(algorithm)) == "it is not signed by HS256"


def test_a_token_signed_by_another_key_is_refused() -> None:
    assert "signature" in _refusal(_signed(signing=sandbox_token.key(b"t" * 32, SESSION)))
    assert "signature" in _refusal(_signed(signing=sandbox_token.key(b"s" * 32, "ses_2")))


def test_a_token_of_another_session_is_refused_though_the_key_is_right() -> None:
    assert _refusal(_signed(changes={"sid": "ses_2"})) == "it is for another session"


@pytest.mark.parametrize("exp", [999, 1_000])
def test_an_expired_token_is_refused(exp: int) -> None:
    assert "expired" in _refusal(_signed(changes={"exp": exp}))


@pytest.mark.parametrize("claim", ["sub", "sid", "svc", "exp"])
def test_a_token_that_leaves_a_claim_out_is_refused(claim: str) -> None:
    assert "claims" in _refusal(_signed(changes={claim: None}))


@pytest.mark.parametrize(
    ("claim", "value"), [("exp", "1060"), ("exp", 1e300), ("svc", "everything"), ("svc", ["ttyd"]), ("sub", "")]
)
def test_a_claim_of_a_wrong_kind_is_refused(claim: str, value: object) -> None:
    _refusal(_signed(changes={claim: value}))


@pytest.mark.parametrize("text", ["", "a", "a.b.c", "..", "é.é.é", "x" * 5_000])
def test_what_is_no_token_is_refused(text: str) -> None:
    _refusal(text)
    assert not sandbox_token.looks_ours(text)


def test_a_refusal_never_repeats_the_token() -> None:
    token = _signed(changes={"exp": 1})
    assert token not in _refusal(token)
    assert token.rpartition(".")[2] not in _refusal(token)


@pytest.mark.parametrize(
    ("sub", "svc", "service", "opened"),
    [
        ("usr_1", "ttyd", "ttyd", True),
        ("usr_1", "ttyd", "vscode", False),
        ("usr_1", "*", "vscode", True),
        ("usr_1", "*", "t", True),
        ("usr_1", "*", "opencode", False),
        ("platform", "*", "opencode", False),
        ("usr_1", "opencode", "opencode", False),
        ("platform", "opencode", "opencode", True),
        ("platform", "opencode", "processes", False),
    ],
)
def test_a_token_opens_its_service_and_the_agent_is_the_platforms_alone(
    sub: str, svc: Service, service: Service, opened: bool
) -> None:
    assert sandbox_token.opens(Claims(sub=sub, sid=SESSION, svc=svc, exp=1_060), service) is opened


def test_a_bad_token_of_ours_is_known_from_the_token_of_another_program() -> None:
    assert sandbox_token.looks_ours(_signed(signing="k" * 32, changes={"exp": 1, "sid": "ses_2"}))
    assert sandbox_token.looks_ours(_unsigned("none"))
    assert not sandbox_token.looks_ours(jwt.encode({"user": 1}, "k" * 32, algorithm="HS256"))
