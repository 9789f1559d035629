"""The ML-BOM and the JSON Schemas: valid by their own rules, true of what the library writes, up to date."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.signing.document_schemas import SCHEMAS, schema, schema_text
from physai.sdk.signing.files.bom import bom, bom_text
from physai.sdk.signing.files.bundle_diff import diff_bundles

Workshop = Any
jsonschema = pytest.importorskip("jsonschema")

DOCS = Path(__file__).parents[4] / "docs"


@pytest.mark.parametrize("name", SCHEMAS)
def test_stored_schemas_are_up_to_date(name: str) -> None:
    stored = (DOCS / f"{name}.schema.json").read_text(encoding="utf-8")
    assert stored == schema_text(name), (
        f"python -m physai.sdk.signing.document_schemas {name} > docs/{name}.schema.json"
    )


def test_real_documents_validate(workshop: Workshop, complete: bytes, now: datetime) -> None:
    trust = workshop.trust.with_revoked("0" * 64, since=now, reason="lost")
    documents: dict[str, Any] = {
        "manifest": json.loads(read_bundle(complete).members["manifest.json"]),
        "trust": json.loads(workshop.signed(trust).encode()),
        "verdict-predicate": workshop.predicate(complete).model_dump(mode="json"),
    }
    assert set(documents) == set(SCHEMAS)
    for name, document in documents.items():
        jsonschema.Draft202012Validator.check_schema(schema(name))
        validator = jsonschema.Draft202012Validator(schema(name))
        validator.validate(document)
        assert not validator.is_valid({**document, "extra": 1})
        assert not validator.is_valid({})


def test_the_bom_is_valid_cyclonedx(complete: bytes) -> None:
    schemas = pytest.importorskip("cyclonedx.validation.json")
    versions = pytest.importorskip("cyclonedx.schema").SchemaVersion
    try:
        validator = schemas.JsonStrictValidator(versions.V1_6)
        error = validator.validate_str(bom_text(read_bundle(complete)))
    except schemas.MissingOptionalDependencyException:
        pytest.skip("cyclonedx-python-lib[json-validation] is not installed")
    assert error is None
    assert validator.validate_str(bom_text(read_bundle(complete)).replace("SHA-256", "SHA-257")) is not None


def test_the_bom_says_what_is_inside(workshop: Workshop, complete: bytes) -> None:
    bundle = read_bundle(complete)
    document = bom(bundle)
    assert document == bom(read_bundle(complete)), "equal bundles, equal documents"
    members = {part["name"]: part["hashes"][0]["content"] for part in document["components"] if "hashes" in part}
    assert members == bundle.digests
    component = document["metadata"]["component"]
    assert component["hashes"][0]["content"] == bundle.sha256
    card = component["modelCard"]
    assert card["modelParameters"]["inputs"] == [{"format": "joint_pos: float32[n, 1]"}]
    assert card["modelParameters"]["outputs"] == [{"format": "joint_effort_target: float32[n, 1]"}]
    assert card["quantitativeAnalysis"]["performanceMetrics"] == [{"type": "success.success_rate", "value": "0.96"}]
    properties = {(one["name"], one["value"]) for one in component["properties"]}
    assert properties >= {
        ("physai:contract:fingerprint", bundle.manifest.contract_fingerprint),
        ("physai:provenance:seed", "7"),
        ("physai:verdict:outcome", "PASS"),
        ("physai:publisher", workshop.publisher.key_id),
        ("physai:validator", workshop.validator.key_id),
    }


def test_packages_of_the_provenance_are_libraries(workshop: Workshop) -> None:
    from physai.sdk.bundle.manifest import ManifestFacts, pack

    provenance = {"version.torch": "2.13.0", "seed": "8"}
    created = datetime.fromisoformat("2026-01-01T00:00:00Z")
    document = bom(
        read_bundle(pack(workshop.members(), ManifestFacts(version=1, created=created, provenance=provenance)))
    )
    libraries = [part for part in document["components"] if part["type"] == "library"]
    assert [(part["name"], part["version"]) for part in libraries] == [("torch", "2.13.0")]


def test_equal_bundles_do_not_differ(workshop: Workshop, complete: bytes) -> None:
    assert diff_bundles(read_bundle(complete), read_bundle(complete)) == []


def test_every_difference_is_named(workshop: Workshop, complete: bytes, make_onnx: Callable[..., bytes]) -> None:
    variant = {"policy.int8.onnx": make_onnx(workshop.header(), graph=b"int8")}
    left = read_bundle(complete)
    right = read_bundle(workshop.published(workshop.unsigned(version=6, variants=variant)))
    found = {one.where: (one.left, one.right) for one in diff_bundles(left, right)}
    assert found["manifest version"] == ("5", "6")
    assert found["member policy.int8.onnx"][0] is None
    assert found["verdict outcome"] == ("PASS", None)
    assert found[f"signed by {workshop.validator.key_id}"] == ("validator", None)
    assert not any(where.startswith("contract") for where in found)
    other = read_bundle(workshop.unsigned(task="balance"))
    assert {one.where: (one.left, one.right) for one in diff_bundles(left, other)}["contract task"] == (
        '"swingup"',
        '"balance"',
    )
