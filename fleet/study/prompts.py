"""Prompt files: one JSON object per line, `{"id", "category", "text", "chat"}`, read strictly."""

from __future__ import annotations

import json
from pathlib import Path

from fleet.errors import UsageError
from fleet.strict import Strict, validate
from worker.contract.task import Prompt


class _Line(Strict):
    id: str
    category: str
    text: str
    chat: bool = True


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """All prompts of a file, in its order.

    Raises: UsageError naming the file, the line and what was expected there.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # splitlines would cut a text at U+2028, too
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path that holds a null byte
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: the prompts cannot be read: {reason}", "check prompts.file in the study") from error
    prompts = tuple(_prompt(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip())
    if not prompts:
        raise UsageError(f"{path}: holds no prompts", "write one JSON object per line")
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise UsageError(f"{path}: two prompts are called {prompt.id!r}", "prompt ids must be unique")
        seen.add(prompt.id)
    return prompts


def select_prompts(
    prompts: tuple[Prompt, ...], *, ids: list[str] | None, categories: list[str] | None, where: str
) -> tuple[Prompt, ...]:
    """The prompts of the given ids and categories, in the file's order.

    Raises: UsageError for an id or a category that no prompt has.
    """
    for key, wanted, known in (
        ("ids", ids, [prompt.id for prompt in prompts]),
        ("categories", categories, sorted({prompt.category for prompt in prompts})),
    ):
        if unknown := [name for name in wanted or () if name not in known]:
            raise UsageError(f"{where}: prompts.{key} names {unknown[0]!r}", f"the file holds: {', '.join(known)}")
    chosen = tuple(
        prompt
        for prompt in prompts
        if (ids is None or prompt.id in ids) and (categories is None or prompt.category in categories)
    )
    if not chosen:
        raise UsageError(f"{where}: prompts.ids and prompts.categories leave no prompt", "widen one of them")
    return chosen


def _prompt(line: str, where: str) -> Prompt:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of more digits than int() reads
        reason = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise UsageError(f"{where}: not JSON: {reason}", 'expected {"id", "category", "text", "chat"}') from error
    if not isinstance(data, dict):
        raise UsageError(f"{where}: not a JSON object", 'expected {"id", "category", "text", "chat"}')
    parsed = validate(data, _Line, where=where)
    if not parsed.text.strip():
        raise UsageError(f"{where}: the text is empty", "write a text")
    _refuse_half_letters(parsed, where)
    return Prompt(id=parsed.id, category=parsed.category, text=parsed.text, chat=parsed.chat)


def _refuse_half_letters(line: _Line, where: str) -> None:
    """JSON can write half of a surrogate pair, which is no letter and cannot be hashed, stored or tokenized."""
    for key in ("id", "category", "text"):
        try:
            getattr(line, key).encode()
        except UnicodeEncodeError as error:
            broken = ascii(error.object[error.start])
            raise UsageError(f"{where}: {key} holds half a letter, {broken}", "write the letter itself") from error
