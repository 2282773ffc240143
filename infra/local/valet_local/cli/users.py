"""`valet users`: who may sign in."""

from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import DataDir
from valet_local.errors import LocalError
from valet_local.layout import layout
from valet_local.limits import REQUEST_TIMEOUT
from valet_local.state import require

if TYPE_CHECKING:
    import httpx

app = typer.Typer(help="Who may sign in.", no_args_is_help=True)


@app.callback()
def users() -> None:
    """Who may sign in."""


@app.command("add")
def add(
    data_dir: DataDir,
    name: Annotated[str, typer.Argument(help="How the user is called.")],
) -> None:
    """Add a user to the running platform and print the token to sign in with. It is shown only once."""
    import httpx  # slow to import, and only this command needs it

    state = require(data_dir, layout(data_dir))
    try:
        answer = httpx.post(
            f"{state.url}/api/users",
            json={"name": name},
            headers={"authorization": f"Bearer {state.token}"},
            timeout=REQUEST_TIMEOUT,
        )
    except httpx.HTTPError as error:
        raise LocalError(f"the platform at {state.url} does not answer: {error}") from None
    if answer.is_error:
        raise LocalError(_reason(answer))
    typer.echo(answer.json()["token"])


def _reason(answer: "httpx.Response") -> str:
    try:
        problem = answer.json()
    except ValueError:
        return f"the platform answered {answer.status_code}"
    return problem.get("detail") or problem.get("title") or f"the platform answered {answer.status_code}"
