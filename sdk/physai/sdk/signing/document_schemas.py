"""JSON Schemas of bundle manifests, trust files and verdict predicates, for editors and other languages.

They describe types, bounds and names; they cannot express that hashes match the members or key ids the keys.
"""

import json
import sys
from typing import Any

from physai.sdk.bundle.manifest import FORMAT_VERSION as MANIFEST_VERSION
from physai.sdk.bundle.manifest import Manifest
from physai.sdk.contract.robot import Frozen
from physai.sdk.signing.attestation import VerdictPredicate
from physai.sdk.signing.trust_file import FORMAT_VERSION as TRUST_VERSION
from physai.sdk.signing.trust_file import TrustDocument

_MODELS: dict[str, tuple[type[Frozen], int]] = {
    "manifest": (Manifest, MANIFEST_VERSION),
    "trust": (TrustDocument, TRUST_VERSION),
    "verdict-predicate": (VerdictPredicate, 1),
}

SCHEMAS = tuple(_MODELS)
"""Names of the schemas."""


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of that name."""
    model, version = _MODELS[name]
    fields = model.model_json_schema()
    # Readers check the format version first, so it is required although the model has a default for it.
    required = ["format_version"] if "format_version" in fields["properties"] else []
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:physai:{name}:{version}",
        **fields,
        "required": [*required, *fields.get("required", [])],
    }


def schema_text(name: str) -> str:
    """The text of the schema's file in `docs/`."""
    return json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(schema_text(sys.argv[1]), end="")
