"""JSON Schema of verdict files, for dashboards and for readers in other languages.

It covers types, bounds and names, but not that the outcome follows from the gates.
"""

import json
from typing import Any

from physai.sdk.evidence.verdict import FORMAT_VERSION, Verdict


def verdict_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the files that `save_verdict` writes."""
    # "serialization": fields with a default are required, because a written verdict contains all fields.
    schema = Verdict.model_json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:physai:verdict:{FORMAT_VERSION}",
        **schema,
    }


def schema_text() -> str:
    """Return the content of `docs/verdict.schema.json`."""
    return json.dumps(verdict_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
