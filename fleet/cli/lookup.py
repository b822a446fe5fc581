"""Find a study that was submitted earlier: by its id, by its name, or by its file."""

from __future__ import annotations

from pathlib import Path

from fleet.cli.data import DataDirectory
from fleet.errors import UsageError
from fleet.ledger.sqlite import Ledger, ask_ledger
from fleet.ledger.state import StudyState


def known_studies(directory: DataDirectory) -> list[StudyState]:
    """Every study of a data directory, the latest last; none when there is no ledger yet."""
    return ask_ledger(directory.root, Ledger.studies, otherwise=[])


def find_submitted(reference: str | None, directory: DataDirectory) -> StudyState:
    """The study that a reference names; without one, the latest.

    Raises: UsageError naming what exists.
    """
    known = known_studies(directory)
    if not known:
        raise UsageError(f"{directory.root}: holds no studies yet", "fleet submit STUDY starts one")
    if reference is None:
        return known[-1]
    wanted = _id_in_file(reference) or reference
    for state in reversed(known):
        if wanted in (state.study_id, state.name):
            return state
    names = ", ".join(state.study_id for state in known[-5:])
    raise UsageError(f"{directory.root}: no study {reference!r} was submitted", f"there are: {names}")


def _id_in_file(reference: str) -> str | None:
    path = Path(reference).expanduser()
    if path.suffix != ".toml" or not path.is_file():
        return None
    from fleet.study.load import load_study

    return load_study(path).id
