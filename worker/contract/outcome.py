"""What a run ends with: `Completed` or `Failed`, never an exception across a process boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from worker.contract.errors import FailureKind, WorkerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The run measured everything. `tables` maps a table name of schema.py to its number of rows in the spool."""

    tables: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        return {"outcome": "completed", "tables": self.tables}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The run ended early. `error` is the class name, `message` one line, `hint` what to do next."""

    kind: FailureKind
    error: str
    message: str
    hint: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "outcome": "failed",
            "kind": self.kind,
            "error": self.error,
            "message": self.message,
            "hint": self.hint,
        }

    @classmethod
    def from_error(cls, error: BaseException) -> Failed:
        """An unknown exception is permanent: running the same code again would meet it again."""
        if isinstance(error, WorkerError):
            return cls(kind=error.kind, error=type(error).__name__, message=error.message, hint=error.hint)
        return cls(
            kind="permanent",
            error=type(error).__name__,
            message=str(error) or type(error).__name__,
            hint="this is a defect; the worker's log beside the spool holds the trace",
        )


Outcome = Completed | Failed


def outcome_from_dict(data: dict[str, Any]) -> Outcome:
    """Raises: KeyError or ValueError when the object is no outcome."""
    match data["outcome"]:
        case "completed":
            return Completed(tables={str(name): int(rows) for name, rows in data["tables"].items()})
        case "failed":
            if data["kind"] not in ("permanent", "transient", "lost"):
                raise ValueError(f"unknown failure kind {data['kind']!r}")
            return Failed(kind=data["kind"], error=data["error"], message=data["message"], hint=data.get("hint", ""))
        case other:
            raise ValueError(f"unknown outcome {other!r}")
