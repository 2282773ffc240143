"""The session ledger's integration tests, the very same functions, on the stock NATS and PostgreSQL images.

Bug class this catches: something that only holds for the embedded builds (a version, a locale, a setting).
"""

import importlib.util
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

_FOLDER = Path(__file__).parents[3] / "services" / "session-ledger" / "tests"

for _file in ("test_ledger_sessions.py", "test_ledger_survives.py"):
    _spec = importlib.util.spec_from_file_location(f"stock_{_file.removesuffix('.py')}", _FOLDER / _file)
    assert _spec
    assert _spec.loader
    _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
    globals().update({name: value for name, value in vars(_module).items() if name.startswith("test_")})
