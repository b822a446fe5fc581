"""Events become Chrome's trace event format: nested to the nanosecond, a process per path, and every thread named."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from worker.benchmark.chrome_trace import chrome_trace
from worker.contract.schema import EVENTS


def _events(*rows: dict[str, Any]) -> pa.Table:
    keys = {"study_id": "s", "task_id": "t", "attempt_id": "a", "prompt_id": "p", "thread": "MainThread"}
    return pa.Table.from_pylist([keys | row for row in rows], schema=EVENTS)


FORWARD = {"path": "greedy", "name": "forward", "phase": "decode", "forward_index": 4, "start_s": 0.5, "end_s": 0.75}
LAYER = FORWARD | {"name": "layer", "layer": 2, "start_s": 0.5000011, "end_s": 0.75}
READ = LAYER | {
    "path": "speculative", "name": "read", "expert": 9, "bytes": 4096, "thread": "reader_0", "start_s": 0.0, "end_s": 1e-6,
}  # fmt: skip


def test_a_span_is_a_complete_event_in_microseconds():
    forward, layer, read = chrome_trace(_events(FORWARD, LAYER, READ))["traceEvents"][-3:]
    assert forward == {
        "name": "forward",
        "cat": "compute",
        "ph": "X",
        "ts": 500_000.0,
        "dur": 250_000.0,
        "pid": 1,
        "tid": 1,
        "args": {"phase": "decode", "forward_index": 4},
    }
    assert (layer["ts"], layer["dur"]) == (500_001.1, 249_998.9)
    assert (read["ts"], read["dur"], read["cat"]) == (0.0, 1.0, "io")
    assert read["args"] == {"phase": "decode", "forward_index": 4, "layer": 2, "expert": 9, "bytes": 4096}


def test_a_path_is_a_process_and_its_threads_are_named():
    found = chrome_trace(_events(FORWARD, LAYER, READ, READ | {"thread": "MainThread"}))["traceEvents"]
    assert [event for event in found if event["ph"] == "M"] == [
        {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "greedy (p)"}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "MainThread"}},
        {"name": "process_name", "ph": "M", "pid": 2, "tid": 0, "args": {"name": "speculative (p)"}},
        {"name": "thread_name", "ph": "M", "pid": 2, "tid": 2, "args": {"name": "reader_0"}},
        {"name": "thread_name", "ph": "M", "pid": 2, "tid": 3, "args": {"name": "MainThread"}},
    ]
    assert [(e["pid"], e["tid"]) for e in found if e["ph"] == "X"] == [(1, 1), (1, 1), (2, 2), (2, 3)]


def test_what_ends_with_its_outer_span_does_not_stick_out_by_a_rounding():
    ends = [0.1 * n + 0.0371234567 for n in range(1, 400)]
    rows = [FORWARD | {"start_s": 0.0123456784, "end_s": end} for end in ends]
    inner = [LAYER | {"start_s": 0.0234567896, "end_s": end} for end in ends]
    found = chrome_trace(_events(*(row for pair in zip(rows, inner, strict=True) for row in pair)))["traceEvents"][2:]
    for outer, inside in zip(found[::2], found[1::2], strict=True):
        # As Perfetto reads them: in whole nanoseconds.
        ends_ns = [round(event["ts"] * 1000) + round(event["dur"] * 1000) for event in (outer, inside)]
        assert ends_ns[0] == ends_ns[1]


def test_it_is_json_and_nothing_at_all_is_an_empty_trace():
    assert json.loads(json.dumps(chrome_trace(_events(FORWARD)))) == chrome_trace(_events(FORWARD))
    assert chrome_trace(_events()) == {"displayTimeUnit": "ms", "traceEvents": []}
