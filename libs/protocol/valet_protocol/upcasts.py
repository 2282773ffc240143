"""Older shapes of event data, brought to the present one when they are read.

The log is never rewritten. Each function takes the decoded JSON object of version N and gives that of version
N + 1; the codec applies them in turn.
"""

from collections.abc import Callable

Upcast = Callable[[dict[str, object]], dict[str, object]]


def _prompt_accepted_1_to_2(data: dict[str, object]) -> dict[str, object]:
    """Version 1 called the prompt's text `text` and had no mode: every prompt was queued."""
    return {"mode": "queue", **{("content" if key == "text" else key): value for key, value in data.items()}}


UPCASTS: dict[tuple[str, int], Upcast] = {
    ("fact.prompt_accepted", 1): _prompt_accepted_1_to_2,
}
"""By type and the version they start from."""
