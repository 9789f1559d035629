"""Differences between two bundles, most important first: contract, members, verdict, manifest, provenance."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from physai.sdk.bundle.archive import is_later
from physai.sdk.bundle.manifest import Bundle
from physai.sdk.contract.contract_diff import diff as contract_diff
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.sign import read_claims
from physai.sdk.signing.verify import SignedVerdict


@dataclass(frozen=True)
class BundleDifference:
    """One difference between two bundles."""

    where: str
    """`member policy.int8.onnx`, `contract safety.joints[elbow].velocity_limit`, `provenance seed`"""
    left: str | None
    """None if absent from the left bundle."""
    right: str | None
    """None if absent from the right bundle."""


def diff_bundles(left: Bundle, right: Bundle) -> list[BundleDifference]:
    """All differences between two bundles, signers included."""
    return [
        *(
            BundleDifference(
                f"contract {change.path}",
                None if change.kind == "added" else json.dumps(change.left, ensure_ascii=False),
                None if change.kind == "removed" else json.dumps(change.right, ensure_ascii=False),
            )
            for change in contract_diff(left.contract, right.contract)
        ),
        *_compare("member", _members(left), _members(right)),
        *_compare("verdict", _verdict(left), _verdict(right)),
        *_compare("manifest", _facts(left), _facts(right)),
        *_compare("provenance", left.manifest.provenance, right.manifest.provenance),
        *_compare("signed by", _signers(left), _signers(right)),
    ]


def _compare(kind: str, left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[BundleDifference]:
    for name in dict.fromkeys((*left, *right)):
        if left.get(name) != right.get(name):
            yield BundleDifference(f"{kind} {name}", left.get(name), right.get(name))


def _members(bundle: Bundle) -> dict[str, str]:
    return {
        name: f"{bundle.members.size(name)} bytes, {sha256}"
        for name, sha256 in bundle.digests.items()
        if not is_later(name) and name in bundle.manifest.members
    }


def _verdict(bundle: Bundle) -> dict[str, str]:
    signed = read_claims(bundle).verdict
    return {} if signed is None else verdict_facts(signed)


def verdict_facts(signed: SignedVerdict) -> dict[str, str]:
    """Fields of a signed verdict as text, by name."""
    verdict = signed.verdict
    return {
        "outcome": verdict.outcome.value,
        "policy": signed.policy,
        "robot": signed.robot,
        "expires": utc_text(signed.expires),
        "created": verdict.created,
        "twin": verdict.twin_hash,
        "gate settings": verdict.gates_sha256,
        **{f"gate {gate.gate}": gate.outcome.value for gate in verdict.gates},
    }


def _facts(bundle: Bundle) -> dict[str, str]:
    manifest = bundle.manifest
    names = ("task", "robot", "version", "created", "physai_version")
    return {name: str(getattr(manifest, name)) for name in names}


def _signers(bundle: Bundle) -> dict[str, str]:
    claims = read_claims(bundle)
    return dict.fromkeys(claims.publishers, "publisher") | dict.fromkeys(claims.validators, "validator")
