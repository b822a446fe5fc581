"""A timeline keeps what every thread did, says where it belongs, and costs a timed repeat no clock reading."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from worker.experts.counters import Telemetry
from worker.measure.timeline import NoTimeline, Timeline


class _Ticks:
    """A clock that goes on by one second at every look."""

    def __init__(self) -> None:
        self.now = 99.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_a_forward_and_what_runs_inside_say_where_they_belong():
    timeline = Timeline(_Ticks())
    with timeline.forward("prefill", 0), timeline.span("layer", 3):
        timeline.add("route_wait", 102.25, 102.5, layer=3)
    with timeline.forward("decode", 1):
        pass
    assert [(s.name, s.phase, s.forward_index, s.layer, s.start_s, s.end_s) for s in timeline.spans] == [
        ("forward", "prefill", 0, None, 1.0, 4.0),
        ("layer", "prefill", 0, 3, 2.0, 3.0),
        ("route_wait", "prefill", 0, 3, 2.25, 2.5),
        ("forward", "decode", 1, None, 5.0, 6.0),
    ]
    assert {(s.expert, s.num_bytes, s.thread) for s in timeline.spans} == {(None, None, "MainThread")}


def test_what_begins_together_is_listed_from_outside_in():
    timeline = Timeline(lambda: 0.0)
    timeline.add("read_wait", 1.0, 2.0)
    timeline.add("layer", 1.0, 3.0)
    assert [span.name for span in timeline.spans] == ["layer", "read_wait"]


def test_reading_threads_lose_nothing_and_leave_their_names():
    num_threads, num_reads = 8, 2000
    timeline = Timeline()
    ready = threading.Barrier(num_threads)

    def read(layer: int) -> None:
        ready.wait()
        for expert in range(num_reads):
            start = time.perf_counter()
            name = "prefetch" if expert % 2 else "read"
            timeline.add(name, start, time.perf_counter(), layer=layer, expert=expert, num_bytes=100 + expert)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with timeline.forward("decode", 7):
            threads = [threading.Thread(target=read, args=(n,), name=f"reader-{n}") for n in range(num_threads)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    reads = [span for span in timeline.spans if span.name != "forward"]
    assert {(s.thread, s.layer, s.expert, s.num_bytes, s.name) for s in reads} == {
        (f"reader-{n}", n, expert, 100 + expert, "prefetch" if expert % 2 else "read")
        for n in range(num_threads)
        for expert in range(num_reads)
    }
    assert len(reads) == num_threads * num_reads
    assert {(s.phase, s.forward_index) for s in reads} == {("decode", 7)}
    assert all(s.start_s <= s.end_s for s in reads)


def test_without_a_timeline_no_clock_is_read(monkeypatch):
    telemetry = Telemetry()
    monkeypatch.setattr(time, "perf_counter", lambda: pytest.fail("a clock was read"))
    telemetry.reset()
    with telemetry.forward("decode"), telemetry.timeline.span("layer", 0):
        telemetry.timeline.add("read", 1.0, 2.0, layer=0, expert=3, num_bytes=8)
    assert not isinstance(telemetry.timeline, Timeline)


def test_a_timeline_ends_when_its_counters_are_taken():
    telemetry, timeline = Telemetry(), Timeline()
    telemetry.reset(timeline=timeline)
    with telemetry.forward("prefill"):
        pass
    with telemetry.forward("decode"):
        pass
    telemetry.take()
    with telemetry.forward("decode"):
        pass
    assert [(s.name, s.phase, s.forward_index) for s in timeline.spans] == [
        ("forward", "prefill", 0),
        ("forward", "decode", 1),
    ]
    assert type(telemetry.timeline) is NoTimeline
