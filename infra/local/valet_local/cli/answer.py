"""`valet answer`: an answer to what the agent asked."""

from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import DataDir, SessionId, Token, Url

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def answer(
    data_dir: DataDir,
    session_id: SessionId,
    answers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ANSWER]...", help="A choice or its number, or your own words; one for each question of a set."
        ),
    ] = None,
    question: Annotated[
        str | None, typer.Option("--question", metavar="ID", help="Which one, if several are open.")
    ] = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Answer a question or permission; without an answer, show what is open.

    Exit status: 0 when it was answered or nothing is open, 1 when something waits for an answer.
    """

    async def answered(client: "Client", terminal: "Terminal") -> int:
        from valet_local.cli import answering, tables

        view = await client.session(session_id)
        waiting = [one for one in view.questions if question is None or one.question_id == question]
        if not answers:
            if not waiting:
                terminal.tell("Nothing waits for an answer.")
                return 0
            terminal.write(tables.questions(waiting))
            return 1
        if len(waiting) > 1:
            terminal.write(tables.questions(waiting))
            terminal.tell("Several wait for an answer; say which one with --question ID", "bad")
            return 1
        given = answering.given(waiting[0], answers) if waiting else [[one] for one in answers]
        which = waiting[0].question_id if waiting else question
        done = await client.answer(session_id, given, question_id=which)
        terminal.tell(f"Answered (event {done.seq}).")
        return 0

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, answered)
