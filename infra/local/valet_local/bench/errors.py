"""Errors of the benchmarks.

LocalError
└── BenchFailed     a benchmark could not be carried out; says which part did not answer
"""

from valet_local.errors import LocalError


class BenchFailed(LocalError):
    pass
