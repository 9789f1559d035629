"""The closed-loop test of a twin, from recordings to the record in the twin file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.contract_diff import require_same
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task
from physai.twin.calibration.replay.replay import require_logs_of
from physai.twin.closed_loop.commands import CommandCheck, check_commands, require_same_policy
from physai.twin.closed_loop.compare import RunComparison, compare
from physai.twin.closed_loop.offsets import RunOffsets, run_offsets
from physai.twin.closed_loop.play import Starts, simulated_runs
from physai.twin.closed_loop.runs import COMPLETE, Runs, recorded_runs
from physai.twin.logs import LogError, RobotLog
from physai.twin.model.closed_loop_evidence import ClosedLoop
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import LogRecord

Array = npt.NDArray[np.float64]

DRAWS = 120
"""Draws of the twin's parameters by default."""
MIN_DRAWS, MAX_DRAWS = 90, 10_000
"""The least p-value is 1 in draws + 1, and a test has two ninths of 0.05."""
OFFSETS_SHARE = 0.6
"""Share of the progress that estimates of the encoders' offsets are."""
RELATED = 0.5
"""Least correlation of a parameter with success that is worth a sentence; of 60 draws, chance gives 0.33 at most in 99
of 100 parameters."""


@dataclass(frozen=True)
class ClosedLoopResult:
    """A closed-loop test with the runs behind it."""

    record: ClosedLoop
    check: CommandCheck
    real: Runs
    twin: Runs
    comparison: RunComparison
    logs: tuple[RobotLog, ...]
    depends_on: str
    """Which parameter of the twin success depends on most; empty if on none."""


def run_closed_loop(
    twin: Twin,
    policy: OnnxPolicy,
    policy_sha256: str,
    task: Task,
    logs: Sequence[RobotLog],
    *,
    length_s: float | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    tell: Callable[[float], None] = lambda share: None,
) -> ClosedLoopResult:
    """Play a policy in a twin from the starts of its recorded runs, and compare.

    Args:
        twin: the twin.
        policy: the policy that drove the robot.
        policy_sha256: of its file.
        task: the policy's task, whose criterion decides on success.
        logs: recordings of its runs.
        length_s: planned length of a run [s]: that of the task's episodes by default, or of the longest recording where
            that is shorter. Recordings that ended before have failed.
        draws: draws of the twin's parameters.
        seed: seed of all random numbers.
        tell: called with the share that is done.

    Raises:
        LogError: the policy is not the one in the recordings, or they are of another robot, were fitted, or do not
            contain what the policy reads.
        TwinError: the twin is of another robot.
        ContractMismatchError: policy and task have different contracts.
    """
    require_same(policy.contract, task.contract, left="the policy", right=f"the task {task.name}")
    if not MIN_DRAWS <= draws <= MAX_DRAWS:
        raise PhysaiError(f"the number of draws must be {MIN_DRAWS} to {MAX_DRAWS}, got {draws}")
    twin.require_robot(task.robot)
    require_logs_of(task.robot, logs)
    _require_not_fitted(twin, logs)
    length_s = _planned(task, logs) if length_s is None else length_s
    if not task.contract.timing.control_dt < length_s <= 1e4:
        raise PhysaiError(f"a run must be longer than a control period and at most 10 000 s long, got {length_s:g} s")
    tell(0.0)
    check = check_commands(policy, logs)
    require_same_policy(policy, check)
    real = recorded_runs(task, logs, length_s)
    tell(0.0)
    offsets = run_offsets(twin, task, logs, twin.draw(draws, seed), lambda share: tell(OFFSETS_SHARE * share))
    starts = Starts.of(logs)

    def played(share: float) -> None:
        tell(OFFSETS_SHARE + (1.0 - OFFSETS_SHARE) * share)

    simulated = simulated_runs(
        policy, task, twin, starts, offsets=offsets, length_s=length_s, draws=draws, seed=seed, tell=played
    )
    comparison = compare(task, real, simulated)
    record = ClosedLoop(
        **_identity(twin, policy, task, logs, offsets),
        policy_sha256=policy_sha256,
        command_agreement=check.agreement,
        length_s=length_s,
        real_successes=int(comparison.real_success.sum()),
        twin_successes=int(comparison.twin_success.sum()),
        twin_runs=int(comparison.twin_success.size),
        draws=draws,
        compared=comparison.compared,
        compared_runs=int(np.sum(comparison.real_success == (comparison.compared == "succeeded"))),
        tests=comparison.tests,
        seed=seed,
    )
    dependence = most_related(twin, twin.draw(draws, seed), comparison.twin_success.mean(axis=1))
    return ClosedLoopResult(record, check, real, simulated, comparison, tuple(logs), dependence)


