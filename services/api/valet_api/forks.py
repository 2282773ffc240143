"""What a fork starts from: the source's saved work, copied into the new session's folder."""

import asyncio

import msgspec
from valet_protocol.errors import Conflict, Unavailable
from valet_protocol.events.agent import WorkRef
from valet_service.object_store import ObjectNotFound, ObjectStore, ObjectStoreUnavailable

from valet_api import limits


class Forks:
    """Raises `Unavailable` while the object store is away."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def copy(self, work: WorkRef | None, session_id: str) -> WorkRef | None:
        """The work as a session's own. A second time changes nothing. Raises `Conflict` where it is gone."""
        if work is None:
            return None
        target = f"sessions/{session_id}/saved/fork"
        try:
            async with asyncio.timeout(limits.COPY_WAIT):
                await self._objects.copy(work.object, target)
        except ObjectNotFound as error:
            raise Conflict(
                "work_not_found",
                "The files as they were then are not in the object store any more; fork at a later message.",
            ) from error
        except (ObjectStoreUnavailable, TimeoutError) as error:
            raise Unavailable(
                "objects_unavailable", "The saved files cannot be copied at the moment; try again."
            ) from error
        return msgspec.structs.replace(work, object=target)
