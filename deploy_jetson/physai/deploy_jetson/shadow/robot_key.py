"""The robot's own key, and the shadow evidence that is signed with it."""

from pathlib import Path

from physai.deploy_jetson.shadow.shadow_files import evidence_of
from physai.deploy_jetson.update.agent.config import RobotConfig
from physai.deploy_jetson.update.slots.layout import ROBOT_KEY_FILE
from physai.sdk.evidence.shadow import ShadowEvidence
from physai.sdk.signing.ed25519 import SigningKey, public_path, save_private_key, save_public_key
from physai.sdk.signing.evidence import is_vouched
from physai.sdk.signing.trust_store import TrustStore

MAX_LABEL = 64


def make_robot_key(root: Path, robot: str) -> None:
    """Create the robot's key if it has none; its private part never leaves the robot.

    Args:
        root: the robot's tree.
        robot: name of the unit, which becomes the key's label.

    Raises:
        KeyFileError: it cannot be written.
    """
    path = root / ROBOT_KEY_FILE
    if path.exists():
        return
    key = SigningKey.generate()
    save_private_key(key, path, passphrase=None)
    save_public_key(key.public_key("robot", label=robot[:MAX_LABEL]), public_path(path))


def require_shadow(root: Path, config: RobotConfig, bundle_sha256: str) -> None:
    """Check that a bundle has the shadow evidence that the robot's settings demand, if they do.

    Raises:
        ShadowEvidenceError: it has too little.
        RequirementsError, TrustError, SlotError: the owner's files cannot be read.
    """
    demanded = config.requirements().shadow
    if demanded is None:
        return
    robot, trust = config.identity().robot, config.trust()
    demanded.check(run for run in evidence_of(root, bundle_sha256) if counts(run, robot, trust))


def counts(run: ShadowEvidence, robot: str, trust: TrustStore) -> bool:
    """Return whether evidence is of this robot and signed with its enrolled key."""
    keys = [key for key in trust.usable("robot") if key.label == robot[:MAX_LABEL]]
    return run.robot == robot and is_vouched("shadow", run.sha256, run.signature, keys)
