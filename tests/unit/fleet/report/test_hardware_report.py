from __future__ import annotations

from fleet.report.hardware import hardware_report
from tests.golden.situations import SITUATIONS
from tests.golden.study_tables import M2, M4_MAX, RunSpec, study_tables


def test_synthetic_rows_are_left_out_of_a_real_report_with_a_warning() -> None:
    report = SITUATIONS["synthetic_beside_real"]().report()
    assert not report.synthetic
    assert [machine.name for machine in report.machines] == ["studio-1"]
    assert any("1 synthetic row left out" in warning for warning in report.warnings)


def test_a_report_of_synthetic_rows_only_says_so() -> None:
    report = SITUATIONS["only_synthetic"]().report()
    assert report.synthetic
    assert len(report.rows) == 1


def test_the_head_s_warnings_come_first() -> None:
    report = hardware_report(study_tables(RunSpec(attempt=1), RunSpec(attempt=2)), study="s", warnings=["first"])
    assert report.warnings[0] == "first"
    assert "1 older result left out" in report.warnings[1]


def test_different_builds_are_warned_of() -> None:
    report = hardware_report(study_tables(RunSpec(), RunSpec(node="mini", machine=M2, build_hash="a" * 16)), study="s")
    assert any("2 different builds" in warning and "a" * 16 in warning for warning in report.warnings)


def test_a_machine_that_changed_between_its_rows_is_warned_of_and_its_rows_are_kept_apart() -> None:
    report = hardware_report(
        study_tables(RunSpec(), RunSpec(slots_per_layer=64, attempt=2, machine={**M4_MAX, "os_build": "25E1"})),
        study="s",
    )
    assert any(
        warning == "studio-1 changed between its rows (os_build): they are kept apart" for warning in report.warnings
    )
    assert [dict(row.variant) for row in report.rows] == [{"os_build": "25D125"}, {"os_build": "25E1"}]
    assert [machine.os_build for machine in report.machines] == ["25E1"]


def test_two_checkpoints_of_one_name_are_told_apart() -> None:
    report = hardware_report(
        study_tables(RunSpec(task_id="t1"), RunSpec(task_id="t2", columns={"checkpoint_digest": "d" * 16})), study="s"
    )
    assert [dict(row.variant)["checkpoint_digest"] for row in report.rows] == ["c" * 16, "d" * 16]


def test_a_setting_that_all_rows_share_is_no_variant() -> None:
    assert all(row.variant == () for row in SITUATIONS["all_well"]().report().rows)
