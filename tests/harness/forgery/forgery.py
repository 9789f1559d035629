"""Benchmark of forged bundles, verdicts and trust files, and of malformed command lines.

The attacker has no trusted key, but all files: the robot's trust file, its previous version, and properly signed
bundles of all kinds. A trust file counts as accepted if the robot takes it and then trusts a stolen key.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from unittest import mock

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from tests.harness.fixtures.sample import ROBOT, SampleSigners, sample_policy
from tests.harness.forgery.bad_inputs import inputs, make_files
from tests.harness.forgery.forger import Forger
from tests.harness.forgery.hang import hang_seconds
from tests.harness.programs import program

from physai.deploy_jetson.update.agent.config import RobotConfig
from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem
from physai.deploy_jetson.update.slots.slot_records import RobotIdentity
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.trust_file import SignedTrust
from physai.sdk.signing.trust_store import TrustError
from physai.sdk.signing.verify import VerificationError, verify

FORGERIES, QUICK_FORGERIES = 200_000, 2_000
BATCH = 2_000
"""Forgeries per seed."""

FLOOR = 6
"""Version floor of the robot."""


@dataclass(frozen=True)
class Scene:
    """The attacker's files, and the robot under attack."""

    workshop: SampleSigners
    originals: tuple[bytes, ...]
    """Bundles that the robot accepts."""
    donors: tuple[bytes, ...]
    """Bundles that it rejects: too old, expired, without a verdict, signed by other keys."""
    stolen: bytes
    """A bundle signed with a stolen publisher key."""
    trust: SignedTrust
    """The robot's trust file, in which the stolen key is revoked."""
    older: SignedTrust
    """Its previous version, which trusts the stolen key."""

    @classmethod
    def make(cls) -> "Scene":
        """Generates keys and bundles."""
        shop, foreign = SampleSigners(), SampleSigners()
        thief = SampleSigners(publisher=SigningKey.generate(), validator=shop.validator, created=shop.created)
        older = shop.trust.with_key(thief.publisher.public_key("publisher"))
        slower = shop.validated(shop.published(sample_policy(seed=8, slower=2.0), version=8))
        bare = shop.published(sample_policy(seed=10), version=10)
        expired = shop.validated(bare, valid_for=timedelta(seconds=1))
        return cls(
            shop,
            (shop.bundle(7), slower, shop.bundle(9, rows=5)),
            (shop.bundle(3), bare, expired, foreign.bundle(7)),
            thief.bundle(12),
            shop.signed(older.with_revoked(thief.publisher.key_id, since=datetime.now(UTC), reason="stolen")),
            shop.signed(older),
        )

    def accepts(self, data: bytes, trust: SignedTrust | None = None) -> bool:
        """Whether the robot would install a bundle; any error except VerificationError is a crash and propagates."""
        now = self.workshop.created + timedelta(minutes=1)
        try:
            verify(data, (trust or self.trust).trust, robot=ROBOT, now=now, floor=FLOOR)
        except VerificationError:
            return False
        return True

    def is_fooled_by(self, data: bytes) -> bool:
        """Whether a trust file makes the robot trust the stolen key."""
        try:
            offered = SignedTrust.parse(data, source="offered")
        except TrustError:
            return False
        return self.accepts(self.stolen, offered) and self.takes(offered)

    def takes(self, offered: SignedTrust) -> bool:
        """Whether a robot with the newest trust file would accept this one."""
        with tempfile.TemporaryDirectory() as folder:
            config = RobotConfig(PosixFileSystem(Path(folder)))
            config.save(RobotIdentity(robot=ROBOT), self.trust, None)
            try:
                config.save(RobotIdentity(robot=ROBOT), offered, None)
            except TrustError:
                return False
            return True

    def forger(self, seed: int) -> Forger:
        """An attacker with all of these files."""
        keys = self.workshop
        return Forger(self.originals, keys.publisher, keys.validator, seed, donors=self.donors)


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Tries forgeries, then malformed command lines, then a policy that hangs.

    Raises:
        WorkloadError: the forgeries would be rejected for reasons other than the forgery.
    """
    check(Scene.make())
    count = QUICK_FORGERIES if options.quick else FORGERIES
    accepted = tried = 0
    context = multiprocessing.get_context("spawn")
    with context.Pool(min(2, os.cpu_count() or 1)) as pool:
        for batch_accepted in pool.imap_unordered(_batch, range(count // BATCH)):
            accepted, tried = accepted + batch_accepted, tried + BATCH
            if tried % (10 * BATCH) == 0:
                report(f"{tried} forgeries, {accepted} accepted")
    bad_inputs, tracebacks = _probe_verbs(report, quick=options.quick)
    counts = {"tried": tried, "accepted": accepted, "bad_inputs": bad_inputs, "tracebacks": tracebacks}
    results = [BenchmarkResult(name=name, unit="1", runs=(float(number),)) for name, number in counts.items()]
    report("a policy that hangs")
    return [*results, BenchmarkResult(name="hang_seconds", unit="s", runs=(hang_seconds(),))]


def check(scene: Scene) -> None:
    """Checks that the benchmark can fail.

    Raises:
        WorkloadError: a valid bundle or trust file is rejected, or a verifier without signature checks rejects all.
    """
    if not all(map(scene.accepts, scene.originals)) or any(map(scene.accepts, (*scene.donors, scene.stolen))):
        raise WorkloadError("the robot should accept exactly the valid ones of the original bundles")
    if not scene.takes(scene.trust) or scene.takes(scene.older) or not scene.accepts(scene.stolen, scene.older):
        raise WorkloadError(
            "the robot should accept its own trust file, and not the older one that trusts a stolen key"
        )
    forger = scene.forger(0)
    with mock.patch("physai.sdk.signing.verify.is_signed_by", return_value=True):
        taken = sum(scene.accepts(forger.impersonated()) for _ in range(200))
    if not taken > 0:
        raise WorkloadError(
            "a verifier without signature checks rejects all of 200 forgeries: they do not test signatures"
        )


@cache
def _scene() -> Scene:
    """Keys cannot be passed between processes; each process generates its own."""
    return Scene.make()


def _batch(seed: int) -> int:
    return batch(_scene(), seed)


def batch(scene: Scene, seed: int) -> int:
    """Number of forgeries in a batch that the robot accepts; all of them differ."""
    forger = scene.forger(seed)
    known = {hash(data) for data in (*scene.originals, *scene.donors)}
    accepted = 0
    sound = tuple(file.encode() for file in (scene.trust, scene.older))
    kinds = (
        forger.outsider,
        forger.outsider,
        forger.outsider,
        forger.recombined,
        forger.recombined,
        forger.impersonated,
    )
    for index in range(BATCH):
        if index % 10 == 0:
            accepted += scene.is_fooled_by(_trust_file(forger, sound))
            continue
        data = kinds[index % len(kinds)]()
        while hash(data) in known:
            data = kinds[index % len(kinds)]()
        known.add(hash(data))
        accepted += scene.accepts(data)
    return accepted


def _trust_file(forger: Forger, sound: Sequence[bytes]) -> bytes:
    """The older trust file, or a modified version of either."""
    data = forger.random.choice(sound)
    if forger.random.random() < 0.1:
        return sound[1]
    change = forger.random.choice([forger.edited, forger.edited, *forger.raw])
    return change(data)


def _probe_verbs(report: ProgressCallback, *, quick: bool) -> tuple[int, int]:
    """Number of bad inputs, and of those that end in a traceback; each verb in a separate process."""
    words = list(inputs())[:: 40 if quick else 4]
    verbs = list(dict.fromkeys(one[0] for one in words))
    bad = 0
    with tempfile.TemporaryDirectory(prefix="physai-bad-") as name:
        folder = Path(name)
        make_files(folder)
        (folder / "home").mkdir()
        for verb in verbs:
            mine = [one for one in words if one[0] == verb]
            report(f"{len(mine)} bad inputs of {verb[:20]!r}")
            bad += _endings(mine, folder, report)
        # Some also as a command, to include start-up and exit; arguments of a process cannot contain NUL.
        alone = [one for one in words if "\0" not in "".join(one)][::100]
        bad += sum(_ends_in_traceback(one, folder) for one in alone)
    return len(words) + len(alone), bad


def _ends_in_traceback(words: tuple[str, ...], folder: Path) -> bool:
    start = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"
    command = ["timeout", "--signal=INT", "--kill-after=60", "20", sys.executable, "-c", start, *words]
    finished = subprocess.run(command, capture_output=True, check=False, cwd=folder, env=environment(folder))
    return b"Traceback" in finished.stderr


def environment(folder: Path) -> dict[str, str]:
    """Environment variables that isolate from this computer's files."""
    # This computer may be a robot, whose slots and configuration must not change.
    robot = {"PHYSAI_ROBOT_ROOT": str(folder / "robot"), "PHYSAI_ROBOT_CONFIG": str(folder / "robot")}
    return {**os.environ, **robot, "HOME": str(folder / "home"), "XDG_CONFIG_HOME": str(folder / "home")}


def _endings(words: list[tuple[str, ...]], folder: Path, report: ProgressCallback) -> int:
    finished = subprocess.run(
        program("tests.harness.forgery.bad_inputs"),
        input=json.dumps(words),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment(folder),
    )
    if finished.returncode:
        raise WorkloadError(f"bad inputs ended the process: {finished.stderr.strip()[-300:] or finished.returncode}")
    found: list[dict[str, str]] = json.loads(finished.stdout)
    for one in found[:5]:
        report(f"physai {one['arguments']}: {one['trace'][-600:]}")
    return len(found)
