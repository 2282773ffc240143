"""Errors of the session ledger. What a requester may hear are the refusals of `valet_protocol.errors`.

ServiceError (valet_service)
└── LedgerError         any error of this package
    ├── LogBehind       the broker's log is an older copy, and something else was written to it since
    ├── LogReplaced     the broker came back with an older log while the ledger was running
    └── Differs         the read models are not what the log says
"""

from valet_service.errors import ServiceError


class LedgerError(ServiceError):
    """Any error of this package."""


class LogBehind(LedgerError):
    """The log went on from an older copy of itself; going on with it would give out sequences a second time."""

    def __init__(self, log_end: int, checkpoint: int, *, stranger: int) -> None:
        super().__init__(
            f"The log in NATS is an older copy of the one this database belongs to: it agrees with the database up to"
            f" sequence {log_end}, while the database has stored events up to {checkpoint}. The ledger would put the"
            f" missing ones back, but at sequence {stranger} something else has been written meanwhile. Stop every"
            " service, put the same copy of the NATS store in place once more, and run `valet ledger rebuild` before"
            " anything else is started. Or restore the NATS store that belongs to this database; or, to start anew"
            " without the old sessions, remove both."
        )


class LogReplaced(LedgerError):
    """The log ends before what this process has folded from it."""

    def __init__(self, log_end: int, folded: int) -> None:
        super().__init__(
            f"The broker came back with a log that ends at sequence {log_end}; {folded} was the last one read from it."
            " The ledger ends now, and puts the missing events back when it is started again."
        )


class Differs(LedgerError):
    """A rebuild gave other rows than the live read models."""

    def __init__(self, differences: list[str]) -> None:
        self.differences = differences
        super().__init__(
            "The read models differ from what the log says:\n  "
            + "\n  ".join(differences)
            + "\nRun `valet ledger rebuild` to fold them again."
        )
