"""The demo's session on a platform that runs, and what is said about it at the end."""

import asyncio
from pathlib import Path

from valet_protocol.events.agent import GitChanged, TurnEnded

from valet_local.cli import tables
from valet_local.cli.pieces import dollars, seconds
from valet_local.cli.prompting import Prompting, Wish
from valet_local.cli.terminal import Terminal
from valet_local.cli.watch import TranscriptView
from valet_local.client.endpoint import Endpoint
from valet_local.client.http import Client
from valet_local.invocation import typed
from valet_local.launch import Platform


def demonstrate(platform: Platform, terminal: Terminal, prompt: str, repo: Path) -> int:
    """Run the session and show it; the exit status. Raises `Refused` and `ClientError`."""
    return asyncio.run(_demonstrate(platform, terminal, Wish(prompt=prompt, repo=str(repo))))


async def _demonstrate(platform: Platform, terminal: Terminal, wish: Wish) -> int:
    async with Client(Endpoint(url=platform.state.url, token=platform.state.token)) as client:
        prompting = Prompting(client, terminal, TranscriptView(terminal), wish, ask=False)
        outcome = await prompting.run()
    if outcome.ended is not None and outcome.status == "completed":
        _show_changes(terminal, prompting.changed)
        _show_figures(terminal, prompting, outcome.ended)
        _show_next(terminal, platform, prompting.session_id or "ID")
    elif outcome.status == "failed":
        terminal.tell(f"{outcome.words}\nThe logs of this run are in {platform.places.logs}", "bad")
    return outcome.exit_code


def _show_changes(terminal: Terminal, changed: GitChanged | None) -> None:
    _heading(terminal, "What it changed")
    if changed is None:
        terminal.line("nothing")
    else:
        terminal.write(tables.diff(changed))


def _show_figures(terminal: Terminal, prompting: Prompting, ended: TurnEnded) -> None:
    _heading(terminal, "In figures")
    first = seconds(ended.first_token_ms) if ended.first_token_ms is not None else "none was streamed"
    rows = [
        ("events in the log", f"{prompting.events}, {prompting.chunks} of them streamed chunks of text"),
        ("first streamed token", f"{first} after the agent got the prompt"),
        ("whole turn", seconds(ended.duration_ms)),
        ("tokens", f"{ended.tokens.input + ended.tokens.cache_read} in, {ended.tokens.output} out"),
        ("cost", f"{dollars(ended.cost)} at a usual model's prices; a scripted one is charged by nobody"),
    ]
    terminal.write(tables.facts(rows))


def _show_next(terminal: Terminal, platform: Platform, session_id: str) -> None:
    _heading(terminal, "What next")
    where = platform.places.data
    for line in (
        "Set ANTHROPIC_API_KEY, OPENAI_API_KEY or GOOGLE_API_KEY, start the platform with",
        f"    {typed('up')}",
        "and beside that, with a git repository of yours:",
        f'    {typed("run")} --repo DIRECTORY --model PROVIDER/MODEL "what is to be done"',
        "",
        f"Everything of this demo is kept in {where}. To see its session again:",
        f"    {typed(f'up --data-dir {where} --port 0')}",
        "and beside that:",
        f"    {typed(f'show --data-dir {where} {session_id}')}",
    ):
        terminal.line(line)


def _heading(terminal: Terminal, text: str) -> None:
    terminal.line()
    terminal.line(text, "strong")
    terminal.line()
