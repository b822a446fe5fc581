"""The places on disk that a command may name: the data directory with all that is in it, the cache, and the lock."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        "--store",
        metavar="DIR",
        help="Where studies, rows and reports are kept. Default: the user's data directory.",
        show_default=False,
    ),
]

CacheOption = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="DIR",
        help="Where prepared checkpoints are kept; as large as the model. Default: the user's cache directory.",
        show_default=False,
    ),
]
LockOption = Annotated[
    Path | None,
    typer.Option(
        "--lock",
        metavar="FILE",
        help="The machine's benchmark lock. Default: one file for all users.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDirectory:
    """The places below one data directory."""

    root: Path

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def spool(self) -> Path:
        return self.root / "spool"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def reports(self) -> Path:
        return self.root / "reports"


def data_directory(chosen: Path | None) -> DataDirectory:
    """The directory that the command line names, or the platform's own place for such files."""
    if chosen is not None:
        return DataDirectory(root=chosen.expanduser().absolute())
    base = Path.home() / ("Library/Application Support" if sys.platform == "darwin" else ".local/share")
    return DataDirectory(root=base / "mlx-fleet")
