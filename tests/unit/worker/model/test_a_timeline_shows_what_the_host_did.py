"""A timeline holds every forward, layer and wait, nested as they ran, and changes neither tokens nor counts."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest

from tests.conftest import CODE
from worker.decode.generation import Request
from worker.decode.greedy import greedy
from worker.measure.timeline import NoTimeline, Span, Timeline
from worker.mtp.generate import Speculation, speculate

NUM_LAYERS = 8
EAGER = {"group_limit": 99, "read_cost_s": 1.0}
SPECULATION = Speculation(verify_width=3, verify_mode="batched", rollback="replay")


def _generate(target, head, tokenizer, timeline: NoTimeline):
    """Run greedily, or with a head speculatively; return ids, counters and routings."""
    request = Request(
        prompt_ids=tuple(tokenizer.encode(CODE)), max_tokens=16, stop_ids=frozenset(), prefill_chunk_tokens=32
    )
    target.telemetry.reset(timeline=timeline)
    generation = greedy(target, request) if head is None else speculate(target, head, request, SPECULATION).generation
    return generation.token_ids, target.telemetry.take()[0]


def _assert_nested(spans: tuple[Span, ...]) -> None:
    """Of one thread, any two spans are apart or one lies inside the other."""
    stacks: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        stack = stacks[span.thread]
        while stack and stack[-1].end_s <= span.start_s:
            stack.pop()
        assert not stack or span.end_s <= stack[-1].end_s, (span, stack[-1])
        stack.append(span)


def _by_forward(spans: tuple[Span, ...], name: str) -> dict[int, list[Span]]:
    found: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        if span.name == name and span.forward_index is not None:
            found[span.forward_index].append(span)
    return found


def _waits(spans: tuple[Span, ...]) -> list[tuple[int, int | None, Span]]:
    """The waits with their forward and layer."""
    return [(s.forward_index, s.layer, s) for s in spans if s.name.endswith("_wait") and s.forward_index is not None]


def _inside(inner: Span, outer: Span) -> bool:
    return outer.start_s <= inner.start_s and inner.end_s <= outer.end_s


@pytest.mark.parametrize("path", ["greedy", "speculative"])
def test_layer_by_layer_each_forward_holds_its_layers_and_each_layer_its_waits(make_target, make_head, tokenizer, path):
    target = make_target(16)
    head = make_head(target) if path == "speculative" else None
    timeline = Timeline()
    _, counters = _generate(target, head, tokenizer, timeline)
    spans = timeline.spans
    forwards, layers = _by_forward(spans, "forward"), _by_forward(spans, "layer")
    assert {len(found) for found in forwards.values()} == {1}
    assert sorted(forwards) == sorted(layers) == list(range(sum(c.num_forwards for c in counters.values())))
    for index, found in layers.items():
        assert [span.layer for span in found] == list(range(NUM_LAYERS))
        assert all(_inside(span, forwards[index][0]) for span in found)
    for forward, layer, wait in _waits(spans):
        assert layer is not None
        assert _inside(wait, layers[forward][layer])
    _assert_nested(spans)


@pytest.mark.parametrize("more", [{"group_limit": 1}, EAGER])
def test_the_waits_of_a_phase_add_up_to_its_counters(make_target, make_head, tokenizer, more):
    target = make_target(24, **more)
    timeline = Timeline()
    _, counters = _generate(target, make_head(target), tokenizer, timeline)
    assert set(counters) == {"prefill", "verify", "decode"}
    for phase, counted in counters.items():
        seconds: dict[str, float] = defaultdict(float)
        for span in timeline.spans:
            if span.phase == phase:
                seconds[span.name] += span.end_s - span.start_s
        assert seconds["route_wait"] == pytest.approx(counted.route_wait_s, abs=1e-9)
        assert seconds["read_wait"] == pytest.approx(counted.read_wait_s, abs=1e-9)
    assert counters["verify"].read_wait_s > 0


def test_a_group_s_layers_are_there_and_the_repaired_ones_twice(make_target, tokenizer):
    target = make_target(24, **EAGER)
    _generate(target, None, tokenizer, NoTimeline())
    target.run.misses.of(1)[:] = 0.0
    timeline = Timeline()
    _, counters = _generate(target, None, tokenizer, timeline)
    assert counters["decode"].num_repairs > 0
    forwards, layers = _by_forward(timeline.spans, "forward"), _by_forward(timeline.spans, "layer")
    for index, found in layers.items():
        assert {span.layer for span in found} == set(range(NUM_LAYERS))
        assert all(_inside(span, forwards[index][0]) for span in found)
    going_back = [
        after
        for found in layers.values()
        for before, after in pairwise(span.layer or 0 for span in found)
        if after != before + 1
    ]
    assert len(going_back) == counters["decode"].num_repairs
    for forward, layer, wait in _waits(timeline.spans):
        around = [span.layer for span in layers[forward] if _inside(wait, span)]
        assert around == ([] if layer is None else [layer])
    assert any(layer is None for _, layer, _ in _waits(timeline.spans))
    _assert_nested(timeline.spans)


def test_a_resident_model_has_layers_and_no_waits(make_target, tokenizer):
    timeline = Timeline()
    _generate(make_target(64), None, tokenizer, timeline)
    assert {span.name for span in timeline.spans} == {"forward", "layer"}


@pytest.mark.parametrize(("slots", "more"), [(64, {}), (16, {}), (40, EAGER)])
def test_tokens_and_counts_are_those_of_a_run_without(make_target, make_head, tokenizer, slots, more):
    found = []
    for timeline in (NoTimeline(), Timeline()):
        target = make_target(slots, **more)
        for head in (None, make_head(target)):
            ids, counters = _generate(target, head, tokenizer, timeline)
            counts = {phase: (c.num_routed, c.num_hits, c.num_forwards) for phase, c in counters.items()}
            found.append((ids, counts))
    assert found[:2] == found[2:]
