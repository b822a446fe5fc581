"""The protocol as a value: which path runs when, measured or not, for one prompt.

    abba    warm both | G S S G G S ... | instrumented G S
    blocks  warm both | G G G | instrumented G | (calibrate, pin) | S S S | instrumented S

If asked for, a timeline of each path follows: in abba after everything, in blocks at the end of the path's own block.

After each change of path an unmeasured re-warm brings pool and kernels back to that path's steady state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from worker.contract.task import Protocol

Path = Literal["greedy", "speculative"]
Kind = Literal["warmup", "rewarm", "measured", "instrumented", "calibrate", "timeline"]
PATHS: tuple[Path, Path] = ("greedy", "speculative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One generation of the protocol. Only measured and instrumented ones leave rows; a timeline leaves events."""

    path: Path
    kind: Kind
    max_tokens: int
    repeat_index: int = 0
    sequence_index: int | None = None
    """Position among the generations that leave rows."""

    @property
    def leaves_row(self) -> bool:
        return self.kind in ("measured", "instrumented")


def plan(protocol: Protocol) -> tuple[Measurement, ...]:
    """Every generation for one prompt, in order."""
    steps = [_step(path, "warmup", protocol.resolved_warmup_tokens) for path in reversed(PATHS)]
    measured = protocol.max_tokens
    if protocol.order == "abba":
        for repeat in range(protocol.repeats):
            for path in PATHS if repeat % 2 == 0 else reversed(PATHS):
                steps += [_step(path, "measured", measured, repeat)]
        for path in PATHS:
            steps += [_step(path, "instrumented", measured, i) for i in range(protocol.instrumented_repeats)]
        steps += [_step(path, "timeline", measured) for path in PATHS if protocol.timeline]
    else:
        for path in PATHS:
            if path == "speculative" and protocol.pin_hot_experts:
                steps.append(_step("greedy", "calibrate", protocol.pin_calibration_tokens))
            steps += [_step(path, "measured", measured, i) for i in range(protocol.repeats)]
            steps += [_step(path, "instrumented", measured, i) for i in range(protocol.instrumented_repeats)]
            steps += [_step(path, "timeline", measured)] if protocol.timeline else []
    return _numbered(_with_rewarms([step for step in steps if step.max_tokens], protocol.rewarm_tokens))


def _step(path: Path, kind: Kind, max_tokens: int, repeat_index: int = 0) -> Measurement:
    return Measurement(path=path, kind=kind, max_tokens=max_tokens, repeat_index=repeat_index)


def _with_rewarms(steps: list[Measurement], rewarm_tokens: int) -> list[Measurement]:
    out: list[Measurement] = []
    for step in steps:
        if rewarm_tokens and out and out[-1].path != step.path and (step.leaves_row or step.kind == "timeline"):
            out.append(_step(step.path, "rewarm", rewarm_tokens))
        out.append(step)
    return out


def _numbered(steps: list[Measurement]) -> tuple[Measurement, ...]:
    numbered, index = [], 0
    for step in steps:
        if step.leaves_row:
            numbered.append(
                Measurement(
                    path=step.path,
                    kind=step.kind,
                    max_tokens=step.max_tokens,
                    repeat_index=step.repeat_index,
                    sequence_index=index,
                )
            )
            index += 1
        else:
            numbered.append(step)
    return tuple(numbered)
