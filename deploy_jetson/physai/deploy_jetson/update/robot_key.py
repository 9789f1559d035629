"""The robot's own key, and the shadow evidence that is signed with it."""

from pathlib import Path

from physai.deploy_jetson.update.shadow_files import evidence_of
from physai.deploy_jetson.update.slots.layout import ROBOT_KEY_FILE
from physai.deploy_jetson.update.slots.slot_records import RobotIdentity
from physai.sdk.evidence.shadow import ShadowEvidence, ShadowRequirement, check_shadow
from physai.sdk.signing.ed25519 import (
    SigningKey,
    load_private_key,
    public_path,
    save_private_key,
    save_public_key,
)
from physai.sdk.signing.evidence import is_vouched
from physai.sdk.signing.status.robot_state import MAX_LABEL
from physai.sdk.signing.trust_store import TrustStore


def make_robot_key(root: Path, robot: str) -> None:
    """Create the robot's key if it has none; its private part never leaves the robot.

    The public part gets the name of the unit as its label, also if that has changed.

    Args:
        root: the robot's tree.
        robot: name of the unit.

    Raises:
        KeyFileError: it cannot be written, or the key is damaged.
    """
    path = root / ROBOT_KEY_FILE
    if path.exists():
        key = load_private_key(path)
    else:
        key = SigningKey.generate()
        save_private_key(key, path, passphrase=None)
    save_public_key(key.public_key("robot", label=robot[:MAX_LABEL]), public_path(path))


def require_shadow(
    root: Path, demanded: ShadowRequirement | None, bundle_sha256: str, *, robot: RobotIdentity, trust: TrustStore
) -> None:
    """Check that a bundle has the shadow evidence that the robot's settings demand.

    Args:
        root: the robot's tree.
        demanded: of the settings; None for nothing.
        bundle_sha256: of the bundle.
        robot: this robot.
        trust: the robot's trust store.

    Raises:
        ShadowEvidenceError: it has too little.
    """
    if demanded is not None:
        check_shadow(demanded, (run for run in evidence_of(root, bundle_sha256) if counts(run, robot, trust)))


def counts(run: ShadowEvidence, robot: RobotIdentity, trust: TrustStore) -> bool:
    """Return whether evidence is of this robot, another policy drove it, and its enrolled key signed that."""
    keys = [key for key in trust.usable("robot") if key.label == robot.robot[:MAX_LABEL]]
    return (
        run.robot == robot.robot
        # What the twin answers in the robot's place is no evidence of the robot.
        and run.origin.kind == robot.origin.kind
        and run.active_bundle_sha256 != run.bundle_sha256
        and is_vouched("shadow", run.sha256, run.signature, keys)
    )
