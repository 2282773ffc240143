"""What a program has written, as a person would have read it: without what steers a terminal. Pure."""

import re

_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|\Z)"  # colours, moves, erasing; the last may be cut
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)"  # pictures, answers of the terminal
    r"|\x1b[ -/]+[0-~]"  # character sets
    r"|\x1b[0-~]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HARMLESS = re.compile(r"[\x0b\x0c\r]")

_ODD_PART = 10
"""One odd character in so many, and it is no text: a few are there in every log that was cut."""


def readable(data: bytes, *, terminal: bool) -> str | None:
    """The text in it; none where it is no text. `terminal`: a carriage return begins the line anew, as on a screen; in
    a file it only ends it."""
    text = _whole_characters(data).decode(errors="replace")
    text = _ESCAPE.sub("", text)
    odd = text.count("\ufffd") + len(_CONTROL.findall(text)) - len(_HARMLESS.findall(text)) - text.count("\b")
    if odd * _ODD_PART > len(text):
        return None
    text = re.sub(r"\r+\n", "\n", text)
    text = "\n".join(map(_last_written, text.split("\n"))) if terminal else text.replace("\r", "\n")
    return _CONTROL.sub("", _backspaced(text))


def _whole_characters(data: bytes) -> bytes:
    """Without the rest of a character that was cut in two at the beginning."""
    for start in range(min(4, len(data))):
        if data[start] & 0xC0 != 0x80:
            return data[start:]
    return data


def _last_written(line: str) -> str:
    """What is on a line in the end: a progress bar at its last."""
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def _backspaced(text: str) -> str:
    if "\b" not in text:
        return text
    kept: list[str] = []
    for character in text:
        if character != "\b":
            kept.append(character)
        elif kept and kept[-1] != "\n":
            kept.pop()
    return "".join(kept)
