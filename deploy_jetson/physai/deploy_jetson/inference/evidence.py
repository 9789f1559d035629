"""Latency evidence: tick durations of a policy on this machine, for the latency gate of `physai sim validate`."""

import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from physai.deploy_jetson.inference.backend import Built
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.evidence.latency import MAX_TICKS, LatencyEvidence
from physai.sdk.evidence.origin import Origin, machine_text
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.policy.golden import Golden
from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX
from physai.sdk.safety import Guard

WARM_UP_TICKS = 200
# Bound of the measurement [s]; a period shorter than the contract's only makes the test harder.
LONGEST_S = 30.0
# Model name of a Jetson, from the device tree.
MODEL_FILE = Path("/proc/device-tree/model")


def measure_evidence(
    data: bytes,
    built: Built,
    golden: Golden,
    *,
    ticks: int,
    origin: Origin | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> LatencyEvidence:
    """Time the policy and the guard over the golden states, with fed-back memory, at the contract's rate.

    A tick covers everything from a sensor sample to its command, except reading and sending.

    Args:
        data: the ONNX file.
        built: its engine.
        golden: states to compute.
        ticks: number of ticks to time.
        origin: of the robot this runs on; None for a computer that is not a robot.
        progress: called with the number of ticks done.

    Raises:
        PhysaiError: the number of ticks is out of range.
        EngineError: the engine fails.
    """
    if not 1 <= ticks <= MAX_TICKS:
        raise PhysaiError(f"`ticks` must lie in 1 … {MAX_TICKS}, got {ticks}")
    header = built.engine.header
    contract = header.contract
    # Many ticks of a slow policy would take too long; a shorter period only makes the test harder.
    period = min(contract.timing.control_dt, LONGEST_S / ticks)
    tick = _Tick(built, golden)
    durations = np.zeros(ticks)
    due = time.monotonic()
    for number in range(WARM_UP_TICKS + ticks):
        time.sleep(max(0.0, due - time.monotonic()))
        # A late tick shifts the following ones: they are not to catch up.
        due = max(due, time.monotonic() - period) + period
        seconds = tick(number, number * contract.timing.control_dt)
        if number >= WARM_UP_TICKS:
            durations[number - WARM_UP_TICKS] = seconds
        if number % 256 == 0:
            progress(max(0, number - WARM_UP_TICKS))
    known = ", ".join(f"{name} {version}" for name, version in sorted(built.engine.versions.items()))
    return latency_evidence(
        data,
        contract.fingerprint,
        tuple(durations.tolist()),
        origin=origin or Origin(kind="computer", machine=machine_text()),
        runtime=f"{built.backend} ({known}), inference and guard, without transport",
    )


def latency_evidence(
    policy: bytes, fingerprint: str, tick_s: tuple[float, ...], *, origin: Origin, runtime: str
) -> LatencyEvidence:
    """Return evidence measured on this machine just now.

    Args:
        policy: the ONNX file.
        fingerprint: of its contract.
        tick_s: durations of the ticks [s].
        origin: where the measurements come from.
        runtime: what was measured.
    """
    return LatencyEvidence(
        policy_sha256=sha256_hex(policy),
        contract_fingerprint=fingerprint,
        origin=origin,
        device=device_text(),
        runtime=runtime[:200],
        measured_at=utc_text(datetime.now(UTC)),
        tick_s=tick_s,
    )


class _Tick:
    """Runs one tick after another over the golden states."""

    def __init__(self, built: Built, golden: Golden) -> None:
        self._engine, self._golden = built.engine, golden
        header = built.engine.header
        self._sensors = [name for name in header.inputs if not name.startswith(STATE_PREFIX)]
        self._memory = {
            STATE_PREFIX + name: np.zeros((1, size), np.float32) for name, size in header.state_sizes.items()
        }
        self._targets = [name for name in header.outputs if not name.startswith(NEXT_PREFIX)]
        self._guard = Guard(header.contract)
        joints = len(header.contract.robot.joints)
        self._rest = np.zeros((1, joints))
        self._still = {sensor.name: np.zeros((1, sensor.size)) for sensor in header.contract.robot.sensors}

    def __call__(self, number: int, now_s: float) -> float:
        row = number % self._golden.rows
        start = time.perf_counter_ns()
        fields = {name: self._golden.inputs[name][row : row + 1] for name in self._sensors}
        # Inference and guard together: the guard's time counts towards the deadline, too.
        outputs = self._engine.run({**fields, **self._memory})
        self._memory = {name: outputs[NEXT_PREFIX + name.removeprefix(STATE_PREFIX)] for name in self._memory}
        self._guard.check(
            now_s=now_s,
            sensor_stamp_s=now_s,
            joint_pos=fields.get("joint_pos", self._rest),
            joint_vel=fields.get("joint_vel", self._rest),
            targets={name: outputs[name] for name in self._targets},
            sensors={**self._still, **fields},
        )
        return (time.perf_counter_ns() - start) * 1e-9


def device_text() -> str:
    """Describe this machine: the model of a Jetson, else the processor."""
    try:
        name = MODEL_FILE.read_text().strip("\0 \n")
    except OSError:
        name = platform.processor() or platform.machine()
    return f"{name}, {len(os.sched_getaffinity(0))} processors, {platform.system()} {platform.release()}"[:200]
