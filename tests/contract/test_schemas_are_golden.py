"""The tables' schemas, as text files: a change of a column is a change of the contract, and shows in review.

After a meant change raise SCHEMA_VERSION and run `python -m tests.contract.test_schemas_are_golden`.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from worker.contract.schema import SCHEMA_VERSION, SCHEMAS

GOLDEN = Path(__file__).parent / "schemas"


def describe(schema: pa.Schema) -> str:
    """One line per column, struct fields indented below it."""
    lines: list[str] = []
    for field in schema:
        if pa.types.is_struct(field.type):
            lines.append(f"{field.name}: struct")
            lines += [
                f"    {field.type.field(i).name}: {field.type.field(i).type}" for i in range(field.type.num_fields)
            ]
        else:
            lines.append(f"{field.name}: {field.type}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_as_recorded(name: str) -> None:
    assert describe(SCHEMAS[name]) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_every_recorded_schema_exists_and_the_version_is_recorded() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {*SCHEMAS, "VERSION"}
    assert (GOLDEN / "VERSION.txt").read_text(encoding="utf-8") == f"{SCHEMA_VERSION}\n"


def test_every_column_is_nullable_and_named_once() -> None:
    for name, schema in SCHEMAS.items():
        assert len(set(schema.names)) == len(schema.names), name
        assert all(field.nullable for field in schema), name


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for table, recorded in SCHEMAS.items():
        (GOLDEN / f"{table}.txt").write_text(describe(recorded), encoding="utf-8")
    (GOLDEN / "VERSION.txt").write_text(f"{SCHEMA_VERSION}\n", encoding="utf-8")
