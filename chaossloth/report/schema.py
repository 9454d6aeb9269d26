"""The JSON Schema of the document, and the way back from a document to an `Investigation`.

Built from the dataclasses themselves (pydantic's TypeAdapter), so it cannot drift from what `evidence.dumps` writes.
"""

from __future__ import annotations

from typing import Any

from chaossloth.evidence import SCHEMA, Investigation

__all__ = ["json_schema", "loads"]


def json_schema() -> dict[str, Any]:
    """Draft 2020-12 schema of the "chaossloth/1" document."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Investigation).json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = SCHEMA
    return schema


def loads(document: str) -> Investigation:
    """The investigation that `document` was written from. Raises ValueError naming each field that is wrong."""
    from pydantic import TypeAdapter

    return TypeAdapter(Investigation).validate_json(document)
