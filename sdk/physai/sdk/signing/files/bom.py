"""Exports a bundle as a CycloneDX ML-BOM with its contents, provenance and measured performance.

Format: CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/). Built by hand because CycloneDX's Python library does not
support model cards. Equal bundles give equal documents.
"""

import json
import uuid
from typing import Any

from physai.sdk.bundle.archive import POLICY_FILES
from physai.sdk.bundle.manifest import Bundle
from physai.sdk.contract.interface import graph_interface
from physai.sdk.policy.header import GOLDEN_FILE
from physai.sdk.signing.files.bundle_diff import verdict_facts
from physai.sdk.signing.sign import read_claims
from physai.sdk.signing.verify import SignedVerdict

SPEC_VERSION = "1.6"
_VERSION_PREFIX = "version."
"""Prefix of provenance keys that record a package version."""


def bom_text(bundle: Bundle) -> str:
    """The bundle's ML-BOM, JSON."""
    return json.dumps(bom(bundle), indent=2, ensure_ascii=False) + "\n"


def bom(bundle: Bundle) -> dict[str, Any]:
    """The bundle's ML-BOM as nested dictionaries."""
    manifest = bundle.manifest
    components = [_member(bundle, name) for name in bundle.members] + _libraries(bundle)
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, bundle.sha256).urn,
        "version": 1,
        "metadata": {
            "timestamp": manifest.created,
            "tools": {
                "components": [{"type": "application", "name": "physai-sdk", "version": manifest.physai_version}]
            },
            "component": {
                "type": "machine-learning-model",
                "bom-ref": "bundle",
                "name": f"{manifest.task} for {manifest.robot}",
                "version": str(manifest.version),
                "hashes": [_hash(bundle.sha256)],
                "modelCard": _model_card(bundle),
                "properties": _properties(bundle),
            },
        },
        "components": components,
        "dependencies": [{"ref": "bundle", "dependsOn": [component["bom-ref"] for component in components]}],
    }


def _hash(sha256: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": sha256}


def _member(bundle: Bundle, name: str) -> dict[str, Any]:
    kind = "machine-learning-model" if name in POLICY_FILES else "data" if name == GOLDEN_FILE else "file"
    return {
        "type": kind,
        "bom-ref": f"member:{name}",
        "name": name,
        "hashes": [_hash(bundle.members.sha256(name))],
        "properties": [_property("size", str(bundle.members.size(name)))],
    }


def _libraries(bundle: Bundle) -> list[dict[str, Any]]:
    """Packages used to train and export the policy, from its provenance."""
    versions = {
        key.removeprefix(_VERSION_PREFIX): value
        for key, value in bundle.manifest.provenance.items()
        if key.startswith(_VERSION_PREFIX)
    }
    return [
        {"type": "library", "bom-ref": f"library:{name}", "name": name, "version": version}
        for name, version in sorted(versions.items())
    ]


def _property(name: str, value: str) -> dict[str, str]:
    return {"name": f"physai:{name}", "value": value}


def _properties(bundle: Bundle) -> list[dict[str, str]]:
    claims = read_claims(bundle)
    signed = claims.verdict
    facts = {
        "bundle:id": bundle.id,
        "contract:fingerprint": bundle.manifest.contract_fingerprint,
        **{f"provenance:{key}": value for key, value in bundle.manifest.provenance.items()},
        **({} if signed is None else {f"verdict:{key}": value for key, value in verdict_facts(signed).items()}),
    }
    signers = [_property("publisher", key) for key in claims.publishers]
    signers += [_property("validator", key) for key in claims.validators]
    return [_property(name, value) for name, value in facts.items()] + signers


def _model_card(bundle: Bundle) -> dict[str, Any]:
    interface = graph_interface(bundle.contract)
    inputs, outputs = {**interface.sensors, **interface.commands}, interface.targets
    card: dict[str, Any] = {
        "modelParameters": {
            "approach": {"type": "reinforcement-learning"},
            "task": bundle.manifest.task,
            "inputs": [{"format": f"{name}: float32[n, {width}]"} for name, width in inputs.items()],
            "outputs": [{"format": f"{name}: float32[n, {width}]"} for name, width in outputs.items()],
        }
    }
    signed = read_claims(bundle).verdict
    if signed is not None:
        card["quantitativeAnalysis"] = {"performanceMetrics": _metrics(signed)}
    return card


def _metrics(signed: SignedVerdict) -> list[dict[str, Any]]:
    metrics: list[dict[str, Any]] = []
    for gate in signed.verdict.gates:
        for measured in gate.measured:
            metric: dict[str, Any] = {"type": f"{gate.gate}.{measured.name}", "value": f"{measured.value:.9g}"}
            bounds = {"lowerBound": measured.lower, "upperBound": measured.upper}
            interval = {name: f"{bound:.9g}" for name, bound in bounds.items() if bound is not None}
            metrics.append({**metric, **({"confidenceInterval": interval} if interval else {})})
    return metrics
