"""`valet share` and `valet join`: who takes part."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import AsJson, DataDir, SessionId, Token, Url
from valet_local.invocation import typed

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


class Role(StrEnum):
    """What somebody may do."""

    viewer = "viewer"
    collaborator = "collaborator"


def share(
    data_dir: DataDir,
    session_id: SessionId,
    user: Annotated[str | None, typer.Option(help="Let this user (name or id) take part.")] = None,
    link: Annotated[bool, typer.Option("--link", help="Make a link by which people may join.")] = False,
    role: Annotated[Role, typer.Option(help="What they may do: read, or also prompt and answer.")] = Role.viewer,
    expires: Annotated[int | None, typer.Option(metavar="SECONDS", min=60, help="How long the link is valid.")] = None,
    revoke: Annotated[
        str | None, typer.Option(metavar="LINK|USER", help="Make a link void, or end somebody's part.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Share a session with a user or by a link, or end it; without any of them, list who takes part."""
    if sum((user is not None, link, revoke is not None)) > 1:
        raise typer.BadParameter("give one of --user, --link and --revoke at a time")
    if expires is not None and not link:
        raise typer.BadParameter("--expires is for a --link")

    async def shared(client: "Client", terminal: "Terminal") -> None:
        import msgspec
        from valet_protocol.errors import NotFound

        from valet_local.cli import tables

        if link:
            made = await client.create_link(session_id, role.value, expires_in_s=expires)
            if as_json:
                terminal.raw(msgspec.json.encode(made))
            else:
                terminal.line(made.url)
                terminal.tell(
                    "Whoever has it may join with `valet join`. "
                    f"Void it: {typed(f'share {session_id} --revoke {made.link_id}')}"
                )
            return
        if user is not None:
            await client.add_participant(session_id, user, role.value)
        elif revoke is not None:
            known = await client.participants(session_id)
            if any(one.link_id == revoke for one in known.links):
                await client.revoke_link(session_id, revoke)
            else:
                await client.remove_participant(session_id, revoke)
                if not any(revoke in (one.user, one.name) for one in known.participants):
                    raise NotFound("nobody_revoked", f"No link and nobody who takes part is called {revoke!r}.")
        found = await client.participants(session_id)
        if as_json:
            terminal.raw(msgspec.json.format(msgspec.json.encode(found)))
        else:
            terminal.write(tables.participants(found))

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, shared)


def join(
    data_dir: DataDir,
    link: Annotated[str, typer.Argument(metavar="TOKEN", help="The link's address, or the token in it.")],
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Join a session by a share link, and print its id."""

    async def joined(client: "Client", terminal: "Terminal") -> None:
        import msgspec

        view = await client.join(link.rpartition("#")[2].strip())
        if as_json:
            terminal.raw(msgspec.json.encode(view))
        else:
            terminal.line(view.id)
            terminal.tell(f"You are a {view.role} of {view.title or 'it'} now: {typed(f'follow {view.id}')}")

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, joined)
