"""Claims about what a service is told by its environment."""

from pathlib import Path

import pytest
from valet_protocol import subjects
from valet_service import settings
from valet_service.errors import BadSettings

URL = {"VALET_NATS_URL": "nats://127.0.0.1:4222"}


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(BadSettings, match="VALET_NATS_URL is not set"):
        settings.load({})


def test_a_service_without_more_than_the_broker_has_defaults_for_the_rest() -> None:
    found = settings.load(URL)
    assert found.shards == tuple(range(subjects.SHARDS))
    assert (found.nats_creds, found.config) == (None, None)
    assert found.keys_dir == found.data_dir / "keys"


def test_what_is_set_is_taken() -> None:
    found = settings.load({**URL, "VALET_DATA_DIR": "/d", "VALET_RUN_DIR": "/r", "VALET_SHARDS": "3"})
    assert (found.data_dir, found.run_dir, found.keys_dir, found.shards) == (
        Path("/d"),
        Path("/r"),
        Path("/d/keys"),
        (3,),
    )


def test_an_empty_path_counts_as_not_set() -> None:
    assert settings.load({**URL, "VALET_NATS_CREDS": "", "VALET_CONFIG": ""}).nats_creds is None


@pytest.mark.parametrize(
    ("text", "shards"), [("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), ("8,0-1,1", (0, 1, 8)), (" 2 , 4 ", (2, 4))]
)
def test_shards_are_numbers_and_ranges(text: str, shards: tuple[int, ...]) -> None:
    assert settings.parse_shards(text) == shards


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "16", "0-16", "3-1", "1,,2", "0-99999999999999"])
def test_shards_that_cannot_be_are_refused_with_the_variables_name(text: str) -> None:
    with pytest.raises(BadSettings, match="VALET_SHARDS"):
        settings.parse_shards(text)
