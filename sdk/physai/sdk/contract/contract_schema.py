"""JSON Schema of contract files, for editors and for readers in other languages.

It covers types, bounds and names, but not the consistency of the parts (`physai.sdk.contract.checks`).
"""

import json
from typing import Any

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import FORMAT_VERSION


def contract_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the files that `save_contract` writes."""
    schema = PolicyContract.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:physai:contract:{FORMAT_VERSION}",
        **schema,
    }


def schema_text() -> str:
    """Return the content of `docs/contract.schema.json`."""
    return json.dumps(contract_schema(), indent=2, ensure_ascii=False) + "\n"
