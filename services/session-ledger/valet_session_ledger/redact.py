"""What an export does not carry: secrets, and other people's addresses. Pure.

An export leaves the platform, and nobody knows where to. Who takes part in a session sees the rest of it anyway.
"""

from typing import cast

import msgspec

_LINK = "fact.share_link_created"
_WITH_ADDRESS = frozenset(("fact.prompt_accepted", "fact.turn_dispatched"))
_WRAPPED = "fact.event_imported"

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_data = msgspec.json.Decoder(dict[str, object]).decode
_encode = msgspec.json.Encoder().encode


def for_export(kind: str, payload: bytes, *, user: str, is_owner: bool) -> bytes:
    """An event of the archive as it may be in an export for a user; byte for byte where nothing is left out.

    The digest of a share link's token is left out for everybody, the address of a prompt's author for all but the
    author and the session's owner. What cannot be decoded tells nothing to a reader either, and stays as it is.
    """
    if kind != _LINK and kind != _WRAPPED and (is_owner or kind not in _WITH_ADDRESS):
        return payload
    try:
        event = _decode(payload)
        data = _decode_data(event["data"])
    except (msgspec.MsgspecError, KeyError):
        return payload
    inner, inner_kind = data, kind
    if kind == _WRAPPED:
        wrapped = data.get("data")
        if not isinstance(wrapped, dict):
            return payload
        inner, inner_kind = cast(dict[str, object], wrapped), str(data.get("type"))
    left_out = ""
    if inner_kind == _LINK:
        left_out = "token_sha256"
    elif inner_kind in _WITH_ADDRESS and not is_owner and inner.get("author") != user:
        left_out = "author_email"
    if not inner.get(left_out):
        return payload
    inner[left_out] = ""
    return _encode(event | {"data": msgspec.Raw(_encode(data))})
