"""Install and flash compared with cp and scp of the same bytes on the same machine.

- `install_over_cp`: `UpdateAgent.install` of a bundle from memory, without building and testing the engine, over
  `cp`, `sync` and `sha256sum` of its file, three commands;
- `install_tested_over_cp`: the same with engine and tests: golden states replayed, 500 ticks timed;
- `transfer_over_scp`: with an ssh server on loopback, from the start of the connection until the robot has received and
  hashed every member, over an `scp` of the same file, start to exit;
- `flash_over_scp`: `physai flash`, start to exit, over the same `scp`;
- `delta_bytes_share`: share of the bytes sent by a second flash, if only the weights of policy.int8.onnx differ.

Contenders alternate, and ratios are of neighbouring runs.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.harness.fixtures.sample import ROBOT, SampleSigners, sample_policy
from tests.harness.fixtures.sshd import SshServer, ssh_server

from benchmarks.measure import (
    BenchmarkOptions,
    BenchmarkResult,
    ProgressCallback,
    WorkloadError,
    alternate,
    ratios,
)
from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.slots.slot_records import RobotIdentity
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE

INT8_FILE = "policy.int8.onnx"
WIDTH, QUICK_WIDTH = 1000, 100
"""Neurons of a layer: 4 · width² bytes of float32 weights, width² in the variant."""

ROUNDS, QUICK_ROUNDS = 7, 3
DELTA_ROUNDS = 3
SLOWER = 40.0
"""Factor on the contract's times, so that a policy of this size passes the latency self-test on a loaded machine."""

_ENGINE_STAGES = ("reference", "engine", "golden", "latency")


