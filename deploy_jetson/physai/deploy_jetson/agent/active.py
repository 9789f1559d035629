"""What the runtime starts: the active slot, checked from its first byte to its last."""

from dataclasses import dataclass
from pathlib import Path

from physai.deploy_jetson.agent.config import open_config
from physai.deploy_jetson.inference.backend import load
from physai.deploy_jetson.inference.engine import InferenceEngine
from physai.deploy_jetson.slots.errors import SlotError
from physai.deploy_jetson.slots.filesystem import FileSystem, PosixFileSystem
from physai.deploy_jetson.slots.layout import BUNDLE_FILE
from physai.deploy_jetson.slots.records import Marker, SlotName
from physai.deploy_jetson.slots.store import SlotStore
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
    """The built engine; None where the policy file itself is loaded."""
    origin: Origin
    """Of what is measured while it runs on this robot."""

    def start(self) -> InferenceEngine:
        """Loads the engine that was tested at installation.

        Raises:
            EngineError: it cannot be loaded, or this machine has another TensorRT, driver or GPU now.
        """
        runtime = self.marker.runtime
        return load(self.bundle.members[runtime.member], self.plan, runtime.engine_key, source=runtime.member)


def open_active(root: Path, *, config: Path | None = None, fs: FileSystem | None = None) -> ActivePolicy:
    """The active policy, if it may run.

    Signatures, revocations, the verdict, what this robot asks of it, and every byte are checked anew. The verdict's
    expiry is not: it limits when a policy may be activated; a robot that was switched on must not lose its policy to a
    date.

    Args:
        root: the robot's tree.
        config: folder of the owner's files; None for the usual one of that tree.
        fs: files below the root; None for the real ones.

    Raises:
        SlotError: no slot is active, or it is damaged.
        VerificationError: a key that signed was revoked, or there is no valid verdict and none was waived.
    """
    store = SlotStore(fs or PosixFileSystem(root))
    owner = open_config(root, config, store.fs)
    slot = store.active()
    if slot is None:
        raise SlotError("no policy is active; `physai robot install BUNDLE`, then `physai robot activate`")
    marker = store.marker(slot)
    if marker is None:
        raise SlotError(f"slot {slot} is active but was not installed to the end; `physai robot doctor` says more")
    identity = owner.identity()
    verified = verify(
        store.read(slot, BUNDLE_FILE),
        owner.trust(),
        robot=identity.robot,
        now=parse_utc(marker.installed),
        floor=0,
        requirements=owner.requirements(),
        require_verdict=not marker.unsafe_no_verdict,
    )
    engine = marker.runtime.engine
    plan = None if engine is None else store.read(slot, engine)
    return ActivePolicy(slot, marker, verified.bundle, plan, identity.origin)
