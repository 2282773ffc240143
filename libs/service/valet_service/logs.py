"""Logging: one JSON object a line on standard error."""

import importlib
import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import structlog
else:
    # structlog loads rich where it is installed, for tracebacks in colour that no service prints: 4 MB a process
    _absent = object()
    _rich = sys.modules.get("rich", _absent)
    sys.modules["rich"] = None
    structlog = importlib.import_module("structlog")
    if _rich is _absent:
        del sys.modules["rich"]
    else:
        sys.modules["rich"] = _rich


def configure(service: str, level: str = "info") -> None:
    """Set up structlog for this process; every line carries the service's name."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger for a module."""
    return structlog.get_logger(module=name)
