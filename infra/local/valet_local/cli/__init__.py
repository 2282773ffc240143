"""The `valet` command. Each subcommand is a module of its own."""

import sys

from valet_protocol.errors import Refused
from valet_service.config_file import ConfigError

from valet_local.cli import no_reader
from valet_local.errors import LocalError
from valet_local.layout import default_data_dir, layout


def main() -> None:
    """Entry point: errors of ours are a sentence on stderr and exit status 1."""
    from valet_local.cli.app import app

    try:
        app()
    except (LocalError, ConfigError, Refused) as error:
        print(f"error: {_words(error)}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:
        no_reader.silence()
        raise SystemExit(no_reader.STATUS) from None


def _words(error: Exception) -> str:
    """What is said of it: who sits at the platform's own machine is told where its token is."""
    if isinstance(error, Refused) and error.code == "wrong_token":
        path = layout(default_data_dir()).state
        if path.exists():
            return f"the platform does not know this token. That of its owner, if it is the one of this machine: {path}"
    return str(error)
