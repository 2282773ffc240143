"""What people are advised to type. Pure."""

import pytest
from valet_local.invocation import program


@pytest.mark.parametrize(
    ("argv", "environment", "expected"),
    [
        (["/v/bin/valet", "up"], {"PATH": "/usr/bin:/v/bin"}, "valet"),
        (["/v/bin/valet", "up"], {"PATH": "/v/bin", "UV_RUN_RECURSION_DEPTH": "1"}, "uv run valet"),
        ([".venv/bin/valet"], {"PATH": "/usr/bin"}, ".venv/bin/valet"),
        (["/a b/valet"], {"PATH": "/usr/bin"}, "'/a b/valet'"),
        (["-c", "sessions"], {"PATH": "/usr/bin"}, "valet"),
        ([], {}, "valet"),
    ],
)
def test_a_command_is_advised_as_it_can_be_typed_here(
    argv: list[str], environment: dict[str, str], expected: str
) -> None:
    assert program(argv, environment) == expected
