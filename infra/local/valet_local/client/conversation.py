"""What is said in a session: prompts, answers, the queue, commands."""

from collections.abc import AsyncIterator
from pathlib import Path

from valet_protocol.events.facts import Attachment, PromptKind, PromptMode
from valet_protocol.requests import Accepted, CommandView, Done, MessagePage, MessageView

from valet_local.client import bodies, limits
from valet_local.client.transport import Transport, path_of


class Conversation(Transport):
    """Part of the client."""

    async def messages(self, session_id: str, *, nested: bool = False) -> AsyncIterator[MessageView]:
        """The whole conversation, oldest first; `nested` with sub-agents under the tool calls that started them."""
        after: int | None = 0
        options = {"nested": "true"} if nested else {}
        while after is not None:
            query: dict[str, str | int] = {"limit": limits.PAGE, "after": after, **options}
            page = await self.read(path_of(session_id, "messages"), MessagePage, query)
            for message in page.items:
                yield message
            after = page.next

    async def send_message(
        self,
        session_id: str,
        content: str,
        *,
        kind: PromptKind | None = None,
        mode: PromptMode | None = None,
        channel: str | None = None,
        model: str | None = None,
        fallbacks: list[str] | None = None,
        attachments: list[str] | None = None,
    ) -> Accepted:
        """Give the session a prompt. It is in the log when this returns."""
        body = bodies.NewMessage(
            content=content,
            kind=kind,
            mode=mode,
            channel=channel,
            model=model,
            fallbacks=fallbacks or None,
            attachments=attachments or None,
        )
        return await self.write("POST", path_of(session_id, "messages"), Accepted, body)

    async def attach(self, session_id: str, file: Path, mime: str) -> Attachment:
        """Upload a file; name its `attachment_id` with a prompt."""
        path = path_of(session_id, "attachments")
        return await self.upload(path, Attachment, file, mime, query={"name": file.name})

    async def answer(self, session_id: str, answers: list[list[str]], *, question_id: str | None = None) -> Done:
        """Answer a question (labels chosen or free text, per question of the set); the first answer wins."""
        body = bodies.NewAnswer(question_id=question_id, answers=answers)
        return await self.write("POST", path_of(session_id, "answer"), Done, body)

    async def abort(self, session_id: str) -> Done:
        """Have the running turn stop. Refused with `nothing_running` when there is none."""
        return await self.write("POST", path_of(session_id, "abort"), Done)

    async def edit_prompt(self, session_id: str, prompt_id: str, content: str) -> Done:
        """Give a waiting prompt another text. Refused with `not_waiting` when it waits no more."""
        body = bodies.PromptChange(content=content)
        return await self.write("PATCH", path_of(session_id, "prompts", prompt_id), Done, body)

    async def withdraw_prompt(self, session_id: str, prompt_id: str) -> Done:
        """Take a waiting prompt back. Refused with `not_waiting` when it waits no more."""
        return await self.write("DELETE", path_of(session_id, "prompts", prompt_id), Done)

    async def reorder_queue(self, session_id: str, prompt_ids: list[str]) -> Done:
        """Put the waiting prompts into this order; those not named stay behind them."""
        return await self.write("POST", path_of(session_id, "queue"), Done, bodies.NewOrder(prompt_ids=prompt_ids))

    async def revert(self, session_id: str, message_id: str) -> CommandView:
        """Go back to before a message, files too. It may still be `requested` when this returns."""
        path = path_of(session_id, "revert")
        body = bodies.Revert(message_id=message_id)
        return await self.write("POST", path, CommandView, body, timeout=limits.COMMAND_TIMEOUT)

    async def unrevert(self, session_id: str, *, channel: str | None = None) -> CommandView:
        """Take a revert back. It may still be `requested` when this returns."""
        path = path_of(session_id, "unrevert")
        query: dict[str, str | int] = {"channel": channel} if channel else {}
        return await self.write("POST", path, CommandView, query=query, timeout=limits.COMMAND_TIMEOUT)
