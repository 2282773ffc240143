"""Claims about who may be in a session's sandbox, as its runner hears it."""

import pytest
from valet_protocol import subjects
from valet_protocol.errors import Forbidden
from valet_protocol.requests import (
    AddParticipant,
    CreateShareLink,
    Done,
    JoinSession,
    ListWriters,
    RemoveParticipant,
    RevokeShareLink,
    SessionView,
    TerminateSession,
    Writers,
)
from valet_protocol.tools import sessions as tools
from valet_service import rpc
from valet_session_ledger.testing import LedgerProcess, Platform


async def _writers(platform: Platform, session: str, asking: str | None = None) -> Writers:
    subject = subjects.sandbox_request(asking or session, ListWriters.method)
    return await rpc.call(platform.nc, subject, ListWriters(session_id=session), Writers)


async def _add(platform: Platform, session: str, user: str, role: str) -> None:
    command = AddParticipant(session_id=session, user="ada", participant=user, role=role)  # type: ignore[arg-type]
    await platform.ask(command, Done)


async def _remove(platform: Platform, session: str, user: str) -> None:
    await platform.ask(RemoveParticipant(session_id=session, user="ada", participant=user), Done)


async def test_a_runner_hears_who_may_write_and_since_when(ledger: LedgerProcess, platform: Platform) -> None:
    session = await platform.create()
    alone = await _writers(platform, session)
    assert (alone.since, alone.inherits) == ({"ada": 0}, False)
    await _add(platform, session, "bob", "collaborator")
    await _add(platform, session, "vic", "viewer")
    both = await _writers(platform, session)
    assert set(both.since) == {"ada", "bob"}
    assert alone.seq < both.since["bob"] <= both.seq

    # a viewer is out; somebody let in again is in since then
    await _add(platform, session, "bob", "viewer")
    assert (await _writers(platform, session)).since == {"ada": 0}
    await _add(platform, session, "bob", "collaborator")
    await _remove(platform, session, "bob")
    assert (await _writers(platform, session)).since == {"ada": 0}
    await _add(platform, session, "bob", "collaborator")
    again = await _writers(platform, session)
    assert again.since["bob"] > both.seq

    # by a link, until it is revoked
    made = CreateShareLink(session_id=session, user="ada", link_id="l", token_sha256="t", role="collaborator")
    await platform.ask(made, Done)
    await platform.ask(JoinSession(session_id=session, user="eve", token_sha256="t"), SessionView)
    assert set((await _writers(platform, session)).since) == {"ada", "bob", "eve"}
    await platform.ask(RevokeShareLink(session_id=session, user="ada", link_id="l"), Done)
    assert set((await _writers(platform, session)).since) == {"ada", "bob"}

    # whoever takes part above takes part below
    await platform.boot(session)
    spawned = await platform.tool(tools.SpawnChild(session_id=session, request_id="r", prompt="Help"))
    child = await _writers(platform, spawned.child_session)
    assert (child.since, child.inherits) == (again.since, True)
    await _remove(platform, session, "bob")
    assert (await _writers(platform, spawned.child_session)).since == {"ada": 0}

    # another session's runner hears nothing, and nobody may be in one that was ended
    with pytest.raises(Forbidden):
        await _writers(platform, session, asking=spawned.child_session)
    await platform.ask(TerminateSession(session_id=session, user="ada"), Done)
    assert (await _writers(platform, session)).since == {}
