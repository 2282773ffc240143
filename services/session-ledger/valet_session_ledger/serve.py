"""Which request goes to which method: the ledger's subjects."""

from collections.abc import Awaitable, Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from valet_protocol import subjects
from valet_protocol.requests import (
    AbortTurn,
    AnswerQuestion,
    AttachRunner,
    CreateSession,
    GetDiff,
    GetSession,
    ListMessages,
    ListSessions,
    ReadArchive,
    Reply,
    Request,
    SubmitPrompt,
    TerminateSession,
)
from valet_service import rpc

from valet_session_ledger.commands import Commands
from valet_session_ledger.config import Config
from valet_session_ledger.reads import Reads

QUEUE = "ledger"
"""Replicas share the requests."""

Handler = Callable[[Any], Awaitable[Reply]]


async def serve(nc: Client, config: Config, commands: Commands, reads: Reads) -> list[Subscription]:
    """Answer requests from now on."""
    handlers: dict[type[Request], Handler] = {
        CreateSession: commands.create_session,
        SubmitPrompt: commands.submit_prompt,
        AnswerQuestion: commands.answer_question,
        AbortTurn: commands.abort_turn,
        TerminateSession: commands.terminate_session,
        GetSession: reads.get_session,
        ListSessions: reads.list_sessions,
        ListMessages: reads.list_messages,
        GetDiff: reads.get_diff,
        ReadArchive: reads.read_archive,
    }
    # `*` covers `any` as well
    served = ["*"] if config.all_shards else [*map(str, config.settings.shards), "any"]
    subscriptions = [
        await rpc.serve(nc, f"rpc.ledger.{shard}.{request.method}", request, handler, queue=QUEUE)
        for request, handler in handlers.items()
        for shard in served
    ]
    attach = subjects.sandbox_request("*", AttachRunner.method)
    subscriptions.append(await rpc.serve(nc, attach, AttachRunner, commands.attach_runner, queue=QUEUE))
    return subscriptions
