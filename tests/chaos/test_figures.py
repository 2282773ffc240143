"""The figures of a report are of the right faults. Pure."""

from pathlib import Path

import msgspec
import pytest
from chaos.history import faultless
from valet_local.bench import marked
from valet_local.bench.report import Machine
from valet_local.chaos import page, plan, report
from valet_local.chaos.faults import marked_alone
from valet_local.chaos.records import FaultKind, FaultRecord, Violation


def fault(target: str, began: float, took: float, kind: FaultKind = "kill", session: str = "") -> FaultRecord:
    return FaultRecord(number=0, kind=kind, target=target, began=began, ended=began, recovered=took, session_id=session)


def test_a_recovery_into_which_another_fault_of_its_way_fell_is_not_measured() -> None:
    marked = marked_alone([fault("api", 10.0, 2.0), fault("nats", 11.0, 1.0), fault("api", 20.0, 1.0)])
    assert [one.alone for one in marked] == [False, False, True]
    [api, _] = sorted(report.recoveries(marked), key=lambda one: one.part)
    assert (api.faults, api.measured, api.worst) == (2, 1, 1.0)


def test_a_fault_elsewhere_does_not_disturb() -> None:
    faults = [fault("portal", 10.0, 1.0), fault("api", 10.5, 1.0), fault("runner", 10.2, 5.0, session="one")]
    assert [one.alone for one in marked_alone(faults)] == [True, True, False]


def test_the_agents_of_two_sessions_do_not_disturb_each_other() -> None:
    faults = [fault("runner", 10.0, 9.0, session="one"), fault("opencode", 11.0, 9.0, session="two")]
    assert all(one.alone for one in marked_alone(faults))


def test_a_kill_that_took_too_long_is_late_and_said_to_be() -> None:
    [one] = report.recoveries([fault("api", 1.0, 7.5)])
    assert (one.late, one.target) == (1, 5.0)
    assert "**missed**" in page.recovery_table([one])[-1]


def test_what_could_not_be_carried_out_does_not_count() -> None:
    missed = msgspec.structs.replace(fault("runner", 1.0, 0.0), missed="there was no such process")
    assert report.recoveries([missed]) == []
    history = msgspec.structs.replace(faultless(), faults=[missed, fault("nats", 2.0, 1.0)])
    assert report.figures(history).kills == 1


def test_prompts_turns_and_answers_are_counted() -> None:
    figures = report.figures(faultless())
    assert (figures.prompts, figures.turns, figures.deltas) == (2, {"completed": 2}, 4)
    assert figures.acts["answer"] == {"200": 1, "409": 1}
    assert figures.deliveries == 44


def made() -> report.ChaosReport:
    machine = Machine(
        cpu="a processor",
        cpus=2,
        memory_mb=4096,
        system="Linux",
        python="3",
        nats="2",
        opencode="1",
        load_before=0.1,
        load_after=0.2,
    )
    planned = plan.schedule(1, seconds=60, sessions=1)
    history = msgspec.structs.replace(faultless(), faults=[fault("nats", 2.0, 1.25)])
    return report.make(planned, history, [], machine=machine, took=70.0)


def test_a_report_survives_its_json_and_is_the_same_page() -> None:
    again = msgspec.json.decode(msgspec.json.encode(made()), type=report.ChaosReport)
    assert page.markdown(again) == page.markdown(made())
    assert "| nats | kill | 1 | 1 | 1.25 s | 1.25 s | 1.25 s | ≤ 10 s, met |" in page.markdown(again)


def test_renewing_a_page_changes_what_is_between_its_marks_and_nothing_else() -> None:
    old = "above\n<!-- mark -->\nold figures\n<!-- /mark -->\nbelow\n"
    new = marked.renewed(old, "mark", page.markdown(made()))
    assert new.startswith("above\n<!-- mark -->\n2 × a processor")
    assert new.endswith("<!-- /mark -->\nbelow\n")
    assert "old figures" not in new
    assert marked.renewed(new, "mark", page.markdown(made())) == new
    with pytest.raises(ValueError, match="has no <!-- mark -->"):
        marked.renewed("no marks", "mark", "figures")


def test_the_page_of_the_documentation_has_the_mark() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    assert "new figures" in marked.renewed(text, page.MARK, "new figures")


def test_the_summary_names_every_violation() -> None:
    broken = msgspec.structs.replace(
        made(), violations=[Violation(rule="no client misses an event", session_id="S", seq=7, what="it never came")]
    )
    assert "no client misses an event: session S at 7: it never came" in page.summary(broken)
    assert "Every promise was kept." in page.summary(made())
