"""Which request goes to which method: the ledger's subjects."""

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from valet_protocol import subjects
from valet_protocol.requests import (
    AbortTurn,
    AddParticipant,
    AnswerQuestion,
    Attached,
    AttachRunner,
    ChangePolicy,
    CreateSession,
    CreateShareLink,
    EditPrompt,
    FindImage,
    ForkSession,
    GetCommand,
    GetDiff,
    GetOwner,
    GetReview,
    GetSession,
    GetState,
    ImportEvents,
    JoinSession,
    ListMessages,
    ListParticipants,
    ListPrompts,
    ListSessions,
    ListSuperfluousWork,
    ListTurns,
    ListWriters,
    NoteParentTold,
    PlanFork,
    ReadArchive,
    RemoveParticipant,
    RenameSession,
    ReorderQueue,
    Reply,
    ReportChild,
    Request,
    RequestChild,
    RequestCommand,
    RequestCompletion,
    RevokeShareLink,
    SubmitPrompt,
    TerminateSession,
    WithdrawPrompt,
    Writers,
)
from valet_protocol.tools import sessions as tools
from valet_protocol.tools.base import Tool
from valet_protocol.tools.channels import ListChannels
from valet_service import rpc

from valet_session_ledger.commands import Commands
from valet_session_ledger.config import Config
from valet_session_ledger.family import Family
from valet_session_ledger.history import History
from valet_session_ledger.peers import Handler, Peers, of_a_sandbox
from valet_session_ledger.reads import Reads
from valet_session_ledger.transfer import Transfers

QUEUE = "ledger"
"""Replicas share the requests."""

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
    RequestChild,
    ReportChild,
    NoteParentTold,
    RequestCompletion,
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
        FindImage: reads.find_image,
        GetCommand: reads.get_command,
        ListParticipants: reads.list_participants,
        ReadArchive: reads.read_archive,
        GetOwner: commands.get_owner,
        GetState: history.get_state,
        PlanFork: transfers.plan_fork,
        ListSuperfluousWork: transfers.list_superfluous_work,
        ForkSession: transfers.fork_session,
        ImportEvents: transfers.import_events,
    }


def of_sandboxes(commands: Commands, reads: Reads, family: Family) -> dict[type[Request], tuple[Handler, type[Reply]]]:
    """The method that answers each request of a sandbox, and what it answers with."""
    answers: dict[type[Tool], Handler] = {
        tools.SpawnChild: family.spawn_child,
        tools.TerminateChild: family.terminate_child,
        tools.SendMessage: family.send_message,
        tools.ReadMessages: family.read_messages,
        tools.ForwardMessages: family.forward_messages,
        tools.ListChildren: family.list_children,
        tools.GetSessionStatus: family.session_status,
        tools.CompleteSession: family.complete_session,
        tools.NotifyParent: family.notify_parent,
        tools.ListSessions: family.list_sessions,
        ListChannels: family.list_channels,
    }
    return {
        AttachRunner: (commands.attach_runner, Attached),
        ListWriters: (reads.list_writers, Writers),
        **{tool: (handler, tool.reply) for tool, handler in answers.items()},
    }


async def serve(
    nc: Client,
    config: Config,
    answers: dict[type[Request], Handler],
    sandboxes: dict[type[Request], tuple[Handler, type[Reply]]],
    peers: Peers,
) -> list[Subscription]:
    """Answer requests from now on."""
    own = ["*"] if config.all_shards else [*map(str, config.settings.shards)]
    served = own if config.all_shards else [*own, "any"]  # `*` covers `any` as well
    subscriptions = [
        await rpc.serve(nc, f"rpc.ledger.{shard}.{request.method}", request, handler, queue=QUEUE)
        for request, handler in answers.items()
        for shard in served
    ]
    for request, (handler, reply) in sandboxes.items():
        subject = subjects.sandbox_request("*", request.method)
        subscriptions.append(await rpc.serve(nc, subject, request, peers.at_its_ledger(handler, reply), queue=QUEUE))
        subscriptions += [
            await rpc.serve(nc, f"rpc.ledger.{shard}.{of_a_sandbox(request.method)}", request, handler, queue=QUEUE)
            for shard in own
        ]
    return subscriptions
