"""TOML at the border: a file becomes validated values, or one line that names file, key and what is allowed."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.errors import UsageError

MAX_SHOWN = 120
"""Characters of a wrong value or key that a message repeats."""
WHOLE = range(-(2**63), 2**63)
"""The whole numbers that TOML knows; the parser lets longer ones through, which no table could keep."""


class Strict(BaseModel):
    """A TOML table that accepts its own keys only and converts nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


Model = TypeVar("Model", bound=Strict)


def read_toml(path: Path, model: type[Model]) -> Model:
    """Raises: UsageError naming the file and the place in it."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        too_long = next(_too_long(data, ""), None)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}", "check the path") from error
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply", "write it with fewer levels") from error
    except ValueError as error:  # beside its own errors, the parser lets those of int() and of the decoder through
        raise UsageError(f"{path}: not a TOML file: {error}", "correct the line that it names") from error
    if too_long is not None:
        raise UsageError(f"{path}: the number at {_brief(too_long)} is too large", "expected at most 64 bits")
    return validate(data, model, where=str(path))


def _too_long(value: Any, place: str) -> Iterator[str]:
    """Where the whole numbers stand that have more than 64 bits."""
    if isinstance(value, int) and value not in WHOLE:
        yield place
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from _too_long(entry, f"{place}[{key}]" if isinstance(key, int) else f"{place}.{key}".lstrip("."))


def validate(data: Any, model: type[Model], *, where: str) -> Model:
    """Raises: UsageError for the first thing wrong, prefixed by `where`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _usage_error(error, model, where) from error


def _usage_error(error: ValidationError, model: type[Strict], where: str) -> UsageError:
    found = error.errors(include_url=False)
    # A misspelt key is also a missing one; only the first of the two tells what happened.
    first = next((entry for entry in found if entry["type"] == "extra_forbidden"), found[0])
    location = first["loc"]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    if first["type"] == "extra_forbidden":
        allowed = list(_table_at(model, location[:-1]).model_fields)
        close = difflib.get_close_matches(str(location[-1]), allowed, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        return UsageError(f"{where}: unknown key {_brief(key)}", f"{meant}allowed here: {', '.join(allowed)}")
    if first["type"] == "missing":
        return UsageError(f"{where}: the key {key!r} is missing", "add it")
    message = first["msg"].removeprefix("Value error, ")
    return UsageError(
        f"{where}: {key} is {_brief(first['input'])}: {message[:1].lower()}{message[1:]}", "correct the value"
    )


def _brief(value: Any) -> str:
    """The value as it was written, cut where a line of explanation would drown in it."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _table_at(model: type[Strict], location: tuple[int | str, ...]) -> type[Strict]:
    """The model of the nested table that a location leads to."""
    for part in location:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        nested = field and _model_in(field.annotation)
        if not nested:
            return model
        model = nested
    return model


def _model_in(annotation: Any) -> type[Strict] | None:
    if get_origin(annotation) is None:
        return annotation if isinstance(annotation, type) and issubclass(annotation, Strict) else None
    return next((found for found in map(_model_in, get_args(annotation)) if found), None)
