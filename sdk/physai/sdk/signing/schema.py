"""The JSON Schemas of a bundle's manifest and of trust files, for editors and for readers in other languages.

They state types, bounds and names; that hashes are those of the members, and key ids those of the keys, no schema says.
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
"""Names of the schemas; each lies in `docs/NAME.schema.json`."""


def schema(name: str) -> dict[str, Any]:
    """One of the schemas, JSON Schema draft 2020-12."""
    model, version = _MODELS[name]
    found = model.model_json_schema()
    # A reader asks for the format before anything else, so it is written even though the model has a default for it.
    stated = ["format_version"] if "format_version" in found["properties"] else []
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:physai:{name}:{version}",
        **found,
        "required": [*stated, *found.get("required", [])],
    }


def schema_text(name: str) -> str:
    """The schema as it lies in `docs/NAME.schema.json`."""
    return json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(schema_text(sys.argv[1]), end="")
