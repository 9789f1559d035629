"""The JSON Schema of contract files, for editors and for readers in other languages.

It states types, bounds and names; that the parts agree with each other (`contract_checks`) no schema can say.
"""

import json
from typing import Any

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import FORMAT_VERSION


def contract_schema() -> dict[str, Any]:
    """The schema, JSON Schema draft 2020-12, of what `save_contract` writes."""
    schema = PolicyContract.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:physai:contract:{FORMAT_VERSION}",
        **schema,
    }


def schema_text() -> str:
    """The schema as it lies in `docs/contract.schema.json`."""
    return json.dumps(contract_schema(), indent=2, ensure_ascii=False) + "\n"
