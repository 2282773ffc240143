"""Errors of the gateway.

GatewayError
├── BadSpec             what came on standard input cannot be used
└── BadTarget           an address of a program that is not of this sandbox

Refused (valet_protocol.errors), what somebody is answered; of ours:
├── NotAdmitted         401  who comes has shown nothing that opens it; why is for the log
├── MethodRefused       405  a verb no proxy passes on
├── WorkerRefused       403  a service worker, which would outlive the tunnel
├── AgentsOnly          403  who comes is known, and it is for the agent's programs or the platform's
├── HeadRefused         400  a request that two programs could read in two ways
├── BackendFailed       502  what runs inside does not answer; says what, and what to do
├── NotYet              503  what is asked for is on its way: who asks again gets it
├── NotStarted          503  it could not be started; says why
└── BackendSilent       504  it took the request and says nothing
"""

from valet_protocol.errors import BadRequest, Forbidden, Refused, Unauthorised, Unavailable


class GatewayError(Exception):
    """Any error of this package that is no answer to somebody."""


class BadSpec(GatewayError):
    """The spec is missing or cannot be read."""


class BadTarget(GatewayError):
    """Neither `http://127.0.0.1:<port>` nor `unix:<path>`."""

    def __init__(self, target: str) -> None:
        super().__init__(f"{target!r} is no program of this sandbox; use http://127.0.0.1:<port> or unix:</path>")


class NotAdmitted(Unauthorised):
    """Nothing shown opens this. `reason` is for the log only."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "sandbox_token",
            "This needs a valid token of this session. Open it again from the session in Valet, or ask"
            " GET /api/sessions/{id}/sandbox-token of the platform for one and send it as a bearer or as ?token=.",
        )
        self.reason = reason


class MethodRefused(Refused):
    """A verb that is not passed on; said as the platform's API says it. `allowed` are those that are."""

    status, title = 405, "Method not allowed"

    def __init__(self, *allowed: str) -> None:
        super().__init__(
            "method_not_allowed", "This address does not take that method; the header Allow says which it takes."
        )
        self.allowed = allowed


class WorkerRefused(Forbidden):
    """A script that would stay in the browser, at an address that may be another session's later."""

    def __init__(self) -> None:
        super().__init__(
            "service_worker",
            "A tunnel's own address takes no service workers: the address may belong to another session later, and a"
            " service worker would stay.",
        )


class AgentsOnly(Forbidden):
    """A person asks for what no person's token opens."""

    def __init__(self) -> None:
        super().__init__(
            "agents_only",
            "This is for the agent's own programs, inside the sandbox. Your access is good for /vscode/, /vnc/, /ttyd/,"
            " /t/<tunnel>/, /v1/processes and /api/tunnels; what the platform has is at its own address.",
        )


class HeadRefused(BadRequest):
    """A request whose head is not unmistakable."""

    def __init__(self, detail: str) -> None:
        super().__init__("bad_head", detail)


class BackendFailed(Refused):
    """A program inside is not there, or broke off."""

    status, title = 502, "Not answering"

    def __init__(self, detail: str) -> None:
        super().__init__("backend_down", detail)


class NotYet(Unavailable):
    """What is asked for is starting."""

    title = "Starting"

    def __init__(self, detail: str) -> None:
        super().__init__("service_starting", detail)


class NotStarted(Unavailable):
    """What is asked for could not be started."""

    title = "Could not be started"

    def __init__(self, detail: str) -> None:
        super().__init__("service_failed", detail)


class BackendSilent(Refused):
    """A program inside took a request and did not answer it in time."""

    status, title = 504, "No answer in time"

    def __init__(self, detail: str) -> None:
        super().__init__("backend_silent", detail)
