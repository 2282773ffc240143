"""Errors of the session ledger. What a requester may hear are the refusals of `valet_protocol.errors`.

ServiceError (valet_service)
└── LedgerError         any error of this package
    ├── LogBehind       the broker's log ends before what the read models hold
    └── Differs         the read models are not what the log says
"""

from valet_service.errors import ServiceError


class LedgerError(ServiceError):
    """Any error of this package."""


class LogBehind(LedgerError):
    """The log was lost or replaced by an older copy; going on would give out sequences a second time."""

    def __init__(self, log_end: int, checkpoint: int) -> None:
        super().__init__(
            f"The log in NATS ends at sequence {log_end}, but the database has already stored events up to"
            f" {checkpoint}: the broker's data was lost or is older than the database's. Restore the NATS store that"
            " belongs to this database; or, to start anew without the old sessions, remove both."
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
