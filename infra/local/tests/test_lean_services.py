"""A service starts with what it uses, and no more."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "valet_api",
        "valet_session_ledger",
        "valet_sandbox_controller",
        "valet_sandbox_controller.portal",
        "valet_event_bus",
    ],
)
def test_a_service_does_not_carry_what_only_others_need(module: str) -> None:
    heavy = ("aiohttp", "cryptography", "pydantic", "rich", "mcp")
    words = f"import sys; from valet_service import lifecycle; import {module}.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout.split()
    assert not set(heavy) & set(loaded)
