"""Keys of an owner, a validator and two robots, and the documents about these robots that they sign."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.shadow import ComputeTimes, ShadowEvidence
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.evidence import sign_evidence
from physai.sdk.signing.status.drift_report import ReportPredicate, sign_report
from physai.sdk.signing.status.robot_state import RobotStatePredicate, StatedBundle, StatedVerdict, sign_robot_state
from physai.sdk.signing.status.status_document import RevokedVerdict, next_status, sign_status
from physai.sdk.signing.trust_file import SignedTrust
from physai.sdk.signing.trust_store import TrustStore

UNIT, OTHER = "ur10e/cell-3", "ur10e/cell-4"
BUNDLE, MANIFEST = "b" * 64, "a" * 64


def ago(seconds: float) -> datetime:
    """A time before now."""
    return datetime.fromtimestamp(time.time(), UTC) - timedelta(seconds=seconds)


@dataclass(frozen=True)
class UnitKeys:
    """Keys, and documents that are signed with them."""

    owner: SigningKey = field(default_factory=SigningKey.generate)
    validator: SigningKey = field(default_factory=SigningKey.generate)
    robots: dict[str, SigningKey] = field(
        default_factory=lambda: {UNIT: SigningKey.generate(), OTHER: SigningKey.generate()}
    )

    @property
    def trust(self) -> TrustStore:
        """All of them."""
        store = TrustStore().with_key(self.owner.public_key("owner")).with_key(self.validator.public_key("validator"))
        for name, key in self.robots.items():
            store = store.with_key(key.public_key("robot", label=name))
        return store

    def save(self, path: Path, store: TrustStore | None = None) -> Path:
        """Write a trust file that the owner has signed."""
        SignedTrust(store or self.trust).signed([self.owner]).save(path)
        return path

    def drift(self, *, robot: str = UNIT, age_s: float = 0.0, key: SigningKey | None = None, **fields: Any) -> bytes:
        """A report of a monitor, by default signed by its robot."""
        claim = {"robot": robot, "issued": utc_text(ago(age_s)), "finding": "HOLDS", "bundle": BUNDLE, **fields}
        return sign_report([key or self.robots[robot]], ReportPredicate.model_validate(claim))

    def state(self, *, robot: str = UNIT, age_s: float = 0.0, version: int = 1, key: SigningKey | None = None) -> bytes:
        """A robot that runs a version, whose verdict is a day old and holds for another one."""
        verdict = StatedVerdict(created=utc_text(ago(86400.0)), expires=utc_text(ago(-86400.0)))
        active = StatedBundle(
            sha256=BUNDLE,
            manifest=MANIFEST,
            version=version,
            task="reach",
            on_trial=False,
            installed=utc_text(ago(3600.0)),
            verdict=verdict,
        )
        claim = RobotStatePredicate(robot=robot, issued=utc_text(ago(age_s)), stand_in=False, active=active)
        return sign_robot_state(key or self.robots[robot], claim)

    def shadow(
        self, *, robot: str = UNIT, run: str = "1" * 32, ticks: int = 1000, key: SigningKey | None = None
    ) -> bytes:
        """Evidence of a shadow, by default signed by its robot."""
        evidence = ShadowEvidence(
            run=run,
            robot=robot,
            origin=Origin(kind="robot", robot=robot),
            bundle_sha256="c" * 64,
            policy_sha256="d" * 64,
            contract_fingerprint="e" * 64,
            active_bundle_sha256=BUNDLE,
            began=utc_text(ago(100.0)),
            ended=utc_text(ago(0.0)),
            ticks=ticks,
            starts=1,
            unanswered=0,
            late=0,
            command_share=0.5,
            interventions={},
            stops=0,
            compute_s=ComputeTimes(p50=1e-4, p99=2e-4, greatest=3e-4),
            divergence=(),
            moments=(),
            beyond=(),
        )
        signature = sign_evidence(key or self.robots[robot], "shadow", evidence.sha256)
        return canonical_json(evidence.model_copy(update={"signature": signature}))

    def word(self, *, age_s: float, revoked: str | None = None, robot: str = UNIT) -> bytes:
        """The word of the validator, which perhaps revokes the verdict on a bundle."""
        word = next_status(None, robot, ago(age_s))
        if revoked is not None:
            entry = RevokedVerdict(bundle=revoked, reason="payload doubled", since=word.issued)
            word = word.model_copy(update={"revoked": (entry,)})
        return sign_status([self.validator], word)
