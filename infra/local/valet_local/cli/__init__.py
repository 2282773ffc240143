"""The `valet` command. Each subcommand is a module of its own."""

import os
import sys

from valet_protocol.errors import Refused
from valet_service.config_file import ConfigError

from valet_local.errors import LocalError


def main() -> None:
    """Entry point: errors of ours are a sentence on stderr and exit status 1."""
    from valet_local.cli.app import app

    try:
        app()
    except (LocalError, ConfigError, Refused) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:
        # Whoever read our output has enough, as `head` does: that is no error of anybody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
