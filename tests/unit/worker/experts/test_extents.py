"""Every demanded byte is read once, by all threads where that helps, with neighbours together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.experts.extents import MAX_OPERATION_BYTES, MIN_PIECE_BYTES, PIECE_ALIGNMENT, plan_reads

MIB = 1 << 20


@given(
    experts=st.sets(st.integers(0, 511), min_size=1, max_size=64),
    payload_bytes=st.sampled_from([176, 23_040, 200_000, 1_769_472, 2_760_000, 20 * MIB]),
    num_threads=st.integers(1, 16),
)
def test_every_byte_is_in_exactly_one_segment(experts: set[int], payload_bytes: int, num_threads: int):
    chosen = sorted(experts)
    ends = dict.fromkeys(range(len(chosen)), 0)
    for operation in plan_reads(chosen, payload_bytes, num_threads):
        size = 0
        for extent in operation:
            for before, segment in zip((None, *extent), extent, strict=False):
                assert segment.start == ends[segment.index]
                assert segment.start % PIECE_ALIGNMENT == 0
                ends[segment.index] = segment.end
                size += segment.end - segment.start
                if before is not None:
                    assert chosen[segment.index] == chosen[before.index] + 1
                    assert (before.end, segment.start) == (payload_bytes, 0)
        assert size <= 2 * MAX_OPERATION_BYTES
    assert set(ends.values()) == {payload_bytes}


def test_one_large_record_is_cut_for_all_threads():
    operations = plan_reads([7], 1_769_472, 3)
    assert [(o[0][0].start, o[0][0].end) for o in operations] == [
        (0, 589_824),
        (589_824, 1_179_648),
        (1_179_648, 1_769_472),
    ]


def test_a_piece_is_never_too_small_to_hand_over():
    assert len(plan_reads([7], 1_769_472, 64)) == 1_769_472 // MIN_PIECE_BYTES == 3
    assert len(plan_reads([7], MIN_PIECE_BYTES - 1, 64)) == 1


def test_as_many_large_records_as_threads_stay_whole():
    assert [len(operation) for operation in plan_reads([1, 3, 5, 7], 1_769_472, 4)] == [1, 1, 1, 1]


def test_small_records_go_by_the_batch_and_neighbours_by_one_call():
    (operation,) = plan_reads([1, 2, 3, 8, 10, 11], 23_040, 8)
    assert [[segment.index for segment in extent] for extent in operation] == [[0, 1, 2], [3], [4, 5]]
