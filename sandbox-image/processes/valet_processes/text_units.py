"""Length of terminal output in UTF-16 units, which is how OpenCode's clients count what they have. Pure.

They add up the lengths of JavaScript strings and come back with the sum as `cursor`. Exact for UTF-8; a terminal that
shows something else may be resumed a few characters off.
"""

_CONTINUATION = bytes(range(0x80, 0xC0))
_BELOW_FOUR = bytes(range(0xF0))


def units(data: bytes | bytearray) -> int:
    """Characters that begin in `data`, those beyond the first 65,536 counted twice."""
    return len(data.translate(None, _CONTINUATION)) + len(data.translate(None, _BELOW_FOUR))


def position_after(data: bytes | bytearray, wanted: int) -> int:
    """Where in `data` the character after `wanted` units begins; its length for more than there are."""
    count = 0
    for position, byte in enumerate(data):
        if byte & 0xC0 != 0x80:
            if count >= wanted:
                return position
            count += 2 if byte >= 0xF0 else 1
    return len(data)
