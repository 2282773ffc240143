"""How a runner is told its specification without a file: on its standard input, from a pipe that is full already."""

import fcntl
import os

from valet_sandbox_controller import limits
from valet_sandbox_controller.errors import ProviderFailed


def filled(content: bytes) -> int:
    """A descriptor to read `content` from, once. The caller closes it.

    Nobody has to stay to write: what is in a pipe stays there when its writer is killed. And once it is read it is
    nowhere any more, where a file (one in memory too) could be opened again by whoever finds the descriptor.

    Raises `ProviderFailed` for more than a pipe holds.
    """
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        if len(content) > limits.SPEC_BYTES:
            raise ProviderFailed(
                f"What the sandbox is to be told has {len(content):,} bytes, more than {limits.SPEC_BYTES:,}:"
                " name fewer models in valet.toml, or shorten the agent's persona.",
                retryable=False,
            )
        if len(content) > fcntl.fcntl(write, fcntl.F_GETPIPE_SZ):
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, len(content))
        os.write(write, content)
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    return read
