"""The report's tables as data: titles, columns and cells, the same for every format that people read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleet.compare.relative import STAGES
from fleet.compare.verdict import Flag
from fleet.report.cells import (
    GB_S,
    GIB,
    LEVEL_TONE,
    MIB,
    MS,
    NOTHING,
    Cell,
    Table,
    count,
    exactness_cell,
    fastest,
    flags_cell,
    interval,
    label,
    number,
    pair,
    percent,
    percents,
    scaled,
    size,
    table,
    text,
    times,
    times_interval,
    trust_cell,
    which,
    which_align,
    which_columns,
)
from fleet.report.hardware import HardwareReport, ReportRow
from fleet.report.prefetch import prefetch_table


def machines_table(report: HardwareReport) -> Table:
    """One line per machine: what it is, its fastest row that may be compared, and whether to trust it."""
    cells: list[tuple[Cell, ...]] = []
    for machine in report.machines:
        rows = report.rows_of(machine.name)
        best = fastest(rows)
        cells.append(
            (
                text(machine.name),
                text(machine.chip or machine.hardware_model or NOTHING),
                text(scaled(machine.memory_bytes, GIB)),
                text(NOTHING if best is None else number(best.figures.greedy.decode_tok_s.median)),
                text(NOTHING if best is None else number(best.figures.speculative.decode_tok_s.median)),
                text(NOTHING if best is None else times(best.figures.speedup.median)),
                text(NOTHING if best is None else label(best)),
                trust_cell(rows),
            )
        )
    return table(
        "Machines",
        "The fastest row of each machine, out of those that may be compared; tokens per second.",
        ("machine", "chip", "GiB", "greedy", "speculative", "speedup", "at", "trust"),
        "llrrrrll",
        cells,
    )


def speed_table(rows: Sequence[ReportRow]) -> Table:
    """Speeds of both paths, with intervals."""
    return table(
        "Speed",
        "Decoded tokens per second, prefill left out: median [95 % interval] of n repeats.",
        (*which_columns(rows), "greedy tok/s", "speculative tok/s", "speedup", "n", "exactness", "flags"),
        which_align(rows) + "rrrrll",
        [
            (
                *which(row, rows),
                text(interval(row.figures.greedy.decode_tok_s)),
                text(interval(row.figures.speculative.decode_tok_s), "plain" if row.figures.comparable else "bad"),
                text(times_interval(row.figures.speedup)),
                text(str(row.figures.speculative.decode_tok_s.n)),
                exactness_cell(row.figures.exactness),
                flags_cell(row),
            )
            for row in rows
        ],
    )


def experts_table(rows: Sequence[ReportRow]) -> Table:
    """Hits, disk loads and peak memory."""
    return table(
        "Experts and memory",
        "greedy / speculative, prefill left out. accept: tokens per verify step. loads: from disk, on demand; ratio: "
        "speculative over greedy loads per token. GB/s: 10^9 bytes per second while a read was outstanding, prefill "
        "included; with page_cache use it may be the page cache's speed, not the disk's.",
        (*which_columns(rows), "accept", "hit ratio", "loads/token", "MiB/token", "GB/s", "ratio", "peak"),
        which_align(rows) + "rrrrrrr",
        [
            (
                *which(row, rows),
                text(number(row.figures.acceptance.mean_length)),
                text(pair(percent(row.figures.greedy.hit_ratio), percent(row.figures.speculative.hit_ratio))),
                text(
                    pair(
                        number(row.figures.greedy.disk_loads_per_token),
                        number(row.figures.speculative.disk_loads_per_token),
                    )
                ),
                text(
                    pair(
                        scaled(row.figures.greedy.disk_bytes_per_token, MIB),
                        scaled(row.figures.speculative.disk_bytes_per_token, MIB),
                    )
                ),
                text(
                    pair(
                        scaled(row.figures.greedy.read_bytes_s, GB_S),
                        scaled(row.figures.speculative.read_bytes_s, GB_S),
                    )
                ),
                text(times(row.figures.disk_load_ratio)),
                text(size(row.figures.peak_bytes)),
            )
            for row in rows
        ],
    )


def latency_table(rows: Sequence[ReportRow]) -> Table:
    """Prefill, first token, and the rate with prefill in it."""
    return table(
        "Latency and whole runs",
        "greedy / speculative medians. e2e: all tokens over prefill and decode together. "
        "start: from the start of the process to its first token.",
        (*which_columns(rows), "prefill s", "first token s", "e2e tok/s", "start s", "load s", "checks of records s"),
        which_align(rows) + "rrrrrr",
        [
            (
                *which(row, rows),
                *(
                    text(pair(number(getattr(g, name).median), number(getattr(s, name).median)))
                    for name in ("prefill_s", "ttft_s", "e2e_tok_s")
                    for g, s in [(row.figures.greedy, row.figures.speculative)]
                ),
                text(number(row.figures.first_run.start_to_first_token_s)),
                text(number(row.figures.first_run.load_s)),
                text(number(row.figures.first_run.verify_records_s)),
            )
            for row in rows
        ],
    )


def speculation_table(rows: Sequence[ReportRow]) -> Table:
    """Acceptance by position, and how the state was rolled back."""
    return table(
        "Speculation",
        "accepted: share of drafts at each position, given that those before it were accepted. "
        "bound: the measured rate and speedup if the replays' share of the time fell away.",
        (
            *which_columns(rows),
            "accept",
            "accepted by position",
            "steps",
            "direct",
            "replays",
            "bound tok/s",
            "bound speedup",
        ),
        which_align(rows) + "rrrrrrr",
        [
            (
                *which(row, rows),
                text(number(row.figures.acceptance.mean_length)),
                text(percents(row.figures.acceptance.conditional)),
                text(count(row.figures.commits.num_steps)),
                text(count(row.figures.commits.num_direct_commits)),
                text(count(row.figures.commits.num_replays)),
                text(number(row.figures.no_replay.tok_s)),
                text(times(row.figures.no_replay.speedup)),
            )
            for row in rows
        ],
    )


def costs_table(rows: Sequence[ReportRow]) -> Table:
    """What the parts of a verify step cost, and the speedup that they promise beside the measured one."""
    return table(
        "Costs of speculation",
        "Milliseconds. verify: forwards of 1, 2, ... tokens; sync: with the first draft; draft: each further one. "
        "Speedups: predicted from these and measured, medians over prompts.",
        (*which_columns(rows), "verify", "sync", "draft", "predicted", "measured"),
        which_align(rows) + "rrrrr",
        [
            (
                *which(row, rows),
                text(" ".join(scaled(cost, MS) for cost in row.figures.speculation.verify_cost_s or ()) or NOTHING),
                text(scaled(row.figures.speculation.head_sync_cost_s, MS)),
                text(scaled(row.figures.speculation.draft_cost_s, MS)),
                text(times(row.figures.speculation.predicted_speedup)),
                text(times(row.figures.speculation.measured_speedup)),
            )
            for row in rows
        ],
    )


def stages_table(rows: Sequence[ReportRow]) -> Table:
    """Where a verify step spends its time."""
    cells = []
    for row in rows:
        stages = row.figures.stages
        values = dict(stages.per_step) if stages else {}
        other = stages.other_s if stages else None
        cells.append(
            (*which(row, rows), *(text(scaled(values.get(name), MS)) for name in STAGES), text(scaled(other, MS)))
        )
    return table(
        "Stages of a verify step",
        "Milliseconds per step in the instrumented repeat, whose barriers slow it: never set against the rates above.",
        (*which_columns(rows), *(name.removesuffix("_s").replace("_", " ") for name in STAGES), "other"),
        which_align(rows) + "r" * 8,
        cells,
    )


def memory_table(rows: Sequence[ReportRow]) -> Table:
    """The memory split, which adds up to what is active."""
    names = (
        "active_bytes",
        "weights_bytes",
        "expert_pool_bytes",
        "staging_bytes",
        "mtp_head_bytes",
        "unattributed_bytes",
    )
    return table(
        "Memory split",
        "MiB after clearing reclaimable buffers. active = weights + expert pool + mtp head + unattributed (signed); "
        "staging is host memory beside it.",
        (*which_columns(rows), *(name.removesuffix("_bytes").replace("_", " ") for name in names)),
        which_align(rows) + "r" * len(names),
        [
            (*which(row, rows), *(text(scaled(getattr(row.figures.memory, name), MIB)) for name in names))
            for row in rows
        ],
    )


def prompts_table(rows: Sequence[ReportRow]) -> Table:
    """Each prompt's speeds, and the evidence of its verdict."""
    return table(
        "Prompts",
        "first: index of the first token that differs; gap: the greedy path's logit lead there.",
        (
            *which_columns(rows),
            "prompt",
            "tokens",
            "greedy",
            "speculative",
            "speedup",
            "predicted",
            "accept",
            "exactness",
            "differ",
            "first",
            "gap",
        ),
        which_align(rows) + "lrrrrrrlrrr",
        [
            (
                *which(row, rows),
                text(prompt.prompt_id or NOTHING),
                text(count(prompt.num_tokens)),
                text(number(prompt.greedy_decode_tok_s.median)),
                text(number(prompt.speculative_decode_tok_s.median)),
                text(times(prompt.speedup.median)),
                text(times(prompt.predicted_speedup)),
                text(number(prompt.mean_accept_length)),
                exactness_cell(prompt.exactness),
                text(count(prompt.num_mismatches)),
                text(count(prompt.first_mismatch_index)),
                text(number(prompt.mismatch_gap)),
            )
            for row in rows
            for prompt in row.figures.prompts
        ],
    )


