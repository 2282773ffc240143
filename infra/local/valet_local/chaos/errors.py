"""Errors of a chaos run. What it finds wrong with the platform is no error but a `Violation` of its report.

LocalError
└── ChaosFailed     the run itself could not be carried out; says which part did not answer
"""

from valet_local.errors import LocalError


class ChaosFailed(LocalError):
    pass