def bench_bundle(workshop: SampleSigners, version: int, *, width: int, variant_seed: int = 0) -> bytes:
    """A bundle of a float32 policy and a variant of a quarter of its size.

    Args:
        workshop: keys to sign with.
        version: version of the bundle.
        width: neurons of each of the two layers.
        variant_seed: seed of the variant's weights.
    """
    whole = sample_policy(seed=1, width=width, slower=SLOWER)
    variant = sample_policy(seed=1000 + variant_seed, width=width // 2, slower=SLOWER)[POLICY_FILE]
    members = {POLICY_FILE: whole[POLICY_FILE], INT8_FILE: variant, GOLDEN_FILE: whole[GOLDEN_FILE]}
    return workshop.validated(workshop.published(members, version=version))


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Measures install, flash and delta transfer.

    Raises:
        WorkloadError: a robot does not run the given bundle.
        DeviceError: no ssh server is installed.
    """
    width, rounds = (QUICK_WIDTH, QUICK_ROUNDS) if options.quick else (WIDTH, ROUNDS)
    workshop = SampleSigners()
    data = bench_bundle(workshop, 1, width=width)
    with tempfile.TemporaryDirectory(prefix="physai-flash-") as name:
        folder = Path(name)
        report(f"install: {len(data) / 1e6:.2f} MB, {rounds} rounds")
        results = [*_measure_install(folder, workshop, data, rounds)]
        (folder / "ssh").mkdir()
        with ssh_server(folder / "ssh") as server:
            report(f"flash over ssh: {rounds} rounds")
            results += _measure_flash(folder, server, workshop, data, rounds)
            report(f"second flash: {DELTA_ROUNDS} rounds")
            results.append(_measure_delta(folder, server, workshop, width))
    return results


def _robot(root: Path, workshop: SampleSigners) -> UpdateAgent:
    agent = UpdateAgent(root=root, backend="onnxruntime", restart=lambda unit: "")
    agent.setup(RobotIdentity(robot=ROBOT), workshop.signed())
    return agent


class _Stages:
    """Measures the time from the first engine stage to the first stage after the engine's."""

    def __init__(self) -> None:
        self.engine_s = 0.0
        self._begun: float | None = None

    def __call__(self, stage: str, share: float) -> None:
        now = time.perf_counter()
        if stage in _ENGINE_STAGES and self._begun is None:
            self._begun = now
        elif stage not in _ENGINE_STAGES and self._begun is not None:
            self.engine_s += now - self._begun
            self._begun = None


def _measure_install(folder: Path, workshop: SampleSigners, data: bytes, rounds: int) -> Sequence[BenchmarkResult]:
    file, root = folder / "bundle.physai", folder / "installed"
    file.write_bytes(data)
    engine_s: list[float] = []

    def install() -> float:
        shutil.rmtree(root, ignore_errors=True)
        agent, stages = _robot(root, workshop), _Stages()
        start = time.perf_counter()
        installed = agent.install(data, progress=stages)
        seconds = time.perf_counter() - start
        if installed.was_there or agent.store.problems(installed.slot):
            raise WorkloadError(f"slot {installed.slot} does not contain the bundle")
        engine_s.append(stages.engine_s)
        return seconds

    def copy() -> float:
        target = folder / "copied"
        target.unlink(missing_ok=True)
        start = time.perf_counter()
        for command in (["cp", str(file), str(target)], ["sync", str(target)], ["sha256sum", str(target)]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    install()
    copy()
    engine_s.clear()
    seconds = alternate({"install": install, "copy": copy}, rounds)
    bare = [whole - engine for whole, engine in zip(seconds["install"], engine_s, strict=True)]
    peer = "cp, sync, sha256sum"
    return [
        BenchmarkResult(name="install_over_cp", unit="1", runs=ratios(bare, seconds["copy"]), peer=peer),
        BenchmarkResult(
            name="install_tested_over_cp", unit="1", runs=ratios(seconds["install"], seconds["copy"]), peer=peer
        ),
        BenchmarkResult(name="install_seconds", unit="s", runs=tuple(bare)),
        BenchmarkResult(name="install_tested_seconds", unit="s", runs=seconds["install"]),
        BenchmarkResult(name="cp_seconds", unit="s", runs=seconds["copy"]),
    ]


@dataclass(frozen=True)
class _SshUser:
    """Runs scp and `physai flash` as a user with access to the server."""

    server: SshServer

    def flash(self, file: Path, root: Path) -> tuple[float, dict[str, Any]]:
        """Duration of `physai flash` [s], and its report."""
        program = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"
        command = [
            sys.executable,
            "-c",
            program,
            "flash",
            self.server.address,
            str(file),
            "--root",
            str(root),
            "--json",
        ]
        start = time.perf_counter()
        finished = subprocess.run(command, capture_output=True, text=True, env=self._environment(), check=False)
        seconds = time.perf_counter() - start
        if finished.returncode:
            raise WorkloadError(f"physai flash: {finished.stderr.strip()[-400:]}")
        return seconds, json.loads(finished.stdout)

    def scp(self, file: Path, target: Path) -> float:
        """Duration of `scp` [s]."""
        ssh = self.server.home / ".ssh"
        options = ["-o", f"UserKnownHostsFile={ssh / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes"]
        options += ["-o", "IdentitiesOnly=yes", "-i", str(ssh / "id_ed25519"), "-F", "none"]
        command = ["scp", "-q", "-P", str(self.server.port), *options, str(file), f"127.0.0.1:{target}"]
        start = time.perf_counter()
        finished = subprocess.run(command, capture_output=True, text=True, env=self._environment(), check=False)
        seconds = time.perf_counter() - start
        if finished.returncode or target.read_bytes() != file.read_bytes():
            raise WorkloadError(f"scp: {finished.stderr.strip()[-400:]}")
        return seconds

    def _environment(self) -> dict[str, str]:
        search = os.pathsep.join(entry for entry in sys.path if entry)
        return {**os.environ, "HOME": str(self.server.home), "PYTHONPATH": search, "SSH_AUTH_SOCK": ""}


def _measure_flash(
    folder: Path, server: SshServer, workshop: SampleSigners, data: bytes, rounds: int
) -> Sequence[BenchmarkResult]:
    file, root, user = folder / "bundle.physai", folder / "flashed", _SshUser(server)
    phases: list[dict[str, float]] = []

    def flash() -> float:
        shutil.rmtree(root, ignore_errors=True)
        agent = _robot(root, workshop)
        seconds, report = user.flash(file, root)
        trial = agent.store.state().trial
        if report["outcome"] != "on-trial" or trial is None or trial.bundle_sha256 != report["bundle_sha256"]:
            raise WorkloadError(f"the robot does not run the bundle: {report}")
        phases.append(report["seconds"])
        return seconds

    def scp() -> float:
        (folder / "sent").unlink(missing_ok=True)
        return user.scp(file, folder / "sent")

    flash()
    scp()
    phases.clear()
    seconds = alternate({"flash": flash, "scp": scp}, rounds)
    transfer = [phase["connect"] + phase["transfer"] for phase in phases]
    peer = "scp"
    return [
        BenchmarkResult(name="transfer_over_scp", unit="1", runs=ratios(transfer, seconds["scp"]), peer=peer),
        BenchmarkResult(name="flash_over_scp", unit="1", runs=ratios(seconds["flash"], seconds["scp"]), peer=peer),
        BenchmarkResult(name="transfer_seconds", unit="s", runs=tuple(transfer)),
        BenchmarkResult(name="flash_seconds", unit="s", runs=seconds["flash"]),
        BenchmarkResult(name="scp_seconds", unit="s", runs=seconds["scp"]),
    ]


def _measure_delta(folder: Path, server: SshServer, workshop: SampleSigners, width: int) -> BenchmarkResult:
    root, user = folder / "updated", _SshUser(server)
    agent = _robot(root, workshop)
    shares: list[float] = []
    for version in range(1, DELTA_ROUNDS + 2):
        file = folder / f"version-{version}.physai"
        file.write_bytes(bench_bundle(workshop, version, width=width, variant_seed=version))
        _, report = user.flash(file, root)
        agent.commit("healthy")
        active = agent.store.active()
        marker = None if active is None else agent.store.marker(active)
        if marker is None or marker.version != version:
            raise WorkloadError(f"the robot does not run version {version}")
        shares.append(report["sent_bytes"] / report["bundle_bytes"])
    return replace(BenchmarkResult(name="delta_bytes_share", unit="1", runs=tuple(shares[1:])), peer="the whole bundle")
