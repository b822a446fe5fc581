"""Commands on checkpoints: prepare, verify, generate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from worker.cli.terminal import CacheOption, say
from worker.contract.errors import TaskError
from worker.contract.task import BUNDLED_CHECKPOINT


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (prepare, verify, generate):
        app.command()(command)


def prepare(
    source: Annotated[str, typer.Argument(help="An MLX-format checkpoint, or 'demo'.")],
    out: Annotated[Path, typer.Option(help="The directory to make.")],
    mtp: Annotated[
        Path | None, typer.Option(help="The file with the mtp.* tensors. Default: SOURCE/mtp.safetensors.")
    ] = None,
    compute_dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    cache: CacheOption = None,
) -> None:
    """Bring a checkpoint into the layout that experts stream from: one contiguous record per expert."""
    from worker.checkpoint.prepare import MLX_DTYPES, prepare
    from worker.checkpoint.resolve import BUNDLED_DIRECTORY, default_cache_directory, open_stamps, stored_dtype
    from worker.checkpoint.source import read_source
    from worker.model.build import backend_dtype

    directory = BUNDLED_DIRECTORY if source == BUNDLED_CHECKPOINT else Path(source).expanduser()
    found = read_source(directory, mtp)
    dtype: Any = (
        (backend_dtype() or stored_dtype(directory, found.config)) if compute_dtype == "auto" else compute_dtype
    )
    if dtype not in MLX_DTYPES or dtype == "uint32":
        raise TaskError(f"compute dtype is {dtype!r}, expected auto, float32, bfloat16 or float16")
    manifest = prepare(
        found,
        out,
        compute_dtype=dtype,
        stamps=open_stamps(cache or default_cache_directory()),
        name=BUNDLED_CHECKPOINT if source == BUNDLED_CHECKPOINT else None,
        on_progress=lambda fraction, what: say(f"prepare {fraction:4.0%} {what}"),
    )
    typer.echo(
        f"{out}: {len(manifest.moe_layers)} layers x {manifest.num_experts} experts, {dtype}, {manifest.source_digest}"
    )


def verify(
    directory: Annotated[Path, typer.Argument(help="A prepared checkpoint.")], cache: CacheOption = None
) -> None:
    """Compare every file and every expert record with the manifest's digests."""
    from worker.checkpoint.layout import read_manifest
    from worker.checkpoint.resolve import default_cache_directory, open_stamps
    from worker.checkpoint.verify import check_files, check_records, check_sizes

    manifest = read_manifest(directory)
    stamps = open_stamps(cache or default_cache_directory())
    check_sizes(directory, manifest)
    check_files(directory, manifest, stamps, always=True)
    count = check_records(
        directory, manifest, stamps, always=True, on_progress=lambda fraction: say(f"verify {fraction:4.0%}")
    )
    typer.echo(f"{directory}: {count} expert records and {len(manifest.files)} files agree with the manifest")


def generate(
    out: Annotated[Path, typer.Option(help="The directory to make.")],
    layers: Annotated[int, typer.Option(help="Layers; Qwen3-Next-80B has 48. One is 0.9 GB.")] = 12,
    vocabulary: Annotated[int, typer.Option(help="Size of the vocabulary; Qwen3-Next-80B has 151936.")] = 4096,
    skew: Annotated[float, typer.Option(help="Sigma of the log-normal factor on each expert's router row.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
) -> None:
    """Write a checkpoint with the layer sizes of Qwen3-Next-80B and RANDOM weights, to measure an engine with."""
    from worker.checkpoint.generate import RANDOM_NAME
    from worker.checkpoint.generate import generate as write

    write(
        out,
        num_layers=layers,
        vocab_size=vocabulary,
        router_sigma=skew,
        seed=seed,
        on_progress=lambda fraction, what: say(f"generate {fraction:4.0%} {what}"),
    )
    typer.echo(f"{out}: {layers} layers of Qwen3-Next-80B's sizes, {RANDOM_NAME}: what it emits means nothing")
