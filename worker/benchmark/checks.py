"""The controls beside the numbers: each says how often it ran and how often it failed. Zero runs is a failed control."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worker.benchmark.exactness import WidthControl
from worker.benchmark.measure import Record
from worker.benchmark.session import Session
from worker.checkpoint.digests import record_digest
from worker.experts.pool import ABSENT

MAX_ORACLE_SLOTS = 512
MIN_FIRST_ACCEPTANCE = 0.05
"""A rightly attached head of this family accepts its first draft about three times in four; a wrongly attached one, rarely."""
MIN_FIRST_DRAFTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One control."""

    name: str
    num_run: int
    num_failed: int
    detail: str = ""


def byte_oracle(session: Session, seed: int) -> Check:
    """Compare occupied slots, read back through MLX, with the file and with the manifest's digest."""
    occupied = [(pool, int(slot)) for pool in session.target.pools for slot in np.flatnonzero(pool.expert_at != ABSENT)]
    chosen = random.Random(seed).sample(occupied, min(len(occupied), MAX_ORACLE_SLOTS))
    bad = []
    for pool, slot in chosen:
        expert = int(pool.expert_at[slot])
        payload = pool.slots.payload(slot)
        expected = session.manifest.record_digests[pool.layer][expert]
        if payload != pool.file.read(expert) or record_digest(payload) != expected:
            bad.append(f"layer {pool.layer} expert {expert} slot {slot}")
    return Check(name="byte_oracle", num_run=len(chosen), num_failed=len(bad), detail="; ".join(bad[:3]))


def repeatable(records: Sequence[Record], path: str) -> Check:
    """Every repeat of a path emits the same ids as its first."""
    ids = [record.generation.token_ids for record in records if record.measurement.path == path]
    differing = [i for i, other in enumerate(ids[1:], start=1) if other != ids[0]]
    detail = f"repeats {differing} differ from the first" if differing else ""
    return Check(name=f"{path}_repeatable", num_run=max(0, len(ids) - 1), num_failed=len(differing), detail=detail)


def width_logits(control: WidthControl | None, *, widths_are_bit_equal: bool) -> Check:
    """Width-w against width-1: equal in every bit where the backend promises it, finite anywhere."""
    if control is None:
        return Check(name="width_logits", num_run=0, num_failed=0, detail="nothing to compare")
    failed = control.num_differing if widths_are_bit_equal else control.num_not_finite
    return Check(name="width_logits", num_run=control.num_positions, num_failed=failed)


def counters_balance(session: Session, records: Sequence[Record]) -> Check:
    """In every phase hits and misses add up to what was routed, and every layer of every forward was counted once.

    With prefetch the causes of the misses add up to them, too.
    """
    num_run, bad = 0, []
    for record in records:
        for phase, counters in record.counters.items():
            num_run += 1
            layers = counters.num_layers_fast + counters.num_layers_fallback
            late = counters.num_misses_predicted_late
            causes = late + counters.num_misses_predicted_evicted
            causes += counters.num_misses_predicted_dropped + counters.num_misses_unpredicted
            if (
                counters.num_hits + counters.num_disk_loads + late != counters.num_routed
                or (record.prefetch is not None and causes != counters.num_routed - counters.num_hits)
                or layers != counters.num_forwards * len(session.target.pools)
            ):
                bad.append(f"{record.measurement.path} {phase}")
    return Check(name="counters_balance", num_run=num_run, num_failed=len(bad), detail=", ".join(bad[:3]))


def mtp_attachment(records: Sequence[Record]) -> Check:
    """The first draft, proposed or not, is right often enough for a head that is attached as it was trained."""
    firsts = [s.is_first_right for record in records for s in record.steps if s.is_first_right is not None]
    right = sum(firsts)
    wrong = len(firsts) >= MIN_FIRST_DRAFTS and right < MIN_FIRST_ACCEPTANCE * len(firsts)
    return Check(
        name="mtp_attachment",
        num_run=len(firsts),
        num_failed=len(firsts) if wrong else 0,
        detail=f"{right} of {len(firsts)} first drafts are what the target chose",
    )


def record_digests(session: Session) -> Check:
    """Every expert record's digest, checked now or remembered for files that have not changed since."""
    total = len(session.manifest.moe_layers) * session.manifest.num_experts
    if session.task.verify_records == "never":
        return Check(name="record_digests", num_run=0, num_failed=0, detail="switched off by the task")
    now = session.times.num_records_verified
    return Check(
        name="record_digests", num_run=total, num_failed=0, detail=f"{now} read now, {total - now} unchanged since read"
    )


def write_visibility(session: Session) -> Check:
    """Whether a kernel sees what was written into an evaluated array; where not, records are uploaded instead."""
    return Check(
        name="write_visibility",
        num_run=1,
        num_failed=0,
        detail=f"{'seen' if session.target.writes_visible else 'not seen'}: read path {session.target.read_path}",
    )
