"""What an attachment is to the agent, and under which name it is kept. Pure."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

import msgspec
from valet_protocol.sandbox_spec import ProviderSpec

from valet_runner import work_limits

Kind = Literal["image", "document", "audio", "text", "other"]
"""`image` and `document` are shown to the model, `text` is read into the prompt, `audio` is transcribed, `other` lies
there for the agent's tools."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\:*?\"<>|]+")

_MAGIC: tuple[tuple[bytes, int, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"%PDF-", 0, "application/pdf"),
)
"""What every provider's models take, and how such a file begins."""


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """A file's first and last bytes (at most `LOOK_BYTES` each), and its size."""

    head: bytes
    tail: bytes
    size: int


def safe_name(name: str) -> str:
    """A name for a file in a folder of its own: without folders, control characters, and what shells and other file
    systems stumble over; never empty, hidden, or an option."""
    plain = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode())
    plain = _UNSAFE.sub("_", plain.replace("\\", "/").rstrip("/").rpartition("/")[2])
    plain = "".join(char for char in plain if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp"))
    plain = plain.strip().lstrip(".-~ ").rstrip(". ")
    stem, dot, ending = plain.rpartition(".")
    if not dot or len(ending.encode()) > 20:
        stem, ending = plain, ""
    ending = f".{ending}" if ending else ""
    stem = _cut(stem, work_limits.NAME_BYTES - len(ending.encode()))
    return f"{stem}{ending}" if stem else f"file{ending}"


def is_id(attachment_id: str) -> bool:
    """Whether an attachment's id can be the name of a folder."""
    return _ID.fullmatch(attachment_id) is not None


def look(mime: str, content: Ends) -> tuple[Kind, str]:
    """What a file is, and its media type for the agent, by what was said of it and what it looks like.

    An image that cannot be decoded fails the turn in OpenCode (measured), and one of another format than it says is
    refused by providers, with every later prompt of the conversation too: so the content counts, not the name.
    """
    for magic, at, real in _MAGIC:
        if content.head[at : at + len(magic)] == magic:
            if real.startswith("image/"):
                shown = content.size <= work_limits.IMAGE_BYTES and _is_whole(real, content)
                return ("image" if shown else "other"), real
            return ("document" if content.size <= work_limits.DOCUMENT_BYTES else "other"), real
    if mime.lower().startswith("audio/"):
        return "audio", mime
    if _is_text(content.head):
        return "text", "text/plain"
    return "other", mime


def takes(kind: Kind, providers: Sequence[ProviderSpec], model: str) -> bool:
    """Whether a model (`provider/model`) is given such a file as it is. Of built-in providers' models OpenCode knows it
    itself; of all others it knows what it was told, and nothing was told of documents."""
    if kind not in ("image", "document"):
        return True
    provider_id, _, model_id = model.partition("/")
    for provider in providers:
        if provider.id == provider_id:
            declared = [model.images and kind == "image" for model in provider.models if model.id == model_id]
            return declared[0] if declared else provider.builtin
    return False


def _is_whole(real: str, content: Ends) -> bool:
    """Whether an image was not cut off, by how its format ends."""
    match real:
        case "image/png":
            return b"IEND" in content.tail
        case "image/jpeg":
            return b"\xff\xd9" in content.tail
        case "image/gif":
            return content.tail.rstrip(b"\0").endswith(b";")
        case _:
            return int.from_bytes(content.head[4:8], "little") + 8 <= content.size


def _is_text(beginning: bytes) -> bool:
    if b"\0" in beginning:
        return False
    try:
        beginning.decode()
    except UnicodeDecodeError as error:
        # the last character may be cut in two
        return error.start >= len(beginning) - 3 and len(beginning) == work_limits.LOOK_BYTES
    return True


def _cut(text: str, size: int) -> str:
    return text.encode()[: max(size, 0)].decode(errors="ignore").rstrip(". ")
