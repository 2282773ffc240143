"""Become another user, if need be with some directories brought within reach, and run a program in our place.

    python -m valet_local.postgres_exec UID GID [DIRECTORY:NAME ...] -- PROGRAM ARGUMENT...

Each DIRECTORY is seen by the program as /tmp/NAME, in a mount namespace of its own; nothing changes for
anybody else. Needs root, and for directories the right to mount. The process id stays the same, so that
signals and waiting work as if there were no launcher.
"""

import ctypes
import os
import signal
import sys

_CLONE_NEWNS = 0x00020000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 1 << 18
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Never returns."""
    split = arguments.index("--")
    uid, gid, *binds = arguments[:split]
    program = arguments[split + 1 :]
    parent = os.getppid()
    if binds:
        _bring_within_reach([bind.rpartition(":") for bind in binds])
    os.chdir("/")
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
    if sys.platform == "linux":
        # Changing the user clears this, so it comes after. SIGINT is PostgreSQL's fast shutdown.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            raise SystemExit("the supervisor ended during the start")
    os.execv(program[0], program)


def _bring_within_reach(binds: list[tuple[str, str, str]]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)

    def check(result: int, what: str) -> None:
        if result != 0:
            reason = os.strerror(ctypes.get_errno())
            raise SystemExit(
                f"FATAL: cannot {what}: {reason}. As root, PostgreSQL runs as another user, who cannot reach "
                "this directory. Put Valet and its --data-dir where others may enter (/opt, /var/lib), or "
                "run it as an ordinary user"
            )

    def mount(source: str, target: str, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
        result = libc.mount(os.fsencode(source), os.fsencode(target), kind, flags, options)
        check(result, f"mount {source} on {target}")

    check(libc.unshare(_CLONE_NEWNS), "make a mount namespace")
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    # Opened before /tmp is covered, because they may lie below it.
    sources = [(name, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path, _, name in binds]
    mount("tmpfs", "/tmp", b"tmpfs", 0, b"mode=0755,size=1m")
    for name, descriptor in sources:
        os.mkdir(f"/tmp/{name}")
        mount(f"/proc/self/fd/{descriptor}", f"/tmp/{name}", None, _MS_BIND | _MS_REC)
        os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1:])
