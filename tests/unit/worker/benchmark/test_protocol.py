"""The order of a run is a value, and it is the one the methodology states."""

from __future__ import annotations

from worker.benchmark.protocol import plan
from worker.contract.task import Protocol

LETTERS = {"warmup": "w", "rewarm": "r", "measured": "m", "instrumented": "i", "calibrate": "c", "timeline": "t"}


def _spelled(protocol: Protocol) -> str:
    return " ".join(LETTERS[step.kind] + step.path[0].upper() for step in plan(protocol))


def test_abba_alternates_which_path_goes_first_and_rewarms_after_each_change():
    assert _spelled(Protocol(repeats=3)) == "wS wG mG rS mS mS rG mG mG rS mS rG iG rS iS"


def test_blocks_run_one_path_after_the_other():
    assert _spelled(Protocol(repeats=2, order="blocks")) == "wS wG mG mG iG rS mS mS iS"


def test_pinning_calibrates_after_the_greedy_block():
    assert _spelled(Protocol(repeats=1, order="blocks", pin_hot_experts=4)) == "wS wG mG iG cG rS mS iS"


def test_no_warmup_and_no_rewarm_leave_only_what_is_measured():
    assert _spelled(Protocol(repeats=1, warmup_tokens=0, rewarm_tokens=0)) == "mG mS iG iS"


def test_a_timeline_is_one_generation_more_of_each_path_that_leaves_no_row():
    assert _spelled(Protocol(repeats=1, timeline=True)) == "wS wG mG rS mS rG iG rS iS rG tG rS tS"
    plain, more = plan(Protocol(repeats=2)), plan(Protocol(repeats=2, timeline=True))
    assert more[: len(plan(Protocol(repeats=2)))] == plain
    assert [step.sequence_index for step in more if step.kind == "timeline"] == [None, None]
    assert not any(step.leaves_row for step in more if step.kind == "timeline")


def test_in_blocks_a_timeline_ends_its_path_s_block_so_that_greedy_s_is_not_pinned():
    assert _spelled(Protocol(repeats=1, order="blocks", timeline=True)) == "wS wG mG iG tG rS mS iS tS"
    pinned = Protocol(repeats=1, order="blocks", pin_hot_experts=4, timeline=True)
    assert _spelled(pinned) == "wS wG mG iG tG cG rS mS iS tS"


def test_rows_are_numbered_in_the_order_they_were_run():
    numbered = [step.sequence_index for step in plan(Protocol(repeats=2)) if step.leaves_row]
    assert numbered == list(range(6))
    assert all(step.sequence_index is None for step in plan(Protocol()) if not step.leaves_row)


def test_lengths_come_from_the_protocol():
    lengths = {step.kind: step.max_tokens for step in plan(Protocol(max_tokens=20, warmup_tokens=7, rewarm_tokens=3))}
    assert lengths == {"warmup": 7, "measured": 20, "rewarm": 3, "instrumented": 20}
