"""The demo's session on a platform that runs, and what is said about it at the end."""

import asyncio
from pathlib import Path

from valet_protocol.requests import DiffView, SessionView

from valet_local.cli import tables
from valet_local.cli.outcome import Outcome
from valet_local.cli.pieces import dollars, seconds
from valet_local.cli.prompting import Prompting, Wish
from valet_local.cli.terminal import Terminal
from valet_local.cli.watch import TranscriptView
from valet_local.client.endpoint import Endpoint
from valet_local.client.http import Client
from valet_local.launch import Platform


def demonstrate(platform: Platform, terminal: Terminal, prompt: str, repo: Path) -> int:
    """Run the session and show it; the exit status. Raises `Refused` and `ClientError`."""
    return asyncio.run(_demonstrate(platform, terminal, Wish(prompt=prompt, repo=str(repo))))


async def _demonstrate(platform: Platform, terminal: Terminal, wish: Wish) -> int:
    async with Client(Endpoint(url=platform.state.url, token=platform.state.token)) as client:
        prompting = Prompting(client, terminal, TranscriptView(terminal), wish, ask=False)
        outcome = await prompting.run()
        if outcome.status == "completed" and prompting.session_id is not None:
            diff = await client.diff(prompting.session_id)
            session = await client.session(prompting.session_id)
            _sum_up(terminal, platform, prompting, outcome, session, diff)
        elif outcome.status == "failed":
            terminal.tell(f"The logs of this run are in {platform.places.logs}", "bad")
        return outcome.exit_code


def _sum_up(
    terminal: Terminal, platform: Platform, prompting: Prompting, outcome: Outcome, session: SessionView, diff: DiffView
) -> None:
    terminal.line()
    terminal.line("What it changed", "strong")
    terminal.line()
    terminal.write(tables.diff(diff))
    terminal.line()
    terminal.line("In figures", "strong")
    terminal.line()
    ended = outcome.ended
    tokens = session.tokens
    first = seconds(ended.first_token_ms) if ended and ended.first_token_ms is not None else "none was streamed"
    rows = [
        ("events", f"{prompting.events}, {prompting.chunks} of them streamed chunks of text"),
        ("cost", f"{dollars(session.cost)} (scripted: nobody charges it)"),
        ("tokens", f"{tokens.input + tokens.cache_read} in, {tokens.output} out"),
        ("first streamed token", f"{first} after the agent got the prompt"),
        ("turn", seconds(ended.duration_ms) if ended else "–"),
        ("kept in", str(platform.places.data)),
    ]
    terminal.write(tables.facts(rows))
    terminal.line()
    terminal.line("What next", "strong")
    terminal.line()
    where = platform.places.data
    terminal.write(
        tables.facts(
            [
                (
                    "valet up",
                    "run the platform; an API key in ANTHROPIC_API_KEY, OPENAI_API_KEY or GOOGLE_API_KEY is all",
                ),
                ('valet run --repo . "…"', "give an agent something to do in a repository of yours"),
                (f"valet up --data-dir {where}", "run the platform of this demo again, then:"),
                (f"valet show {session.id} --data-dir {where}", "see this session again"),
            ]
        )
    )
