"""The speculative loop: sync, draft, verify, accept, commit, on one screen.

A step starts with one pending token (emitted, not yet seen by the target) and with what the target said since the head
heard of it last: the hidden states of the positions before, and the token after each, the pending one last. One forward
of the head takes all of it in and gives the first draft. The head proposes as many tokens as the draft policy lets it;
the target scores the pending token and the proposals; the leading proposals that the target would have chosen itself are
emitted, and its own next choice after them becomes the pending token.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import mlx.core as mx

from worker.contract.task import DraftPolicy, Rollback, VerifyMode
from worker.decode.generation import Generation, Request, read_ids, truncated
from worker.decode.prefill import prefill
from worker.measure.stages import StageClock
from worker.model.target import Target
from worker.mtp.accept import num_accepted
from worker.mtp.commit import NOT_COMMITTED, make_rewind
from worker.mtp.draft import Drafts, draft
from worker.mtp.head import MtpHead
from worker.mtp.policy import Gate, first_gate, most_drafts
from worker.mtp.verify import verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How to speculate. `verify_width` counts the pending token and the most drafts that a step may have."""

    verify_width: int
    verify_mode: VerifyMode
    rollback: Rollback
    draft_policy: DraftPolicy = "fixed"
    draft_confidence: float = 0.0

    @property
    def num_draft_tokens(self) -> int:
        return most_drafts(self.draft_policy, self.verify_width)

    @property
    def gate(self) -> Gate | None:
        return first_gate(self.draft_policy, self.draft_confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One verify step. `at_s`: seconds since decoding began, when its tokens were known.

    `num_drafted` counts what was proposed, `num_withheld` (0 or 1) the draft after it that was made and not proposed.
    `is_first_right` says of the first draft, proposed or withheld, whether the target chose it too; None without drafts.
    Nothing is committed after the last step: its tokens are known and no forward follows.
    """

    num_drafted: int
    num_withheld: int
    is_first_right: bool | None
    num_accepted: int
    num_emitted: int
    num_direct_commits: int
    num_replayed_tokens: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeGeneration:
    """A generation and how it came about."""

    generation: Generation
    steps: tuple[Step, ...] = field(default=())


def speculate(
    target: Target,
    head: MtpHead,
    request: Request,
    speculation: Speculation,
    *,
    stages: StageClock | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> SpeculativeGeneration:
    """Emit what greedy decoding emits, several tokens per verify forward where the drafts are right.

    Mutates: the head's cache and the target's pools. Raises: CheckpointError when an expert cannot be read.
    """
    stages = stages or StageClock()
    start = clock()
    cache = target.new_cache()
    hidden = prefill(target, request.prompt_ids, cache, request.prefill_chunk_tokens)
    pending = mx.argmax(target.logits(hidden[:, -1:])[0, -1:], axis=-1)
    token_ids, stop = truncated(read_ids(pending), request)
    ttft_s = clock() - start
    if speculation.num_draft_tokens:
        prefill_head(head, request, hidden)
    hidden, following = hidden[:, -1:], pending
    rewind = make_rewind(speculation.rollback, target, cache, stages)
    decode_start = clock()
    steps: list[Step] = []
    while stop is None:
        drafts = Drafts()
        if speculation.num_draft_tokens:
            with stages.stage("head_sync") as stage:
                state = head.extend(hidden, following)[:, -1:]
                stage.barrier(state, head.arrays())
            with stages.stage("draft") as stage:
                drafts = draft(head, state, speculation.num_draft_tokens, speculation.gate)
                stage.barrier(drafts.made, head.arrays())
        tokens = mx.concatenate([following[-1:], *drafts.proposed])
        rewind.before()
        with stages.stage("verify") as stage:
            verified, logits = verify(target, tokens, cache, speculation.verify_mode)
            choices = mx.argmax(logits[0], axis=-1)
            stage.barrier(verified, choices, cache.arrays())
        with stages.stage("finalize"):
            mx.eval(tokens, choices)
            proposed, targets = read_ids(tokens)[1:], read_ids(choices)
            first = [read_ids(token)[0] for token in drafts.made[:1]]
            accepted = num_accepted(proposed, targets)
            before = len(token_ids)
            token_ids, stop = truncated(token_ids + targets[: accepted + 1], request)
            at_s = clock() - decode_start
        committed = NOT_COMMITTED
        if stop is None:
            committed = rewind.commit(tokens, accepted + 1)
            hidden, following = verified[:, : accepted + 1], choices[: accepted + 1]
        steps.append(
            Step(
                num_drafted=len(proposed),
                num_withheld=len(drafts.made) - len(proposed),
                is_first_right=first[0] == targets[0] if first else None,
                num_accepted=accepted,
                num_emitted=len(token_ids) - before,
                num_direct_commits=committed.num_direct_commits,
                num_replayed_tokens=committed.num_replayed_tokens,
                at_s=at_s,
            )
        )
    generation = Generation(
        token_ids=tuple(token_ids),
        stop_reason=stop,
        ttft_s=ttft_s,
        prefill_s=decode_start - start,
        decode_s=steps[-1].at_s if steps else 0.0,
    )
    return SpeculativeGeneration(generation=generation, steps=tuple(steps))


def prefill_head(head: MtpHead, request: Request, hidden: mx.array) -> None:
    """Give the head one entry per prompt position but the last, which the first step takes in.

    Shapes: hidden [1, prompt tokens, hidden]. Mutates: the head's cache.
    """
    head.reset()
    following = mx.array(request.prompt_ids[1:])
    for start in range(0, len(request.prompt_ids) - 1, request.prefill_chunk_tokens):
        chunk = slice(start, min(start + request.prefill_chunk_tokens, len(request.prompt_ids) - 1))
        head.extend(hidden[:, chunk], following[chunk])
        mx.eval(head.arrays())
