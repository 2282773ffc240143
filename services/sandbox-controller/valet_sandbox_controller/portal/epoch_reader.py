"""How the portal learns of newer epochs and of sessions that ended: from the log.

The newest request of every session first, whenever the portal starts, then each as it is made. Nobody has to tell the
portal anything, so it makes no difference who restarts when.
"""

import asyncio

from nats.aio.client import Client
from valet_protocol import codec, subjects
from valet_protocol.events.facts import SandboxReleaseRequested, SandboxRequested
from valet_service import logs
from valet_service.credentials import PORTAL_READS
from valet_service.log_reader import LogReader

from valet_sandbox_controller import limits
from valet_sandbox_controller.portal.epochs import Epochs

_log = logs.get(__name__)


async def follow(nc: Client, epochs: Epochs) -> None:
    """Tell `epochs` what the log says, without end; waits while the broker is away."""
    async with asyncio.TaskGroup() as group:
        for name in PORTAL_READS:
            group.create_task(_follow(nc, name, epochs))


async def _follow(nc: Client, event_name: str, epochs: Epochs) -> None:
    loop = asyncio.get_running_loop()
    async with LogReader(nc, [subjects.every("fact", event_name)], start=1, latest=True, removes=False) as reader:
        while True:
            for entry in await reader.batch(limits.EPOCH_BATCH):
                event = codec.decode(entry.payload, entry.seq)
                match event.data:
                    case SandboxRequested(epoch=epoch):
                        if cut := epochs.requested(event.session_id, epoch):
                            _log.info("replaced_sandbox_cut", session=event.session_id, epoch=epoch, connections=cut)
                    case SandboxReleaseRequested(epoch=epoch):
                        epochs.released(event.session_id, epoch)
                        loop.call_later(limits.RELEASE_CUT, epochs.cut_released, event.session_id)
                    case _:
                        _log.warning("fact_not_understood", type=event.type, seq=entry.seq)
