"""The whole chain on the bundled model: a study becomes stored rows and a report, once, and every token is identical."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_submit_report_and_submit_again(fleet):
    matrix = "verify_width = [3]\nslots_per_layer = [64, 16]"
    study = str(fleet.write_study(matrix=matrix, protocol="timeline = true"))
    first = fleet.run("submit", study)
    assert first.returncode == 0, first.stderr
    assert "2 of 2 tasks done, 0 failed" in first.stdout
    for label in ("width 3, slots 64", "width 3, slots 16"):
        assert f"{label}: done" in first.stderr

    report = json.loads(fleet.run("report", "--last", "--format", "json").stdout)
    assert [(row["verify_width"], row["slots_per_layer"]) for row in report["rows"]] == [(3, 16), (3, 64)]
    assert {row["exactness"] for row in report["rows"]} == {"identical"}
    assert all(row["greedy_decode_tok_s"]["median"] > 0 for row in report["rows"])
    assert not report["synthetic"]

    stored = list(fleet.data.rglob("events.parquet"))
    assert len(stored) == 2
    for path in stored:
        assert {(row["path"], row["name"]) for row in pq.read_table(path).to_pylist()} >= {
            (path_name, name) for path_name in ("greedy", "speculative") for name in ("forward", "layer")
        }

    before = fleet.state()
    again = fleet.run("submit", study)
    assert again.returncode == 0, again.stderr
    assert again.stderr == ""
    after = fleet.state()
    assert [task["attempt_id"] for task in after["tasks"]] == [task["attempt_id"] for task in before["tasks"]]
    assert {task["attempts"] for task in after["tasks"]} == {1}

    for format_, start in (("md", "# "), ("html", "<!doctype html>")):
        out = fleet.folder / f"report.{format_}"
        written = fleet.run("report", "small", "--format", format_, "--out", str(out))
        assert (written.returncode, written.stdout) == (0, ""), written.stderr
        assert out.read_text().lower().startswith(start)


def test_again_measures_anew_as_a_study_of_its_own(fleet):
    study = str(fleet.write_study())
    assert fleet.run("submit", study).returncode == 0
    again = fleet.run("submit", study, "--again")
    assert again.returncode == 0, again.stderr
    studies = json.loads(fleet.run("status", "--json").stdout)["studies"]
    assert [entry["study_id"] for entry in studies] == [studies[0]["study_id"], studies[0]["study_id"] + "-2"]
    assert [entry["num_done"] for entry in studies] == [1, 1]
