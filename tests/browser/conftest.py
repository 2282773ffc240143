"""A page for every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.browser import Page


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    opened = Page(tmp_path / "profile")
    yield opened
    opened.close()
