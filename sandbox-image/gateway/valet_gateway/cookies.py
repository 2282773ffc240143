"""The gateway's cookies: made, read, and kept from the programs behind it. Pure.

A cookie is signed, not remembered, so browsers stay signed in over a restart. Host names have one set of cookies for
all their ports, and each sandbox may have its port: so there are two names, one of them this session's alone, and none
of any session's reaches a program.
"""

import base64
import hmac
import re
from collections.abc import Iterable

import msgspec
from valet_service.sandbox_token import Service

from valet_gateway import limits

NAME = "gateway_session"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser's cookie opens."""

    sub: str
    """The user's id."""
    until: dict[Service, int]
    """For each service, seconds since 1970."""
    seq: int = 0
    """The highest of the tokens it came from (`Claims.seq`): it is the same user's right to be here."""

    def is_good(self, now: float) -> bool:
        """Whether it opens anything now."""
        return max(self.until.values(), default=0) > now

    def opens(self, service: Service, now: float) -> bool:
        """Whether it opens a service now."""
        return max(self.until.get(service, 0), self.until.get("*", 0)) > now


def extend(old: Grant | None, sub: str, service: Service, seq: int, now: float) -> Grant:
    """After a token for `service`: what the browser had, if it was the same user's, and this."""
    until: dict[Service, int] = {service: int(now) + limits.COOKIE_SECONDS}
    if old is None or old.sub != sub:
        return Grant(sub=sub, until=until, seq=seq)
    kept: dict[Service, int] = {name: until for name, until in old.until.items() if until > now}
    return Grant(sub=sub, until={**kept, **until}, seq=max(old.seq, seq))


def names(session_id: str) -> tuple[str, str]:
    """The names of a session's cookies: the one no neighbour has first."""
    return f"{NAME}_{re.sub(r'[^A-Za-z0-9_-]', '-', session_id)}", NAME


def seal(signing: str, grant: Grant) -> str:
    """A cookie's value. `signing` is the session's key."""
    body = base64.urlsafe_b64encode(msgspec.json.encode(grant)).decode().rstrip("=")
    return f"{body}.{_signature(signing, body)}"


def unseal(signing: str, value: str) -> Grant | None:
    """What a cookie's value says; none if it is not ours or not this session's."""
    body, _, signature = value.partition(".")
    if not hmac.compare_digest(_signature(signing, body).encode(), signature.encode(errors="replace")):
        return None
    return msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=Grant)


def shown(signing: str, session_id: str, headers: Iterable[str]) -> tuple[Grant, ...]:
    """What each of ours in a request's `Cookie` headers opens."""
    mine = names(session_id)
    found = [pair for header in headers for pair in _pairs(header) if pair[0] in mine]
    tried = sorted(found, key=lambda pair: mine.index(pair[0]))[: limits.COOKIES_TRIED]
    return tuple(grant for _, value in tried if (grant := unseal(signing, value)))


def given(signing: str, session_id: str, grant: Grant, *, secure: bool) -> list[str]:
    """The `Set-Cookie` headers for a grant."""
    tail = f"; Path=/; Max-Age={limits.COOKIE_SECONDS}; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")
    value = seal(signing, grant)
    return [f"{name}={value}{tail}" for name in names(session_id)]


def to_backend(header: str) -> str:
    """A `Cookie` header without the cookies of any gateway; empty if nothing is left."""
    return "; ".join(
        f"{name}={value}" if value is not None else name for name, value in _all(header) if not _ours(name)
    )


def from_backend(header: str, prefix: str) -> str | None:
    """A program's `Set-Cookie` for its own folder only; none if it would set a cookie of ours."""
    pair, *attributes = (part.strip() for part in header.split(";"))
    if _ours(pair.partition("=")[0].strip()):
        return None
    kept = [pair]
    for attribute in attributes:
        name, _, value = attribute.partition("=")
        match name.strip().lower():
            case "domain":
                continue
            case "path" if value.strip().startswith("/") and not f"{value.strip()}/".startswith(f"{prefix}/"):
                kept.append(f"Path={prefix}{value.strip()}")
            case _:
                kept.append(attribute)
    return "; ".join(kept)


def _signature(signing: str, body: str) -> str:
    # another purpose than tokens: neither can be used as the other
    return hmac.new(f"{signing}:cookie".encode(), body.encode(errors="replace"), "sha256").hexdigest()


def _ours(name: str) -> bool:
    # a browser takes `__Host-` and `__Secure-` as part of a name, some servers do not
    return name.lower().removeprefix("__host-").removeprefix("__secure-").startswith(NAME)


def _all(header: str) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for part in header.split(";"):
        name, equals, value = part.strip().partition("=")
        if name or equals:
            found.append((name.strip(), value.strip() if equals else None))
    return found


def _pairs(header: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in _all(header) if value is not None]
