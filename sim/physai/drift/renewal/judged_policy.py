"""Policy of a renewal: a bundle, whose bytes are judged again, or an exported policy."""

from dataclasses import dataclass
from pathlib import Path

from physai.drift.errors import DriftError
from physai.sdk.base.files import oserror_as, write_atomic
from physai.sdk.bundle.manifest import Bundle, read_bundle
from physai.sdk.evidence.verdict import Verdict
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
from physai.sdk.signing.sign import read_claims
from physai.sim.policies.resolve import find_policy

POLICY_FOLDER = "policy"
"""Folder of a bundle's policies in the folder of a renewal."""


@dataclass(frozen=True, kw_only=True)
class JudgedPolicy:
    """Policy to be judged again."""

    path: Path
    """Bundle, run folder or exported policy."""
    bundle: Bundle | None
    """None if the path is no bundle."""
    verdict: Verdict | None
    """Verdict in the bundle, of which no signature was checked."""
    robot: str | None
    """Robot that this verdict is for."""
    member: str = POLICY_FILE
    """Policy in the bundle that is judged."""

    @classmethod
    def read(cls, path: Path | str, twin_hash: str) -> "JudgedPolicy":
        """Read a policy; the verdict in its bundle must rest on the twin that was watched.

        Raises:
            PhysaiError: it is neither a bundle nor an exported policy.
            DriftError: the verdict rests on another twin.
        """
        path = Path(path)
        if path.is_dir() or path.suffix == ".onnx":
            return cls(path=find_policy(path), bundle=None, verdict=None, robot=None)
        bundle = read_bundle(path)
        signed = read_claims(bundle).verdict
        if signed is None:
            return cls(path=path, bundle=bundle, verdict=None, robot=bundle.manifest.robot)
        if signed.verdict.twin_hash != twin_hash:
            raise DriftError(
                f"{path}: the verdict rests on the twin {signed.verdict.twin_hash[:12]}…, and `twin` is "
                f"{twin_hash[:12]}…; give the twin that it was judged in"
            )
        return cls(path=path, bundle=bundle, verdict=signed.verdict, robot=signed.robot, member=signed.policy)

    @property
    def sha256(self) -> str:
        """SHA-256 of the bundle, or of the exported policy."""
        from physai.drift.renewal.steps import file_sha256

        return file_sha256(self.path)

    def file(self, folder: Path) -> Path:
        """Return the policy's file; a bundle's policies are written into a folder for that.

        Raises:
            DriftError: the folder cannot be written.
        """
        if self.bundle is None:
            return self.path
        inside = folder / POLICY_FOLDER
        with oserror_as(DriftError, f"{inside}: cannot be written"):
            inside.mkdir(parents=True, exist_ok=True)
            for name in (*self.bundle.policies, GOLDEN_FILE):
                write_atomic(inside / name, self.bundle.members[name])
        return inside / self.member
