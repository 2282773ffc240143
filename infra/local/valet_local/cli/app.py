"""Which commands there are. A command is a function in the module of its name."""

import typer

from valet_local.cli import bench, demo, doctor, down, follow, ledger, run, sessions, show, up, users

app = typer.Typer(
    name="valet",
    help="Background coding agents on your own machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("down")(down.down)
app.command("doctor")(doctor.doctor)
app.command("run")(run.run)
app.command("sessions")(sessions.sessions)
app.command("show")(show.show)
app.command("follow")(follow.follow)
app.command("bench")(bench.bench)
app.add_typer(users.app, name="users")
app.add_typer(ledger.app, name="ledger")
