"""How a turn, by its kind, is handed to OpenCode."""

import asyncio
from collections.abc import Coroutine

from valet_runner import limits
from valet_runner.errors import OpencodeUnavailable
from valet_runner.opencode_client import OpencodeClient
from valet_runner.prompt_parts import FileInput, TextInput
from valet_runner.turns import Turn


async def give(
    client: OpencodeClient, session: str, turn: Turn, *, as_prompt: bool
) -> Coroutine[None, None, None] | None:
    """Give OpenCode the turn's user message; returns when it has it.

    A slash command or a shell command is a call that lasts as long as its turn: it is given back for the caller to
    run. `as_prompt` makes an ordinary prompt of it, for a model that goes on with what another one began.
    Raises what the client raises.
    """
    fact = turn.fact
    if fact.kind == "command" and not as_prompt:
        name, _, arguments = fact.content.strip().removeprefix("/").partition(" ")
        return client.command(
            session,
            message_id=turn.user_message,
            name=name,
            arguments=arguments.strip(),
            files=[part for part in turn.parts if isinstance(part, FileInput)],
            model=turn.model,
            variant=fact.variant,
        )
    if fact.kind == "shell":
        return _shell(client, session, turn)
    await client.prompt(
        session,
        message_id=turn.user_message,
        parts=turn.parts,
        model=turn.model,
        variant=fact.variant,
    )
    return None


async def tell(client: OpencodeClient, session: str, message_id: str, texts: list[str], model: str) -> None:
    """Give OpenCode something to remember ahead of a slash command, which takes no text but its own; no model is asked
    about it. Raises what the client raises."""
    parts = [TextInput(text=text, synthetic=True) for text in texts]
    await client.prompt(session, message_id=message_id, parts=list(parts), model=model, unanswered=True)


async def _shell(client: OpencodeClient, session: str, turn: Turn) -> None:
    try:
        async with asyncio.timeout(limits.SHELL_TIMEOUT):
            await client.shell(session, message_id=turn.user_message, command=turn.fact.content)
    except TimeoutError as error:
        raise OpencodeUnavailable(
            f"the command ran for {limits.SHELL_TIMEOUT / 60:.0f} minutes and was stopped"
        ) from error
