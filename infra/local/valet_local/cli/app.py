"""Which commands there are. A command is a function in the module of its name."""

import typer

from valet_local.cli import (
    abort,
    answer,
    bench,
    chaos,
    demo,
    diff,
    doctor,
    down,
    execute,
    follow,
    fork,
    ledger,
    open,
    ps,
    queue,
    rename,
    revert,
    rm,
    run,
    send,
    sessions,
    share,
    show,
    state,
    transfer,
    up,
    users,
)

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
app.command("send")(send.send)
app.command("answer")(answer.answer)
app.command("abort")(abort.abort)
app.command("queue")(queue.queue)
app.command("diff")(diff.diff)
app.command("open")(open.open_sandbox)
app.command("ps")(ps.ps)
app.command("exec")(execute.execute)
app.command("revert")(revert.revert)
app.command("unrevert")(revert.unrevert)
app.command("fork")(fork.fork)
app.command("export")(transfer.export)
app.command("import")(transfer.import_session)
app.command("share")(share.share)
app.command("join")(share.join)
app.command("rename")(rename.rename)
app.command("state")(state.state)
app.command("rm")(rm.rm)
app.command("chaos")(chaos.chaos)
app.add_typer(bench.app, name="bench")
app.add_typer(users.app, name="users")
app.add_typer(ledger.app, name="ledger")
