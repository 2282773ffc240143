"""How much goes into one page. Pure."""

from collections.abc import Sequence

import msgspec
from valet_protocol.requests import Reply

from valet_session_ledger import limits


def page_size(limit: int) -> int:
    """How many items a page has, whatever was asked for."""
    return max(1, min(limit, limits.PAGE))


def fitting(items: Sequence[Reply], most: int) -> int:
    """How many of the first items make up at most so many bytes, but one at least."""
    size = 0
    for count, item in enumerate(items):
        size += len(msgspec.json.encode(item))
        if size > most and count:
            return count
    return len(items)


def whole(seqs: Sequence[int], count: int) -> int:
    """So many of the first, and those of the same sequence as the last of them."""
    while 0 < count < len(seqs) and seqs[count] == seqs[count - 1]:
        count += 1
    return min(count, len(seqs))
