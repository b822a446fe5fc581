"""Commands that compare this engine in one process, with plain mlx-lm (anchor, engine) and with the bare disk (reads)."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.terminal import CacheOption, LockOption, say, stop_on_signals
from worker.contract.errors import TaskError
from worker.contract.task import BUNDLED_CHECKPOINT, CheckpointRef

if TYPE_CHECKING:
    from worker.benchmark.engine import ArmSummary
    from worker.checkpoint.resolve import Prepared


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (anchor, engine, reads):
        app.command()(command)


def anchor(
    source: Annotated[
        str, typer.Argument(help="An MLX-format checkpoint that fits in memory, or 'demo'.")
    ] = BUNDLED_CHECKPOINT,
    mtp: Annotated[str | None, typer.Option(help="The file with its mtp.* tensors.")] = None,
    slots: Annotated[
        str, typer.Option(help="Pool sizes to compare, separated by commas; 'all' is every expert.")
    ] = "all",
    max_tokens: Annotated[int, typer.Option(help="Tokens to emit per generation.")] = 96,
    rounds: Annotated[int, typer.Option(help="Times every arm runs.")] = 9,
    prompt: Annotated[str, typer.Option(help="The text to continue.")] = "def median(values):",
    lock: LockOption = None,
    cache: CacheOption = None,
) -> None:
    """Compare this engine with plain mlx-lm on the same checkpoint: greedy decoding, interleaved, in one process."""
    stop_on_signals()
    from mlx_lm.utils import load_tokenizer

    from worker.benchmark.anchor import compare_with_plain
    from worker.decode.generation import Request
    from worker.machine.awake import awake
    from worker.machine.lock import DEFAULT_LOCK, machine_lock

    with machine_lock(lock or DEFAULT_LOCK), awake():
        directory, prepared = _open(CheckpointRef(source=source, mtp=mtp), cache)
        counts = tuple(_slot_count(text, prepared.manifest.num_experts) for text in slots.split(","))
        request = Request(
            prompt_ids=tuple(load_tokenizer(directory).encode(prompt)),
            max_tokens=max_tokens,
            stop_ids=frozenset(),
            prefill_chunk_tokens=64,
        )
        arms = compare_with_plain(
            directory, prepared, request, slots=counts, rounds=rounds, on_round=lambda n: say(f"round {n} of {rounds}")
        )
    typer.echo(f"{rounds} rounds of {max_tokens} tokens; ratio: median over rounds of the speed over plain mlx-lm's")
    typer.echo(
        f"{'arm':<18}{'tok/s':>8}{'ratio':>8}{'misses/token':>14}{'bytes/token':>13}{'host waits ms/token':>21}  tokens"
    )
    for arm in arms:
        ratio = f"{arm.median_ratio:8.3f}" if arm.median_ratio is not None else f"{'1':>8}"
        same = "same" if arm.same_tokens else "DIFFERENT"
        line = f"{arm.name:<18}{arm.median_tok_s:8.1f}{ratio}"
        if arm.misses_per_token is None:
            typer.echo(f"{line}{'-':>14}{'-':>13}{'-':>21}  {same}")
        else:
            waits = (
                f"{1e3 * (arm.route_wait_s_per_token or 0):.2f} route {1e3 * (arm.read_wait_s_per_token or 0):.2f} read"
            )
            typer.echo(f"{line}{arm.misses_per_token:14.2f}{arm.disk_bytes_per_token:13,.0f}{waits:>21}  {same}")


def engine(
    source: Annotated[str, typer.Argument(help="An MLX-format checkpoint that fits, or 'demo'.")] = BUNDLED_CHECKPOINT,
    slots: Annotated[str, typer.Option(help="Pool sizes, separated by commas; 'all' is every expert.")] = "all",
    tokens: Annotated[int, typer.Option(help="Token ids fed to every arm in a round.")] = 64,
    rounds: Annotated[int, typer.Option(help="Times every arm runs, each time on other ids.")] = 9,
    group_limit: Annotated[
        int | None, typer.Option(help="Also run each size with groups of at most so many layers.")
    ] = None,
    hit_ratios: Annotated[
        str | None,
        typer.Option(help="Pool sizes with these hit ratios on the ids fed, such as 0.99,0.9, instead of --slots."),
    ] = None,
    widths: Annotated[
        bool, typer.Option(help="Also time forwards of 1 to 5 tokens, and a rollback; all experts resident.")
    ] = False,
    lock: LockOption = None,
    cache: CacheOption = None,
) -> None:
    """Compare forwards on forced token ids: plain mlx-lm and this engine at several pool sizes, interleaved."""
    stop_on_signals()
    from worker.benchmark.anchor import load_plain
    from worker.benchmark.engine import engine_arm, interleave, plain_arm, rollback_share, width_costs, zipf_ids
    from worker.checkpoint.prepare import MLX_DTYPES
    from worker.machine.awake import awake
    from worker.machine.lock import DEFAULT_LOCK, machine_lock
    from worker.model.build import EngineSettings, build_target

    with machine_lock(lock or DEFAULT_LOCK), awake():
        directory, prepared = _open(CheckpointRef(source=source), cache)
        manifest = prepared.manifest
        plain = load_plain(directory, MLX_DTYPES[manifest.compute_dtype])
        vocabulary = plain.args.vocab_size
        prompt = zipf_ids(vocabulary, 40, seed=0)
        ids = [zipf_ids(vocabulary, tokens, seed=1 + index) for index in range(rounds)]
        counts = [_slot_count(text, manifest.num_experts) for text in slots.split(",")]
        if hit_ratios is not None:
            counts = _slots_that_hit(prepared, [_ratio(text) for text in hit_ratios.split(",")], prompt, ids)
        arms = [plain_arm("plain mlx-lm", plain)]
        for count in counts:
            for limit in (1,) if group_limit is None else (1, group_limit):
                settings = EngineSettings(slots_per_layer=count, group_limit=limit)
                name = f"{count} slots" if limit == 1 else f"{count} slots, groups"
                arms.append(engine_arm(name, build_target(prepared.directory, manifest, settings)))
        summaries = interleave(arms, prompt, ids, on_round=lambda n: say(f"round {n} of {rounds}"))
        typer.echo(
            f"{rounds} rounds of {tokens} forced ids; ratio: median over rounds of the speed over plain mlx-lm's"
        )
        head = f"{'arm':<20}{'ms/token':>10}{'ratio':>8}{'misses/token':>14}{'bytes/token':>13}"
        typer.echo(f"{head}  {'host waits ms/token':<22}best ids")
        for summary in summaries:
            typer.echo(_engine_line(summary))
        if widths:
            resident = EngineSettings(slots_per_layer=manifest.num_experts)
            target = build_target(prepared.directory, manifest, resident)
            ours = engine_arm("ours", target, recording=True)
            for width, theirs_ms, ours_ms, ratio in width_costs(
                arms[0], ours, prompt, zipf_ids(vocabulary, 64, seed=99), widths=(1, 2, 3, 4, 5), rounds=rounds
            ):
                typer.echo(
                    f"forward of {width}: plain {theirs_ms:.2f} ms, ours {ours_ms:.2f} ms, cost ratio {ratio:.3f}"
                )
            call, waited = rollback_share(target, prompt, zipf_ids(vocabulary, 64, seed=98))
            typer.echo(
                f"rollback by one token of 3: {call:.2%} of the forward; {waited:.2%} when the device is waited for"
            )


def reads(
    source: Annotated[
        str, typer.Argument(help="An MLX-format or prepared checkpoint, or 'demo'.")
    ] = BUNDLED_CHECKPOINT,
    slots: Annotated[int | None, typer.Option(help="Experts of each layer kept in memory. Default: a token's.")] = None,
    threads: Annotated[int, typer.Option(help="Threads that read, on both sides.")] = 8,
    page_cache: Annotated[
        str, typer.Option(help="bypass or use: reads past the system's page cache, or through it.")
    ] = "bypass",
    tokens: Annotated[int, typer.Option(help="Token ids fed in a round.")] = 16,
    rounds: Annotated[int, typer.Option(help="Times both sides run.")] = 7,
    lock: LockOption = None,
    cache: CacheOption = None,
) -> None:
    """Compare how fast demanded experts are read while the model runs with the same threads reading alone."""
    stop_on_signals()
    from worker.benchmark.engine import zipf_ids
    from worker.benchmark.reads import compare_reads
    from worker.machine.awake import awake
    from worker.machine.lock import DEFAULT_LOCK, machine_lock
    from worker.model.build import EngineSettings, build_target

    if page_cache not in ("bypass", "use"):
        raise TaskError(f"--page-cache is {page_cache!r}, expected bypass or use")
    with machine_lock(lock or DEFAULT_LOCK), awake():
        _, prepared = _open(CheckpointRef(source=source), cache)
        settings = EngineSettings(
            slots_per_layer=slots or prepared.manifest.experts_per_token,
            reader_threads=threads,
            bypass_page_cache=page_cache == "bypass",
            group_limit=1,
        )
        target = build_target(prepared.directory, prepared.manifest, settings)
        vocabulary = target.model.args.vocab_size
        found = compare_reads(
            target,
            zipf_ids(vocabulary, 8, seed=0),
            [zipf_ids(vocabulary, tokens, seed=1 + index) for index in range(rounds)],
            on_round=lambda n: say(f"round {n} of {rounds}"),
        )
        target.close()
    typer.echo(f"{rounds} rounds of {tokens} forced ids, {threads} threads, page cache: {page_cache}")
    typer.echo(
        f"{found.records_per_wait:.1f} records per wait, {found.mean_depth:.1f} reads outstanding at a submission"
    )
    for name, rates, ratio in (
        ("alone", found.alone, None),
        ("demanded, while any read was outstanding", found.active, found.active_ratio),
        ("demanded, while the forward waited", found.waited, found.waited_ratio),
    ):
        line = f"{name:<42}{median(rates) / 1e9:6.2f} GB/s ({min(rates) / 1e9:.2f}-{max(rates) / 1e9:.2f})"
        typer.echo(line if ratio is None else f"{line}  {ratio:.3f} of alone")


def _open(reference: CheckpointRef, cache: Path | None) -> tuple[Path, Prepared]:
    """The MLX-format directory that mlx-lm loads, and its prepared twin that this engine streams from."""
    from worker.checkpoint.resolve import BUNDLED_DIRECTORY, default_cache_directory, open_stamps, resolve
    from worker.model.build import backend_dtype

    bundled = reference.source == BUNDLED_CHECKPOINT
    where = cache or default_cache_directory()
    prepared = resolve(reference, cache=where, compute_dtype=backend_dtype(), stamps=open_stamps(where))
    return BUNDLED_DIRECTORY if bundled else Path(reference.source).expanduser(), prepared


def _slots_that_hit(
    prepared: Prepared, ratios: list[float], prompt: tuple[int, ...], ids: list[tuple[int, ...]]
) -> list[int]:
    """The slots of a layer that give each hit ratio on these ids, told from a run with every expert resident."""
    from worker.benchmark.misses import misses_by_slots, slots_for
    from worker.model.build import EngineSettings, build_target

    manifest = prepared.manifest
    resident = build_target(prepared.directory, manifest, EngineSettings(slots_per_layer=manifest.num_experts))
    misses = misses_by_slots(resident, prompt, ids)
    resident.close()
    routed = len(manifest.moe_layers) * manifest.experts_per_token
    return [max(manifest.experts_per_token, slots_for(misses, routed, ratio)) for ratio in ratios]


def _ratio(text: str) -> float:
    """Raises: TaskError when the text is no number from 0 to 1."""
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise TaskError(f"--hit-ratios has {text!r}, expected numbers from 0 to 1, separated by commas")
    return ratio


def _engine_line(summary: ArmSummary) -> str:
    counters, count = summary.counters, summary.num_tokens
    line = f"{summary.name:<20}{summary.median_ms:10.2f}{summary.median_ratio:8.3f}"
    same = "same" if summary.same_ids else "DIFFERENT"
    if counters is None:
        return f"{line}{'-':>14}{'-':>13}  {'-':<22}{same}"
    waits = f"{1e3 * counters.route_wait_s / count:.2f} route {1e3 * counters.read_wait_s / count:.2f} read"
    return f"{line}{counters.num_disk_loads / count:14.2f}{counters.disk_bytes / count:13,.0f}  {waits:<22}{same}"


def _slot_count(text: str, num_experts: int) -> int:
    """Raises: TaskError when the text is neither 'all' nor a whole number."""
    if text.strip() == "all":
        return num_experts
    if not text.strip().isdigit():
        raise TaskError(f"--slots has {text!r}, expected whole numbers or 'all', separated by commas")
    return int(text)
