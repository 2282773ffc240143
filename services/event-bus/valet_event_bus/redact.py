"""What nobody who follows a session needs, and somebody could misuse: it is left out of events on their way. Pure."""

from typing import cast

import msgspec

_LINK = "fact.share_link_created"
_WRAPPED = "fact.event_imported"
_KINDS = frozenset((_LINK, _WRAPPED))
_SECRET = "token_sha256"
_NAMED = _SECRET.encode()

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_data = msgspec.json.Decoder(dict[str, object]).decode
_encode = msgspec.json.Encoder().encode


def for_clients(kind: str, payload: bytes) -> bytes:
    """An event as clients get it: without the digest of a share link's token, which exports leave out as well; byte for
    byte otherwise. What cannot be decoded stays as it is."""
    if kind not in _KINDS or (kind == _WRAPPED and _NAMED not in payload):
        return payload
    try:
        event = _decode(payload)
        data = _decode_data(event["data"])
    except (msgspec.MsgspecError, KeyError):
        return payload
    inner = data if kind == _LINK else data.get("data")
    if not isinstance(inner, dict) or (kind == _WRAPPED and data.get("type") != _LINK):
        return payload
    link = cast(dict[str, object], inner)
    if not link.get(_SECRET):
        return payload
    link[_SECRET] = ""
    return _encode(event | {"data": msgspec.Raw(_encode(data))})
