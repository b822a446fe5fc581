"""The places on disk that a command may name: the data directory with all that is in it, the cache, and the lock."""

from __future__ import annotations

import functools
import stat
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

InventoryOption = Annotated[
    Path | None,
    typer.Option(
        "--inventory",
        metavar="DIR",
        help="The folder with fleet.toml and machines/. Default: ./inventory if it has one, else the data directory's.",
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
    root = _default() if chosen is None else chosen.expanduser().absolute()
    _warn_of_sharing(root)
    return DataDirectory(root=root)


@functools.cache  # once a command, however often it asks for the directory
def _warn_of_sharing(root: Path) -> None:
    """A directory that others may write is theirs to change: a laboratory may mean that, so it is told and used."""
    try:
        mode = stat.S_IMODE(root.stat().st_mode)
    except OSError:  # it is not there yet, or whoever uses it says why it cannot be used
        return
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        typer.echo(
            f"warning: {root}: others may write there (mode {mode:o}) and change what is stored; "
            f"chmod go-w {root} unless you share it",
            err=True,
        )


def _default() -> Path:
    base = Path.home() / ("Library/Application Support" if sys.platform == "darwin" else ".local/share")
    return base / "mlx-fleet"
