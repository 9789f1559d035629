"""Signed documents that a robot files with a service: its state, and the evidence of its shadows."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.agent.status import read_status
from physai.deploy_jetson.update.slots.layout import BUNDLE_FILE, ROBOT_KEY_FILE, SHADOW_FOLDER
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.base.service import Service, ServiceRequestError
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.evidence.shadow import ShadowEvidence, ShadowEvidenceError, load_shadow_evidence
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.ed25519 import load_private_key
from physai.sdk.signing.sign import read_claims
from physai.sdk.signing.status.robot_state import RobotStatePredicate, StatedBundle, StatedVerdict, sign_robot_state
from physai.sdk.signing.verify import parse_utc

LATEST_SHADOWS = 20
"""Runs whose evidence is filed, of the latest; the service keeps the earlier ones."""


def signed_state(agent: UpdateAgent) -> bytes:
    """Sign the robot's state with its key, as of the clock or, if that is behind, of the robot's time floor.

    Raises:
        PhysaiError: the robot is not set up, its tree is damaged, or it has no key.
    """
    status = read_status(agent)
    active = None
    slot = next((one for one in status.slots if one.active), None)
    if slot is not None and slot.marker is not None:
        marker, verdict = slot.marker, None
        signed = read_claims(read_bundle(agent.store.read(slot.slot, BUNDLE_FILE))).verdict
        if signed is not None and not marker.unsafe_no_verdict:
            verdict = StatedVerdict(created=signed.verdict.created, expires=utc_text(signed.expires))
        active = StatedBundle(
            sha256=marker.bundle_sha256,
            manifest=marker.bundle_id,
            version=marker.version,
            task=marker.task,
            on_trial=status.trial is not None and status.trial.slot == slot.slot,
            installed=marker.installed,
            verdict=verdict,
        )
    now = max(agent.clock(), parse_utc(agent.store.state().latest_time))
    state = RobotStatePredicate(
        robot=status.robot, issued=utc_text(now), stand_in=agent.config.identity().stand_in, active=active
    )
    return sign_robot_state(load_private_key(agent.root / ROBOT_KEY_FILE), state)


def file_documents(agent: UpdateAgent, service: Service, robot: str) -> tuple[int, list[str]]:
    """File the robot's state and its latest shadow evidence.

    Returns:
        Number of documents that the service accepted or had, and why it did not take the others.
    """
    documents: list[bytes] = []
    problems: list[str] = []
    try:
        documents.append(signed_state(agent))
    except (PhysaiError, OSError) as error:
        problems.append(f"the robot's state: {error}")
    documents += [canonical_json(run) for run in _latest_evidence(agent.root)]
    filed = 0
    for document in documents:
        try:
            service.post(f"/v1/robots/{robot}/reports", document)
            filed += 1
        except ServiceRequestError as error:
            # A service that is down, or takes none, is not asked about each of them.
            if str(error) in problems:
                break
            problems.append(str(error))
    return filed, problems


def _latest_evidence(root: Path) -> Iterator[ShadowEvidence]:
    """Yield the latest evidence that the robot has signed; damaged files are left out."""
    files: list[tuple[int, Path]] = []
    with suppress(OSError):
        found = [path for path in (root / SHADOW_FOLDER).glob("*.json") if not path.is_symlink()]
        files = sorted((path.stat().st_mtime_ns, path) for path in found)
    for _, path in files[-LATEST_SHADOWS:]:
        with suppress(ShadowEvidenceError):
            evidence = load_shadow_evidence(path)
            if evidence.signature is not None:
                yield evidence
