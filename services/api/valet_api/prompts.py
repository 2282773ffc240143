"""What a prompt must be like before the ledger is asked. Pure."""

import re

from valet_protocol.errors import Unprocessable

from valet_api.routes.bodies import NewMessage, text

_COMMAND = re.compile(r"/[^\s/]\S*(\s.*)?", re.DOTALL)


def checked_content(message: NewMessage) -> str:
    """The prompt's text, if it fits its kind. Raises `Unprocessable`."""
    content = text(message.content, "content")
    if message.kind != "review" and not content.strip():
        raise Unprocessable("empty_prompt", "The prompt is empty; write in `content` what the agent is to do.")
    if message.kind == "command" and not _COMMAND.fullmatch(content.strip()):
        raise Unprocessable(
            "bad_command",
            "A command begins with a slash and its name, e.g. `/init`; POST …/commands with `list_commands` tells "
            "which there are.",
        )
    if message.kind in ("shell", "review") and message.attachments:
        raise Unprocessable(
            "attachments_not_possible", f"A {message.kind} takes no attachments; send them with a prompt."
        )
    return content