def checks_table(rows: Sequence[ReportRow]) -> Table:
    """Every control: how often it ran and failed, over all rows. Zero runs is a failure."""
    names = list(dict.fromkeys(check.name for row in rows for check in row.figures.checks))
    cells = []
    for name in names:
        checks = [check for row in rows for check in row.figures.checks if check.name == name]
        passed = sum(check.passed for check in checks)
        cells.append(
            (
                text(name),
                text(str(sum(check.num_run or 0 for check in checks))),
                text(str(sum(check.num_failed or 0 for check in checks))),
                text(f"{passed} of {len(rows)}", "good" if passed == len(rows) else "bad"),
            )
        )
    return table("Checks", "", ("check", "run", "failed", "rows passed"), "lrrr", cells)


def flags_table(rows: Sequence[ReportRow]) -> Table:
    """Every reason for care in words, with the rows that it concerns; alike but for their numbers, told once."""
    alike: dict[tuple[str, str], list[tuple[str, Flag]]] = {}
    for row in rows:
        for flag in row.figures.flags:
            alike.setdefault((flag.level, re.sub(r"[0-9.]+", "#", flag.message)), []).append((label(row), flag))
    cells = []
    for level in ("error", "warning", "note"):
        for (of_level, _), found in alike.items():
            if of_level == level:
                labels = list(dict.fromkeys(name for name, _ in found))
                messages = list(dict.fromkeys(flag.message for _, flag in found))
                more = f" (and {len(messages) - 1} like it)" if len(messages) > 1 else ""
                cells.append(
                    (
                        text(level, LEVEL_TONE[level]),
                        text("all" if len(labels) == len(rows) else "; ".join(labels)),
                        text(messages[0] + more),
                    )
                )
    return table("Flags", "", ("level", "rows", "what it means"), "lll", cells)


def sections(report: HardwareReport, machine: str) -> tuple[Table, ...]:
    """Every table of one machine that has something to show."""
    rows = report.rows_of(machine)
    makers = (
        speed_table,
        experts_table,
        prefetch_table,
        speculation_table,
        costs_table,
        latency_table,
        stages_table,
        memory_table,
        prompts_table,
        checks_table,
        flags_table,
    )
    return tuple(made for make in makers if (made := make(rows)).rows)
