"""The situations that a report must get right, as tables and warnings. One golden Markdown and JSON file each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleet.report.hardware import HardwareReport, hardware_report
from tests.golden.study_tables import M2, PromptSpec, RunSpec, study_tables

GOLDEN = Path(__file__).parent

STEADY = PromptSpec(greedy_s=(4.8, 4.81, 4.79), speculative_s=(3.2, 3.21, 3.19))
CODE = PromptSpec(id="code", category="code", greedy_s=(4.8, 4.82, 4.81), speculative_s=(2.5, 2.51, 2.49))
ZH = PromptSpec(id="prose-zh", greedy_s=(4.7, 4.72, 4.71), speculative_s=(3.6, 3.61, 3.6))
PROMPTS = (STEADY, CODE, ZH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is in the store, and what the head has to say about the study."""

    specs: tuple[RunSpec, ...] = ()
    warnings: tuple[str, ...] = ()

    def report(self) -> HardwareReport:
        return hardware_report(study_tables(*self.specs), study="overnight", warnings=self.warnings)


def _well() -> tuple[RunSpec, ...]:
    resident = RunSpec(prompts=PROMPTS, slots_per_layer=64, greedy_loads_per_token=0, speculative_loads_per_token=0)
    return (RunSpec(prompts=PROMPTS, verify_width=2), RunSpec(prompts=PROMPTS), resident)


SITUATIONS: dict[str, Callable[[], Situation]] = {
    "all_well": lambda: Situation(
        specs=(*_well(), RunSpec(node="mini-2", machine=M2, prompts=PROMPTS, build_hash="b" * 16))
    ),
    "machine_lost": lambda: Situation(
        specs=_well(),
        warnings=("mini-2 was lost during task mini-2-w3-s32 (attempt 2 of 3): no result; submit the study again",),
    ),
    "wrong": lambda: Situation(
        specs=(
            RunSpec(prompts=PROMPTS, verify_width=2),
            RunSpec(
                prompts=(
                    STEADY,
                    PromptSpec(
                        id="code",
                        category="code",
                        exactness="wrong",
                        num_mismatches=60,
                        first_mismatch_index=37,
                        mismatch_gap=2.5,
                    ),
                )
            ),
        )
    ),
    "tie": lambda: Situation(
        specs=(
            RunSpec(
                prompts=(
                    STEADY,
                    PromptSpec(
                        id="code",
                        category="code",
                        greedy_s=(4.8, 4.81, 4.79),
                        speculative_s=(3.2, 3.2, 3.2),
                        exactness="tie",
                        num_mismatches=12,
                        first_mismatch_index=85,
                        mismatch_gap=0.0625,
                    ),
                )
            ),
        )
    ),
    "one_repeat": lambda: Situation(specs=(RunSpec(prompts=(PromptSpec(greedy_s=(4.8,), speculative_s=(3.2,)),)),)),
    "empty_store": Situation,
    "only_failed_tasks": lambda: Situation(
        warnings=("task studio-1-w3-s32 failed (CheckpointError): layer 3, expert 17: the record's digest differs",)
    ),
    "only_synthetic": lambda: Situation(specs=(RunSpec(prompts=PROMPTS, synthetic=True),)),
    "synthetic_beside_real": lambda: Situation(
        specs=(RunSpec(prompts=PROMPTS), RunSpec(node="simulated-1", prompts=PROMPTS, synthetic=True))
    ),
    "prefetch": lambda: Situation(
        specs=(
            RunSpec(
                prompts=PROMPTS,
                prefetch="on",
                columns={"prefetch_trial_off_s": 0.05, "prefetch_trial_on_s": 0.042},
            ),
            RunSpec(
                node="mini-2",
                machine=M2,
                prompts=PROMPTS,
                prefetch="off",
                columns={"prefetch_trial_off_s": 0.05, "prefetch_trial_on_s": 0.0525},
            ),
        )
    ),
    "settings_differ": lambda: Situation(
        specs=(
            RunSpec(prompts=PROMPTS, task_id="t1", columns={"rollback": "capture"}),
            RunSpec(prompts=PROMPTS, task_id="t2", columns={"rollback": "replay"}),
        )
    ),
}
