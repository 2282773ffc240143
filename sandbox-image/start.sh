#!/bin/bash
# What a sandbox's container runs. It prepares what only a shell in front of the runner can, and becomes an init with the
# runner as its child; the runner does the rest and says how long each step took (event boot_step_completed):
#
#   1 environment        here: folders, limits; the runner: sockets, the way to the platform
#   2 desktop            here: locks of a former life; the runner: Xvfb, fluxbox, x11vnc, noVNC at their first visitor
#   3 git                the runner: identity, credential helper, what is never committed
#   4 clone              the runner: once; a workspace that is there is kept
#   5 persona            the runner: files in the agent's home, shown to it as instructions
#   6 vscode, 7 terminal the runner: at their first visitor
#   8 runner             here, below: it starts the process service, the gateway and OpenCode
#
# The runner's spec comes on standard input (VALET_RUNNER_SPEC=-) or in the file VALET_RUNNER_SPEC, by default
# /run/valet/runner.json, which the runner removes when it has read it. Nothing secret belongs into the environment:
# the agent's commands inherit none of it, but whoever can inspect the container sees it.
set -euo pipefail

spec="${VALET_RUNNER_SPEC:-/run/valet/runner.json}"
if [[ "$spec" == - ]]; then
    if [[ -t 0 ]]; then
        echo "start.sh: VALET_RUNNER_SPEC is -, but standard input is a terminal; pipe the runner's spec in" >&2
        exit 64
    fi
elif [[ ! -r "$spec" ]]; then
    echo "start.sh: $spec cannot be read; the provider must put the runner's spec there, or set VALET_RUNNER_SPEC=-" >&2
    exit 66
fi

umask 022
export TMPDIR="${TMPDIR:-/tmp}" LANG="${LANG:-C.UTF-8}"
# no core dumps: they would hold what the processes' memory does
ulimit -c 0

# A snapshot holds the locks of what ran when it was taken, and no process of this container is older than this one. Every
# life of OpenCode also leaves the library it unpacked (5 MB), and of the editor its sockets.
rm -f /tmp/.X[0-9]*-lock /tmp/.X11-unix/X[0-9]* 2>/dev/null || true
mkdir -p /tmp/.X11-unix && chmod 1777 /tmp/.X11-unix 2>/dev/null || true
rm -rf "$TMPDIR"/valet-???????? "$TMPDIR"/vscode-*.sock "$TMPDIR"/.[0-9a-f]*-[0-9]*.so 2>/dev/null || true

# As process 1, tini takes in and reaps what loses its parent and passes SIGTERM on; under another init it only passes
# signals on. A SIGTERM ends the runner in order: what it has to say is stored, everything it started ends.
# without the working folder and the agent's own packages on its path
runner=(python -Ps -m valet_runner)
if [[ $$ -eq 1 ]]; then
    exec tini -- "${runner[@]}"
fi
exec "${runner[@]}"
