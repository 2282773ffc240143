"""Which request goes to which method: the ledger's subjects."""

from collections.abc import Awaitable, Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from valet_protocol import subjects
from valet_protocol.requests import (
    AbortTurn,
    AddParticipant,
    AnswerQuestion,
    AttachRunner,
    ChangePolicy,
    CreateSession,
    CreateShareLink,
    EditPrompt,
    ForkSession,
    GetCommand,
    GetDiff,
    GetReview,
    GetSession,
    GetState,
    ImportEvents,
    JoinSession,
    ListMessages,
    ListParticipants,
    ListPrompts,
    ListSessions,
    ListTurns,
    PlanFork,
    ReadArchive,
    RemoveParticipant,
    RenameSession,
    ReorderQueue,
    Reply,
    Request,
    RequestCommand,
    RevokeShareLink,
    SubmitPrompt,
    TerminateSession,
    WithdrawPrompt,
)
from valet_service import rpc

from valet_session_ledger.commands import Commands
from valet_session_ledger.config import Config
from valet_session_ledger.history import History
from valet_session_ledger.reads import Reads
from valet_session_ledger.transfer import Transfers

QUEUE = "ledger"
"""Replicas share the requests."""

Handler = Callable[[Any], Awaitable[Reply]]

SIMPLE = (
    EditPrompt,
    WithdrawPrompt,
    ReorderQueue,
    AnswerQuestion,
    AbortTurn,
    TerminateSession,
    RenameSession,
    ChangePolicy,
    AddParticipant,
    RemoveParticipant,
    CreateShareLink,
    RevokeShareLink,
)
"""Commands whose reply says no more than that they took effect."""


def handlers(commands: Commands, reads: Reads, history: History, transfers: Transfers) -> dict[type[Request], Handler]:
    """The method that answers each request."""
    return {
        **dict.fromkeys(SIMPLE, commands.carry_out),
        CreateSession: commands.create_session,
        SubmitPrompt: commands.submit_prompt,
        JoinSession: commands.join_session,
        RequestCommand: commands.request_command,
        GetSession: reads.get_session,
        ListSessions: reads.list_sessions,
        ListMessages: reads.list_messages,
        ListTurns: reads.list_turns,
        ListPrompts: reads.list_prompts,
        GetDiff: reads.get_diff,
        GetReview: reads.get_review,
        GetCommand: reads.get_command,
        ListParticipants: reads.list_participants,
        ReadArchive: reads.read_archive,
        GetState: history.get_state,
        PlanFork: transfers.plan_fork,
        ForkSession: transfers.fork_session,
        ImportEvents: transfers.import_events,
    }


async def serve(
    nc: Client, config: Config, commands: Commands, reads: Reads, history: History, transfers: Transfers
) -> list[Subscription]:
    """Answer requests from now on."""
    # `*` covers `any` as well
    served = ["*"] if config.all_shards else [*map(str, config.settings.shards), "any"]
    subscriptions = [
        await rpc.serve(nc, f"rpc.ledger.{shard}.{request.method}", request, handler, queue=QUEUE)
        for request, handler in handlers(commands, reads, history, transfers).items()
        for shard in served
    ]
    attach = subjects.sandbox_request("*", AttachRunner.method)
    subscriptions.append(await rpc.serve(nc, attach, AttachRunner, commands.attach_runner, queue=QUEUE))
    return subscriptions
