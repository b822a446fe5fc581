"""The studies that come with the program: beside the package in a checkout, inside it in an installed wheel."""

from __future__ import annotations

from pathlib import Path

from fleet.errors import UsageError

_PACKAGE = Path(__file__).parents[1]


def bundled_folder() -> Path:
    """The folder that holds `studies/` and `prompts/`.

    Raises: UsageError when the installation lacks it.
    """
    for folder in (_PACKAGE / "bundled", _PACKAGE.parent / "inventory"):
        if (folder / "studies").is_dir():
            return folder
    raise UsageError(
        f"this installation holds no bundled studies: {_PACKAGE / 'bundled'} is missing", "install it again"
    )


def find_study(reference: str) -> Path:
    """The file that a command line names: a path, or the name of a bundled study.

    Raises: UsageError naming what exists.
    """
    try:
        path = Path(reference).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{reference}: there is no such home", "give the path of a study file") from error
    if path.is_file():
        return path
    looks_like_name = path.suffix != ".toml" and len(path.parts) == 1
    if looks_like_name:
        studies = bundled_folder() / "studies"
        if (studies / f"{reference}.toml").is_file():
            return studies / f"{reference}.toml"
        known = ", ".join(sorted(entry.stem for entry in studies.glob("*.toml")))
        raise UsageError(f"there is no study {reference!r}", f"give the path of a study file, or one of: {known}")
    what = "a directory" if path.is_dir() else "missing"
    raise UsageError(f"{path}: expected a study file, it is {what}", "give the path of a .toml file")
