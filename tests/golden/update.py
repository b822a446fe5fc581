"""Write the golden reports again, after a change that was meant: `python -m tests.golden.update`, then read the diff."""

from __future__ import annotations

from fleet.report import json, markdown
from tests.golden.situations import GOLDEN, SITUATIONS


def update() -> None:
    """Overwrite every golden file."""
    for name, situation in SITUATIONS.items():
        report = situation().report()
        (GOLDEN / f"{name}.md").write_text(markdown.render(report), encoding="utf-8")
        (GOLDEN / f"{name}.json").write_text(json.render(report), encoding="utf-8")


if __name__ == "__main__":
    update()
