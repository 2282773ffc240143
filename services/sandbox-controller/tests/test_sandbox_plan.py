"""Claims about what is done when a sandbox is asked for, released, or found at start."""

import msgspec
import pytest
from valet_protocol.events.facts import SandboxReleaseRequested, SandboxRequested
from valet_sandbox_controller.plan import (
    Ignore,
    Release,
    ReportLost,
    Start,
    Watch,
    found_at_start,
    loss_in_words,
    release_requested,
    requested,
)
from valet_sandbox_controller.provider import Ended, Running, SandboxRef
from valet_sandbox_controller.store import SandboxRecord

REF = SandboxRef(provider="local", id="S", pid=10, start_time=20)
REQUEST = SandboxRequested(epoch=2, reason="prompt", model="p/m", boot_deadline_ms=1000)
RUNNING = SandboxRecord(session_id="S", epoch=2, state="running", request=REQUEST, ref=REF)


def _at(epoch: int) -> SandboxRequested:
    return msgspec.structs.replace(REQUEST, epoch=epoch)


def test_a_first_request_starts_a_sandbox() -> None:
    assert requested(None, REQUEST, now_ms=0) == Start(request=REQUEST)


def test_the_same_request_again_does_not_start_a_second_sandbox() -> None:
    assert requested(RUNNING, REQUEST, now_ms=0) == Watch(record=RUNNING, announce=True)


def test_a_newer_epoch_replaces_the_running_sandbox() -> None:
    assert requested(RUNNING, _at(3), now_ms=0) == Start(request=_at(3), replaces=REF)


def test_an_older_epoch_is_ignored() -> None:
    assert requested(RUNNING, _at(1), now_ms=0) == Ignore(reason="superseded")


@pytest.mark.parametrize("state", ["lost", "hibernated", "failed"])
def test_a_request_whose_sandbox_has_ended_is_not_served_again(state: str) -> None:
    record = msgspec.structs.replace(RUNNING, state=state)
    assert requested(record, REQUEST, now_ms=0) == Ignore(reason="already_ended")


def test_a_start_cut_short_by_a_crash_is_done_again() -> None:
    record = msgspec.structs.replace(RUNNING, state="starting", ref=None)
    assert requested(record, REQUEST, now_ms=0) == Start(request=REQUEST)


def test_a_request_past_its_boot_deadline_starts_nothing() -> None:
    assert requested(None, REQUEST, now_ms=1000) == Ignore(reason="too_late")


def test_a_running_sandbox_is_not_doubted_because_its_boot_deadline_passed() -> None:
    assert requested(RUNNING, REQUEST, now_ms=5000) == Watch(record=RUNNING, announce=True)


def test_a_released_session_gets_no_sandbox_again() -> None:
    record = msgspec.structs.replace(RUNNING, state="terminated")
    assert requested(record, _at(9), now_ms=0) == Ignore(reason="released")


def test_a_release_ends_the_sandbox_of_whatever_epoch_runs() -> None:
    release = SandboxReleaseRequested(epoch=1, reason="terminated", delete_workspace=True)
    assert release_requested(RUNNING, release) == Release(epoch=2, request=release, ref=REF)


def test_a_session_released_before_its_sandbox_is_remembered_as_released() -> None:
    release = SandboxReleaseRequested(epoch=1, reason="terminated")
    assert release_requested(None, release) == Release(epoch=1, request=release, ref=None)


def test_a_sandbox_that_still_runs_is_adopted_silently() -> None:
    assert found_at_start(RUNNING, Running(), now_ms=9999) == Watch(record=RUNNING, announce=False)


def test_a_sandbox_that_vanished_while_nobody_looked_is_reported_lost() -> None:
    assert found_at_start(RUNNING, Ended(137), now_ms=0) == ReportLost(record=RUNNING, exit_code=137)


def test_a_killed_sandbox_points_at_its_memory_limit() -> None:
    assert "memory_mb" in loss_in_words("S", 137)
    assert "exit code 3" in loss_in_words("S", 3)


def test_an_unfinished_start_found_at_start_is_finished() -> None:
    record = msgspec.structs.replace(RUNNING, state="starting", ref=None)
    assert found_at_start(record, None, now_ms=0) == Start(request=REQUEST)
