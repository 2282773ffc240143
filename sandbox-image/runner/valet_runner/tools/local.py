"""What is answered in the sandbox itself, put together."""

from collections.abc import Mapping

from valet_protocol.sandbox_spec import RunnerSpec
from valet_protocol.tools import (
    ChannelReply,
    CheckTunnel,
    DeleteTunnel,
    ListModels,
    ListTunnels,
    RegisterTunnel,
    ReportGitState,
    ShowImage,
    Tool,
    TranscribeAudio,
)

from valet_runner.objects import Objects
from valet_runner.tools.channel_replies import ChannelReplies
from valet_runner.tools.git_reports import GitReports
from valet_runner.tools.images import Images
from valet_runner.tools.models import Models
from valet_runner.tools.recordings import Recordings
from valet_runner.tools.running import Handler
from valet_runner.tools.saying import Say
from valet_runner.tools.tunnels import Gateway, Tunnels


def handlers(
    spec: RunnerSpec,
    *,
    env: Mapping[str, str],
    base_commit: str | None,
    say: Say,
    objects: Objects,
    control_socket: str,
) -> dict[type[Tool], Handler]:
    """A handler for each tool that is `served_by` the runner.

    `env` is git's, `say` the publisher's, `control_socket` the gateway's.
    """
    tunnels = Tunnels(Gateway(control_socket), say)
    return {
        ListTunnels: tunnels.list,
        RegisterTunnel: tunnels.register,
        CheckTunnel: tunnels.check,
        DeleteTunnel: tunnels.delete,
        ChannelReply: ChannelReplies(say).reply,
        ShowImage: Images(spec, objects, say).show,
        ReportGitState: GitReports(spec, env, base_commit, say).report,
        TranscribeAudio: Recordings(spec).text,
        ListModels: Models(spec).list,
    }
