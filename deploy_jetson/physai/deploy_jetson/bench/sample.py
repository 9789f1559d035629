"""Small signed and validated bundles that run, for benchmarks and tests on machines without a learner.

The policy is a pendulum's: effort = W3 · tanh(W2 · tanh(W1 · angle)).
"""

import io
import json
import zipfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.deploy_jetson.bench.onnx_writer import GraphWriter
from physai.sdk.attestation import PolicyFile, VerdictPredicate, bundle_statement, verdict_statement
from physai.sdk.bundle import Facts, attach, pack, read_bundle
from physai.sdk.bundle_archive import VERDICT_FILE, signature_file
from physai.sdk.contract import PolicyContract
from physai.sdk.contract_io import parse_contract
from physai.sdk.golden import FINGERPRINT_NAME
from physai.sdk.keys import SigningKey
from physai.sdk.origin import Origin, machine_text
from physai.sdk.policy_file import GOLDEN_FILE, POLICY_FILE, PolicyHeader
from physai.sdk.requirements import ALL_GATES, DEFAULT_GATES_SHA256
from physai.sdk.trust_file import SignedTrust
from physai.sdk.trust_store import TrustStore
from physai.sdk.verdict import Evidence, GateResult, Outcome, Verdict, utc_text

ROBOT = "pendulum"
DEADLINE_S = 0.009

SAMPLE_DOCUMENT: dict[str, Any] = {
    "format_version": 1,
    "task": "swingup",
    "robot": {
        "name": ROBOT,
        "base": "fixed",
        "joints": [{"name": "pivot", "kind": "continuous", "effort_limit": 2.5}],
        "sensors": [{"name": "joint_pos", "size": 1, "unit": "rad"}],
    },
    "observation": {"terms": [{"name": "angle", "kind": "sin_cos"}]},
    "action": {
        "terms": [
            {
                "kind": "joint_effort",
                "joints": ["pivot"],
                "scale": [2.5],
                "offset": [0.0],
                "lower": [-2.5],
                "upper": [2.5],
            }
        ]
    },
    "command": {},
    "timing": {
        "control_dt": 0.01,
        "physics_dt": 0.002,
        "decimation": 5,
        "deadline_s": DEADLINE_S,
        "max_observation_age_s": 0.02,
    },
    "safety": {"joints": [{"joint": "pivot", "effort_limit": 2.5}]},
}
"""A pendulum's contract at 100 Hz, as its file has it."""

Floats = npt.NDArray[np.float32]


def quick_clock() -> int:
    """A clock that stands still, for self-tests on machines that are busy with something else [ns]."""
    return 0


def sample_contract(*, slower: float = 1.0) -> PolicyContract:
    """A pendulum's contract.

    Args:
        slower: factor on all its times.
    """
    timing = {
        name: value if name == "decimation" else slower * value for name, value in SAMPLE_DOCUMENT["timing"].items()
    }
    return parse_contract(json.dumps({**SAMPLE_DOCUMENT, "timing": timing}), source="sample")


def _model(header: PolicyHeader, weights: list[Floats]) -> bytes:
    graph = GraphWriter()
    source = "joint_pos"
    for index, matrix in enumerate(weights):
        last = index == len(weights) - 1
        total = graph.node("MatMul", source, graph.constant(matrix), output="joint_effort_target" if last else "")
        source = total if last else graph.node("Tanh", total)
    return graph.model(header)


def _golden(header: PolicyHeader, weights: list[Floats], rows: int) -> bytes:
    angles = np.linspace(-3.0, 3.0, rows, dtype=np.float32)[:, None]
    values = angles
    for index, matrix in enumerate(weights):
        values = (values if index == 0 else np.tanh(values)) @ matrix
    arrays = {
        "joint_pos": angles,
        "joint_effort_target": values.astype(np.float32),
        FINGERPRINT_NAME: np.array(header.contract.fingerprint),
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array), version=(1, 0))
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    return data.getvalue()


def sample_policy(*, seed: int = 0, width: int = 4, rows: int = 4, slower: float = 1.0) -> dict[str, bytes]:
    """Members of a bundle: a policy of some 4 · width² bytes, and its golden states.

    Args:
        seed: of the weights.
        width: neurons of each of the two layers.
        rows: golden states.
        slower: factor on all times of the contract.
    """
    random = np.random.default_rng(seed)
    shapes = [(1, width), (width, width), (width, 1)]
    weights = [(random.standard_normal(shape) / np.sqrt(width)).astype(np.float32) for shape in shapes]
    header = PolicyHeader(sample_contract(slower=slower), {}, {"seed": str(seed)})
    return {POLICY_FILE: _model(header, weights), GOLDEN_FILE: _golden(header, weights, rows)}


def passed_gates() -> tuple[GateResult, ...]:
    """A PASS of every gate."""
    return tuple(
        GateResult(gate=name, outcome=Outcome.PASS, question="Is it so?", method="none", threshold="none")
        for name in ALL_GATES
    )


def robot_evidence(robot: str) -> Evidence:
    """Evidence of a robot whose computer is this one."""
    twin = Origin(kind="robot", robot=robot)
    return Evidence(twin=twin, latency=twin.model_copy(update={"machine": machine_text()}))


@dataclass(frozen=True)
class Workshop:
    """A publisher and a validator who sign whatever they are shown."""

    owner: SigningKey = field(default_factory=SigningKey.generate)
    publisher: SigningKey = field(default_factory=SigningKey.generate)
    validator: SigningKey = field(default_factory=SigningKey.generate)
    created: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))

    @property
    def trust(self) -> TrustStore:
        """The trust file of a robot that believes both."""
        store = TrustStore().with_key(self.owner.public_key("owner")).with_key(self.publisher.public_key("publisher"))
        return store.with_key(self.validator.public_key("validator"))

    def signed(self, trust: TrustStore | None = None) -> SignedTrust:
        """The trust file, or another one, signed by the owner."""
        return SignedTrust(trust or self.trust).signed([self.owner])

    def published(self, members: dict[str, bytes], *, version: int) -> bytes:
        """The bundle, signed by the publisher, without a verdict."""
        data = pack(members, Facts(version=version, created=self.created))
        envelope = self.publisher.envelope(bundle_statement(read_bundle(data).id))
        return attach(read_bundle(data), {signature_file(self.publisher.key_id): envelope.encode()})

    def validated(
        self, data: bytes, *, policy: PolicyFile = POLICY_FILE, valid_for: timedelta = timedelta(days=30)
    ) -> bytes:
        """The bundle with a signed verdict on one of its policies."""
        bundle = read_bundle(data)
        verdict = Verdict(
            policy_sha256=bundle.members.sha256(policy),
            contract_fingerprint=bundle.manifest.contract_fingerprint,
            twin_hash="0" * 64,
            gates_sha256=DEFAULT_GATES_SHA256,
            evidence=robot_evidence(bundle.manifest.robot),
            created=utc_text(self.created),
            gates=passed_gates(),
            outcome=Outcome.PASS,
            versions={},
            physai_version=bundle.manifest.physai_version,
        )
        expires = utc_text(self.created + valid_for)
        said = VerdictPredicate(expires=expires, policy=policy, robot=bundle.manifest.robot, verdict=verdict)
        envelope = self.validator.envelope(verdict_statement(said, bundle.digests).encode())
        return attach(bundle, {VERDICT_FILE: envelope.encode()})

    def bundle(self, version: int, *, width: int = 4, rows: int = 4) -> bytes:
        """A bundle that a robot of this workshop accepts; the version is the seed of its weights, too."""
        return self.validated(self.published(sample_policy(seed=version, width=width, rows=rows), version=version))
