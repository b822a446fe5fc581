"""Which machines may run a study: `require = ["chip = m4*", "memory_gb >= 64", "tag = lab"]`, as frozen values.

The one idea: a fact that nobody knows yet is a reason against a machine, never a silent pass, and the reason says how to
learn it.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Literal, cast

from fleet.errors import UsageError
from fleet.nodes.answer import Fit, Unfit
from fleet.nodes.node import Node

Operator = Literal["=", "!=", ">=", "<=", ">", "<"]
_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}

TEXT_FACTS = ("name", "tag", "chip", "os", "os_build", "ssd")
NUMBER_FACTS = ("cpu_cores", "gpu_cores", "memory_gb")
KNOWN_FACTS = (*TEXT_FACTS, *NUMBER_FACTS)

_SHAPE = re.compile(r"\s*([A-Za-z_.]+)\s*(!=|>=|<=|==|=|>|<)\s*(\S(?:.*\S)?)\s*")
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?", re.ASCII)
_MAKER = "apple "
_ADVICE = "fleet up {name} asks it"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What a machine reported of itself; None is what it could not find out. Units: `memory_gb` in 2^30 bytes."""

    chip: str | None = None
    cpu_cores: int | None = None
    gpu_cores: int | None = None
    memory_gb: float | None = None
    os: str | None = None
    os_build: str | None = None
    ssd: str | None = None

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> MachineFacts:
        """The facts in the JSON of `worker probe`. What is missing there, or is of another kind, is not known."""
        memory_bytes = _whole(report.get("memory_bytes"))
        words = [word for word in (_text(report.get("os_name")), _text(report.get("os_version"))) if word]
        return cls(
            chip=_text(report.get("chip")),
            cpu_cores=_whole(report.get("cpu_cores")),
            gpu_cores=_whole(report.get("gpu_cores")),
            memory_gb=None if memory_bytes is None else round(memory_bytes / 2**30, 1),
            os=" ".join(words) or None,
            os_build=_text(report.get("os_build")),
            ssd=_text(report.get("ssd")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """One condition on one fact. `value` is a number for a number's fact, else a pattern without regard to case."""

    fact: str
    operator: Operator
    value: str | float

    def __str__(self) -> str:
        value = f"{self.value:.15g}" if isinstance(self.value, float) else self.value
        return f"{self.fact} {self.operator} {value}"


def parse_constraint(text: str, *, where: str = "require") -> Constraint:
    """Raises: UsageError naming what is wrong and what is allowed."""
    match = _SHAPE.fullmatch(text)
    if not match:
        raise UsageError(
            f"{where}: {text!r} is no condition", 'expected FACT OPERATOR VALUE, such as "memory_gb >= 64"'
        )
    fact, sign, value = match[1], "=" if match[2] == "==" else match[2], match[3]
    if fact not in KNOWN_FACTS:
        close = difflib.get_close_matches(fact, KNOWN_FACTS, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise UsageError(f"{where}: {text!r}: unknown fact {fact!r}", f"{meant}known are: {', '.join(KNOWN_FACTS)}")
    if fact in NUMBER_FACTS and not _NUMBER.fullmatch(value):
        raise UsageError(f"{where}: {text!r}: {fact} is a number, {value!r} is none", "write digits alone, no unit")
    if fact in TEXT_FACTS and sign not in ("=", "!="):
        raise UsageError(
            f"{where}: {text!r}: {fact} is a text, which has no order", "use = or != with a pattern such as m4*"
        )
    return Constraint(fact=fact, operator=cast("Operator", sign), value=float(value) if fact in NUMBER_FACTS else value)


def meets(constraint: Constraint, node: Node, facts: MachineFacts | None) -> Fit | Unfit:
    """Does this machine meet the condition, by what the inventory and its own report say?"""
    known = _known(constraint.fact, node, facts or MachineFacts())
    if known is None:
        advice = _ADVICE.format(name=node.name)
        return Unfit(reason=f"{constraint.fact} of {node.name} is not known yet ({advice}); asked for: {constraint}")
    if isinstance(constraint.value, float):
        assert isinstance(known, int | float)
        met = _ORDER[constraint.operator](known, constraint.value)
        shown = f"{known:g}"
    else:
        texts = known if isinstance(known, tuple) else (str(known),)
        found = any(_matches(text, str(constraint.value)) for text in texts)
        met = found == (constraint.operator == "=")
        shown = ", ".join(texts) or "none"
    return Fit() if met else Unfit(reason=f"{constraint.fact} of {node.name} is {shown}; asked for: {constraint}")


def meets_all(constraints: Sequence[Constraint], node: Node, facts: MachineFacts | None) -> Fit | Unfit:
    """The first answer that is a no, or yes."""
    answers = (meets(constraint, node, facts) for constraint in constraints)
    return next((answer for answer in answers if isinstance(answer, Unfit)), Fit())


def _known(fact: str, node: Node, facts: MachineFacts) -> str | float | tuple[str, ...] | None:
    if fact == "name":
        return node.name
    if fact == "tag":
        return node.tags
    assert fact in {field.name for field in fields(MachineFacts)}
    return getattr(facts, fact)


def _matches(text: str, pattern: str) -> bool:
    return fnmatchcase(_bare(text), _bare(pattern))


def _bare(text: str) -> str:
    return text.casefold().removeprefix(_MAKER)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
