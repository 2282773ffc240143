"""Output that nobody reads any more, as when `head` has enough: that is no error of anybody."""

import os
import sys

STATUS = 141
"""What a shell says of a program that a broken pipe ended: 128 and the number of SIGPIPE."""


def silence() -> None:
    """What is still to be written goes nowhere: the interpreter, too, would complain at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
