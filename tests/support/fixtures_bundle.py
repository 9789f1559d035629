"""A small signed and validated bundle, its keys, and whoever may sign it."""

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from tests.harness.fixtures.onnx_writer import GraphWriter
from tests.harness.fixtures.sample import SAMPLE_DOCUMENT, passed_gates, robot_evidence

from physai.sdk.bundle.archive import VERDICT_FILE, signature_file
from physai.sdk.bundle.manifest import ManifestFacts, attach, pack, read_bundle
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.requirements import DEFAULT_GATES_SHA256
from physai.sdk.evidence.verdict import Cause, GateResult, Measurement, Verdict, VerdictOutcome, combine, utc_text
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE, PolicyHeader
from physai.sdk.signing.attestation import VerdictPredicate, bundle_statement, verdict_statement
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.trust_file import SignedTrust
from physai.sdk.signing.verify import TrustStore, Verified, verify

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def contract(**changes: Any) -> PolicyContract:
    return parse_contract(json.dumps({**SAMPLE_DOCUMENT, **changes}), source="test")


def onnx_bytes(header: PolicyHeader, *, graph: bytes = b"weights!") -> bytes:
    """A policy of zeros with the header's metadata and these bytes, a multiple of four, as weights."""
    writer = GraphWriter()
    writer.constant(np.frombuffer(graph, np.float32))
    for name, width in header.outputs.items():
        writer.node("Identity", writer.constant(np.zeros((1, width), np.float32)), output=name)
    return writer.model(header)


def golden_bytes(header: PolicyHeader, *, rows: int = 2, **changes: Any) -> bytes:
    """A golden file of zeros, or of the arrays in `changes`."""
    arrays = {name: np.zeros((rows, width), np.float32) for name, width in (header.inputs | header.outputs).items()}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {**arrays, "fingerprint": np.array(header.contract.fingerprint), **changes}.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array))
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    return data.getvalue()


def verdict_of(
    data: bytes, policy: str = POLICY_FILE, *, outcome: VerdictOutcome = VerdictOutcome.PASS, **changes: Any
) -> Verdict:
    """A verdict on a policy of a bundle, of all gates, one of which may not pass."""
    bundle = read_bundle(data)
    blocked: dict[str, Any] = {"message": "It falls.", "next_step": "Train longer."}
    others = passed_gates()
    gate = GateResult(
        gate="success",
        outcome=outcome,
        question="Does it do its task?",
        method="60 episodes",
        threshold="rate at least 0.9",
        measured=(Measurement(name="success_rate", value=0.96),),
        episodes=60,
        cause=Cause.POLICY if outcome is VerdictOutcome.FAIL else None,
        **({} if outcome is VerdictOutcome.PASS else blocked),
    )
    values: dict[str, Any] = {
        "policy_sha256": bundle.members.sha256(policy),
        "contract_fingerprint": bundle.manifest.contract_fingerprint,
        "twin_hash": "c" * 64,
        "gates_sha256": DEFAULT_GATES_SHA256,
        "evidence": robot_evidence("pendulum"),
        "created": utc_text(NOW - timedelta(hours=1)),
        "gates": tuple(gate if other.gate == gate.gate else other for other in others),
        "outcome": combine([outcome]),
        "versions": {"mujoco": "4.0.0"},
        "physai_version": "0.1.0",
    }
    return Verdict(**values | changes)


@dataclass
class Workshop:
    """Keys, and bundles made with them."""

    owner: SigningKey = field(default_factory=SigningKey.generate)
    publisher: SigningKey = field(default_factory=SigningKey.generate)
    validator: SigningKey = field(default_factory=SigningKey.generate)

    @property
    def trust(self) -> TrustStore:
        store = (
            TrustStore()
            .with_key(self.owner.public_key("owner"))
            .with_key(self.publisher.public_key("publisher", label="build machine"))
        )
        return store.with_key(self.validator.public_key("validator"))

    def signed(self, trust: TrustStore | None = None) -> SignedTrust:
        """The trust file, or another one, signed by the owner."""
        return SignedTrust(trust or self.trust).signed([self.owner])

    def header(self) -> PolicyHeader:
        """Header of the policy."""
        return PolicyHeader(contract(), {})

    def members(self, *, state: Mapping[str, int] | None = None, **changes: Any) -> dict[str, bytes]:
        """What is packed; `changes` go into the contract."""
        header = PolicyHeader(contract(**changes), dict(state or {}), {"seed": "7"})
        return {POLICY_FILE: onnx_bytes(header), GOLDEN_FILE: golden_bytes(header)}

    def unsigned(self, *, version: int = 5, variants: Mapping[str, bytes] | None = None, **changes: Any) -> bytes:
        return pack({**self.members(**changes), **(variants or {})}, ManifestFacts(version=version, created=NOW))

    def published(self, data: bytes, *keys: SigningKey) -> bytes:
        """The bundle, signed by the publisher or by the keys given."""
        bundle = read_bundle(data)
        statement = bundle_statement(bundle.id)
        signatures = {signature_file(key.key_id): key.envelope(statement).encode() for key in keys or [self.publisher]}
        return attach(bundle, signatures)

    def predicate(self, data: bytes, **changes: Any) -> VerdictPredicate:
        values: dict[str, Any] = {
            "expires": utc_text(NOW + timedelta(days=30)),
            "policy": POLICY_FILE,
            "robot": "pendulum",
        }
        values |= changes
        values.setdefault("verdict", verdict_of(data, values["policy"]))
        return VerdictPredicate(**values)

    def validated(self, data: bytes, *keys: SigningKey, **changes: Any) -> bytes:
        """The bundle with a signed verdict; `changes` go into its predicate."""
        bundle = read_bundle(data)
        statement = verdict_statement(self.predicate(data, **changes), bundle.digests).encode()
        first, *others = keys or [self.validator]
        envelope = first.envelope(statement)
        for key in others:
            envelope = envelope.with_signature(key.sign(statement))
        return attach(bundle, {VERDICT_FILE: envelope.encode()})

    def complete(self, **changes: Any) -> bytes:
        """A bundle that is accepted."""
        return self.validated(self.published(self.unsigned(**changes)))

    def verify(self, data: bytes, trust: TrustStore | None = None, **changes: Any) -> Verified:
        values: dict[str, Any] = {"robot": "pendulum", "now": NOW, "floor": 0}
        return verify(data, trust or self.trust, **values | changes)


@pytest.fixture(scope="session")
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture(scope="session")
def complete(workshop: Workshop) -> bytes:
    """A small bundle that is accepted."""
    return workshop.complete()


@pytest.fixture(scope="session")
def make_onnx() -> Callable[..., bytes]:
    """`onnx_bytes`."""
    return onnx_bytes


@pytest.fixture(scope="session")
def make_verdict() -> Callable[..., Verdict]:
    """`verdict_of`."""
    return verdict_of


@pytest.fixture(scope="session")
def now() -> datetime:
    """The time at which verdicts are an hour old and count for another 30 days."""
    return NOW


@pytest.fixture(scope="session")
def make_golden() -> Callable[..., bytes]:
    """`golden_bytes`."""
    return golden_bytes
