"""Requirements of an installation on the robot, and the marker that records it."""

from datetime import datetime
from pathlib import Path

from physai.deploy_jetson.update.agent.config import RobotConfig
from physai.deploy_jetson.update.agent.tested import Tested
from physai.deploy_jetson.update.revocation.kept_words import require_standing
from physai.deploy_jetson.update.robot_key import require_shadow
from physai.deploy_jetson.update.slots.filesystem import FileSystem
from physai.deploy_jetson.update.slots.slot_errors import InstallError, SlotError
from physai.deploy_jetson.update.slots.slot_records import SLOTS, Marker, RobotIdentity, SlotFile, SlotName
from physai.deploy_jetson.update.slots.store import SlotStore
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.status_rules import StatusRules
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.verify import Verified


def require_joints(contract: PolicyContract, identity: RobotIdentity) -> None:
    """Raises InstallError if the robot lacks a joint of the contract."""
    if identity.joints is None:
        return
    required = [joint.name for joint in contract.robot.joints]
    missing = [name for name in required if name not in identity.joints]
    if missing:
        raise InstallError(
            f"this robot has no {', '.join(missing)}; the policy's contract needs {', '.join(required)}, the robot has "
            f"{', '.join(identity.joints)}"
        )


def admit(verified: Verified, root: Path, fs: FileSystem, rules: StatusRules | None) -> Verified:
    """Returns a verified bundle if its verdict stands, and this robot asks for the word that its contract needs.

    Args:
        verified: the bundle.
        root: the robot's tree.
        fs: file system of the tree.
        rules: for the word, in the robot's settings.

    Raises:
        RevocationError: the verdict was revoked, see `require_standing`.
        InstallError: the contract bounds the age of the word, and the settings name no source of one.
    """
    require_standing(verified, root, fs)
    age_s = verified.bundle.contract.safety.status_max_age_s
    if age_s is not None and not (rules is not None and rules.sources):
        raise InstallError(
            f"the contract lets the policy run with a validator's word that is at most {age_s:g} s old "
            "(safety.status_max_age_s), this robot's settings name 0 sources of one (status.sources): name a folder "
            "or a URL, with `physai robot setup --settings`"
        )
    return verified


def make_marker(verified: Verified, tested: Tested, files: dict[str, SlotFile], *, installed: datetime) -> Marker:
    """The marker of an installed bundle."""
    manifest = verified.bundle.manifest
    return Marker(
        bundle_sha256=verified.bundle.sha256,
        bundle_id=verified.bundle.id,
        version=manifest.version,
        task=manifest.task,
        robot=manifest.robot,
        contract_fingerprint=manifest.contract_fingerprint,
        control_dt=verified.bundle.contract.timing.control_dt,
        signers=tuple(f"{role} {key}" for role, keys in verified.signers.items() for key in keys),
        verdict_expires=None if verified.verdict is None else utc_text(verified.verdict.expires),
        unsafe_no_verdict=verified.verdict is None,
        installed=utc_text(installed),
        runtime=tested.runtime,
        self_test=tested.self_test,
        files=files,
    )


def find_slot(store: SlotStore, verified: Verified) -> tuple[SlotName, Marker] | None:
    """An undamaged slot with the same bundle, admitted in the same way, and its marker."""
    for slot in SLOTS:
        marker = store.marker(slot)
        if marker is None or marker.bundle_sha256 != verified.bundle.sha256 or store.problems(slot):
            continue
        if marker.unsafe_no_verdict == (verified.verdict is None):
            return slot, marker
    return None


def require_trial(root: Path, config: RobotConfig, marker: Marker, *, back_below: int | None) -> None:
    """Check that an installed bundle may be activated.

    Args:
        root: the robot's tree.
        config: the owner's files.
        marker: of the bundle.
        back_below: lowest version that may be installed, if the robot goes back from a revoked one; else None.

    Raises:
        SlotError: the robot would go back to a version that was never committed here.
        ShadowEvidenceError: the robot's settings demand more shadow evidence.
    """
    if back_below is None:
        demanded, robot = config.requirements().shadow, config.identity()
        require_shadow(root, demanded, marker.bundle_sha256, robot=robot, trust=config.trust())
    elif not marker.version < back_below:
        raise SlotError(f"version {marker.version} waits for its trial and was never committed, so it is no way back")
