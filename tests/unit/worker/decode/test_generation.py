"""Both paths stop at the same place."""

from __future__ import annotations

import pytest

from worker.decode.generation import Request, truncated

REQUEST = Request(prompt_ids=(1,), max_tokens=4, stop_ids=frozenset({9}), prefill_chunk_tokens=8)


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ([1, 2], ([1, 2], None)),
        ([1, 9], ([1, 9], "eos")),
        ([1, 9, 3], ([1, 9], "eos")),
        ([1, 2, 3, 4], ([1, 2, 3, 4], "length")),
        ([1, 2, 3, 4, 9], ([1, 2, 3, 4], "length")),
        ([1, 2, 3, 9], ([1, 2, 3, 9], "eos")),
    ],
)
def test_truncation(token_ids, expected):
    assert truncated(token_ids, REQUEST) == expected
