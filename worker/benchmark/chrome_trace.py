"""The `events` table as Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A path of a prompt is a process, its threads are threads, and each span is one complete event (`ph` X). Times are rounded
to the nanosecond before they are put in microseconds: what lies inside another span stays inside.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_CATEGORIES = {
    "forward": "compute",
    "layer": "compute",
    "route_wait": "wait",
    "read_wait": "wait",
    "read": "io",
    "prefetch": "io",
}
_ARGS = ("phase", "forward_index", "layer", "expert", "bytes")
_NS, _NS_PER_US = 1e9, 1000


def chrome_trace(events: pa.Table) -> dict[str, Any]:
    """The JSON object to write. Process and thread ids are numbered in the order of the rows, from 1."""
    pids: dict[tuple[str, str], int] = {}
    tids: dict[tuple[int, str], int] = {}
    named: list[dict[str, Any]] = []
    spans: list[dict[str, Any]] = []
    for row in events.to_pylist():
        process = (row["prompt_id"], row["path"])
        if process not in pids:
            pids[process] = len(pids) + 1
            named.append(_name("process_name", f"{row['path']} ({row['prompt_id']})", pids[process], 0))
        thread = (pids[process], row["thread"])
        if thread not in tids:
            tids[thread] = len(tids) + 1
            named.append(_name("thread_name", row["thread"], pids[process], tids[thread]))
        spans.append(_complete(row, pids[process], tids[thread]))
    return {"displayTimeUnit": "ms", "traceEvents": named + spans}


def _complete(row: dict[str, Any], pid: int, tid: int) -> dict[str, Any]:
    start_ns, end_ns = round(row["start_s"] * _NS), round(row["end_s"] * _NS)
    return {
        "name": row["name"],
        "cat": _CATEGORIES[row["name"]],
        "ph": "X",
        "ts": start_ns / _NS_PER_US,
        "dur": (end_ns - start_ns) / _NS_PER_US,
        "pid": pid,
        "tid": tid,
        "args": {name: row[name] for name in _ARGS if row[name] is not None},
    }


def _name(what: str, name: str, pid: int, tid: int) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