class _Identity(TypedDict):
    twin_sha256: str
    contract_fingerprint: str
    task: str
    criterion: str
    logs: tuple[LogRecord, ...]


def _identity(
    twin: Twin, policy: OnnxPolicy, task: Task, logs: Sequence[RobotLog], offsets: RunOffsets | None
) -> _Identity:
    mean, std = np.zeros((2, len(logs), 0)) if offsets is None else (offsets.mean.mean(axis=0), offsets.std)
    return _Identity(
        twin_sha256=twin.open_loop_hash,
        contract_fingerprint=policy.fingerprint,
        task=task.name,
        criterion=task.success.text[:512],
        logs=tuple(
            LogRecord(
                name=log.name,
                sha256=log.sha256,
                origin=log.origin,
                duration_s=log.duration_s,
                joint_pos_offset=tuple(mean[number].tolist()),
                joint_pos_offset_std=tuple(std[number].tolist()),
            )
            for number, log in enumerate(logs)
        ),
    )


def most_related(twin: Twin, values: Array, rates: Array) -> str:
    """Return which parameter success depends on most, as a sentence without a full stop; empty if on none.

    Args:
        twin: names the parameters.
        values: of the draws, shape (K, P).
        rates: success rate of each draw, shape (K,).
    """
    spreads = values.std(axis=0)
    moving = np.flatnonzero(spreads > 1e-12 * (1.0 + np.abs(values).max(axis=0, initial=0.0)))
    high = rates > rates.mean()
    if not len(moving) or not high.any():
        return ""
    scaled = (values[:, moving] - values[:, moving].mean(axis=0)) / spreads[moving]
    related = scaled.T @ (rates - rates.mean()) / (len(rates) * rates.std())
    best = int(np.argmax(np.abs(related)))
    if not abs(related[best]) >= RELATED:
        return ""
    parameter, column = twin.parameters[int(moving[best])], values[:, moving[best]]
    return (
        f"success in the twin depends on {parameter.name} (correlation {related[best]:+.2f}): it is "
        f"{column[high].mean():.3g} {parameter.unit} on average in draws that succeed more often than the mean, "
        f"{column[~high].mean():.3g} in the others; recordings that constrain it would decide"
    )


def with_record(twin: Twin, record: ClosedLoop) -> Twin:
    """Return the twin with a record, which replaces those of the same policy on the same recordings or fewer."""
    # A record of fewer recordings does not replace one: what contradicts a twin must not be left out.
    tested = {log.sha256 for log in record.logs}
    kept = [
        old
        for old in twin.closed_loop
        if old.policy_sha256 != record.policy_sha256 or not {log.sha256 for log in old.logs} <= tested
    ]
    # A signature is of the twin without it.
    return replace(twin, closed_loop=(*kept, record), signature=None)


def _planned(task: Task, logs: Sequence[RobotLog]) -> float:
    longest = max(log.duration_s for log in logs) + task.contract.timing.control_dt
    return task.episode_length_s if longest >= COMPLETE * task.episode_length_s else longest


def _require_not_fitted(twin: Twin, logs: Sequence[RobotLog]) -> None:
    fitted = {log.sha256: log.name for log in twin.logs.train}
    for log in logs:
        if log.sha256 in fitted:
            raise LogError(
                f"log {log.name} was fitted (as {fitted[log.sha256]}); a twin is tested on recordings that were not"
            )
