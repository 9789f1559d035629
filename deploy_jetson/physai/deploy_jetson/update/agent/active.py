"""Opens the active slot for the runtime after verifying every byte."""

from dataclasses import dataclass
from pathlib import Path

from physai.deploy_jetson.inference.backend import load
from physai.deploy_jetson.inference.engine import InferenceEngine
from physai.deploy_jetson.update.agent.admission import admit
from physai.deploy_jetson.update.agent.config import open_config
from physai.deploy_jetson.update.slots.filesystem import FileSystem, PosixFileSystem
from physai.deploy_jetson.update.slots.layout import BUNDLE_FILE
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.slot_records import Marker, SlotName
from physai.deploy_jetson.update.slots.store import SlotStore
from physai.sdk.bundle.manifest import Bundle
from physai.sdk.evidence.origin import Origin
from physai.sdk.signing.verify import parse_utc, verify


@dataclass(frozen=True)
class ActivePolicy:
    """A policy that may run."""

    slot: SlotName
    marker: Marker
    bundle: Bundle
    plan: bytes | None
    """The built engine; None if the policy file itself is loaded."""
    origin: Origin
    """Origin of measurements made while it runs on this robot."""

    def start(self) -> InferenceEngine:
        """Loads the engine that was tested at installation.

        Raises:
            EngineError: it cannot be loaded, or TensorRT, driver or GPU have changed since.
        """
        runtime = self.marker.runtime
        return load(self.bundle.members[runtime.member], self.plan, runtime.engine_key, source=runtime.member)


def open_active(root: Path, *, config: Path | None = None, fs: FileSystem | None = None) -> ActivePolicy:
    """Opens the active policy after verifying it again.

    Args:
        root: the robot's tree.
        config: folder of the owner's files; None selects the default for that tree.
        fs: file system of the tree; None uses the real one.

    Raises:
        SlotError: no slot is active, or the active slot is damaged, or its contract asks for a source of status
            documents that the robot's settings do not name.
        VerificationError: a signing key was revoked, or there is no valid verdict and it was not waived.
        RevocationError: a validator revoked the verdict.
    """
    store = SlotStore(fs or PosixFileSystem(root))
    owner = open_config(root, config, store.fs)
    slot = store.active()
    if slot is None:
        raise SlotError("no policy is active; `physai robot install BUNDLE`, then `physai robot activate`")
    marker = store.marker(slot)
    if marker is None:
        raise SlotError(f"slot {slot} is active but not completely installed; run `physai robot doctor`")
    identity, requirements = owner.identity(), owner.requirements()
    # Verify at installation time: the expiry limits when a policy may be activated, and a robot that is switched on
    # later must not lose its policy to a date.
    verified = verify(
        store.read(slot, BUNDLE_FILE),
        owner.trust(),
        robot=identity.robot,
        now=parse_utc(marker.installed),
        floor=0,
        requirements=requirements,
        require_verdict=not marker.unsafe_no_verdict,
    )
    admit(verified, root, store.fs, requirements.status)
    engine = marker.runtime.engine
    plan = None if engine is None else store.read(slot, engine)
    return ActivePolicy(slot, marker, verified.bundle, plan, identity.origin)
