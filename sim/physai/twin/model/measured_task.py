"""Task with a twin's fitted model, measured delay and measured noise."""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.robot import JointSpec
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot
from physai.sim.tasks.task import Delay, Randomise, SensorModel, Task
from physai.twin.model.credibility import lag_doubt
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import MAX_LAG_S, TwinError
from physai.twin.parameters.parameters import AGE, AGE_PERIODS, DELAY, DELAY_PERIODS, OFFSET_STD, model_fields

Z_P99 = 2.326
"""99th percentile of a normal distribution, in standard deviations."""
Z_P975 = 1.960

TRAINING_MARGIN = 2.0
"""Training draws delays up to this multiple of the measured 99th percentile, as validation doubles the delay."""
TRAINING_NOISE = 1.5
"""Training multiplies the measured noise by this; validation uses 1 and 2."""

POSTERIOR_REACH = 3.0
"""Training varies each model field uniformly by this many posterior standard deviations either way."""
POSTERIOR_DRAWS = 256
ROUNDING = 1e-9
"""Relative variation of a model field that counts as rounding."""
SIGNED_FIELDS = ("body_ipos",)
"""Fields of either sign; all others keep at least a tenth of their value."""
COUPLED_FIELDS = ("body_iquat", "actuator_gainprm", "actuator_biasprm", "actuator_forcerange", "geom_solref")
"""Fields whose elements must change together: a quaternion, a servo's gain and bias, both ends of a range. Task rules
draw each element independently, so these fields are left to the task's own randomisation."""


def lag_range(task: Task, twin: Twin) -> tuple[float, float]:
    """Return the range of the command delay at the policy's rate [s]; the task's own without a measurement.

    The upper end is the measured 99th percentile, the lower end its mirror image about the mean. At another rate than
    that of the recordings both move by the share of the lag that is a number of the loop's periods. A delay that was
    fitted to recordings of one rate counts as seconds: they do not tell how many of the loop's periods it contains.

    Raises:
        TwinError: the lag is above `MAX_LAG_S`.
    """
    mean, p99 = twin.timing.command_lag_mean_s, twin.timing.command_lag_p99_s
    if mean is None or p99 is None:
        mean, p99 = _fitted_delay(twin, task.contract.timing.control_dt)
    if mean is None or p99 is None:
        own = task.action_delay.at(task.contract.timing.control_dt)
        return own.lower_s, own.upper_s
    lower, upper = 2.0 * mean - p99, max(mean, p99)
    period_s, periods = twin.timing.command_lag_period_s, twin.timing.command_lag_periods
    if period_s is not None and periods is not None:
        apart_s = task.contract.timing.control_dt - period_s
        shifts = (periods.lo * apart_s, periods.hi * apart_s)
        lower, upper = lower + min(shifts), upper + max(shifts)
    if not upper <= MAX_LAG_S:
        raise TwinError(
            f"the twin of {twin.robot} has a command lag of {upper:g} s at the rate of task {task.name}, at most "
            f"{MAX_LAG_S:g} s can be simulated; calibrate again"
        )
    return max(0.0, lower), max(0.0, upper)


def plausible_lag_range(task: Task, twin: Twin) -> tuple[float, float]:
    """Return `lag_range`, with lags that nothing in the held-out recordings speaks against; see `lag_doubt`.

    Raises:
        TwinError: see `lag_range`.
    """
    (lower, upper), (too_high, too_low) = lag_range(task, twin), lag_doubt(twin)
    return max(0.0, lower - too_high), min(MAX_LAG_S, upper + too_low)


def _fitted_delay(twin: Twin, control_dt: float) -> tuple[float | None, float | None]:
    """Return mean and 99th percentile of the delay fitted to the motion, at a control period [s]."""
    names = [parameter.name for parameter in twin.parameters]
    if not any(parameter.name == DELAY and parameter.identified for parameter in twin.parameters):
        return None, None
    per_unit = np.array([{DELAY: 1.0, DELAY_PERIODS: control_dt}.get(name, 0.0) for name in names])
    mean = float(per_unit @ twin.values)
    return mean, mean + Z_P99 * math.sqrt(max(0.0, float(per_unit @ twin.covariance @ per_unit)))


def sensor_age(task: Task, twin: Twin) -> Delay:
    """Return the age of sensor samples: the twin's in seconds and periods if both are known, else the task's own.

    It is that of the positions behind the efforts of the same sample. The lag of commands ends at these efforts, so
    that both together are the time from a command to its effect in the positions.

    Raises:
        TwinError: the age is above `MAX_LAG_S`.
    """
    known = {parameter.name: parameter for parameter in twin.parameters if parameter.identified}
    if AGE not in known or AGE_PERIODS not in known:
        return task.sensor_delay
    lower_s, lower_periods = (max(0.0, known[name].value - Z_P99 * known[name].std) for name in (AGE, AGE_PERIODS))
    upper_s, upper_periods = (max(0.0, known[name].value + Z_P99 * known[name].std) for name in (AGE, AGE_PERIODS))
    age = Delay(lower_s=lower_s, upper_s=upper_s, lower_periods=lower_periods, upper_periods=upper_periods)
    oldest_s = age.at(task.contract.timing.control_dt).upper_s
    if not oldest_s <= MAX_LAG_S:
        raise TwinError(
            f"the twin of {twin.robot} has sensor samples {oldest_s:g} s old at the rate of task {task.name}, at most "
            f"{MAX_LAG_S:g} s can be simulated; calibrate again"
        )
    return age


def measured_sensors(
    sensors: Mapping[str, SensorModel], joints: Sequence[JointSpec], twin: Twin, scale: float
) -> dict[str, SensorModel]:
    """Return the sensor models of a task with noise times `scale`, and what the twin measured instead of the task's.

    A joint gets the noise of the worst joint of its kind: radians of the links say nothing about metres of the fingers.
    A speed that the robot computes from positions is computed in the same way from the positions' readings at the
    policy's own rate. Its noise is then theirs.
    """
    models = {name: replace(model, noise_std=_scaled(model.noise_std, scale)) for name, model in sensors.items()}
    kinds = [joint.kind == "prismatic" for joint in joints]
    for name in ("joint_pos", "joint_vel", "joint_effort"):
        measured: tuple[float, ...] = getattr(twin.noise, f"{name}_std")
        steps = [float(getattr(joint, f"{name}_resolution", 0.0)) for joint in twin.sensors] or [0.0] * len(kinds)
        if measured:
            # Rounding to steps of r adds noise with a variance of r²/12, which is in the measured one.
            rest = [math.sqrt(max(0.0, std**2 - step**2 / 12.0)) for std, step in zip(measured, steps, strict=True)]
            noise = _one_or_each(scale * worst for worst in _worst_of_kind(rest, kinds))
            models[name] = replace(models.get(name, SensorModel()), noise_std=noise)
        if any(steps):
            # One step for all joints: the finest of the kinds, as a reading may not be coarser than the robot's.
            models[name] = replace(models.get(name, SensorModel()), resolution=min(_worst_of_kind(steps, kinds)))
    first = twin.sensors[0] if twin.sensors else None
    alike = len({(joint.joint_vel, joint.joint_vel_span) for joint in twin.sensors}) == 1
    # A central difference needs samples of the future: what the robot gives its policy is not recorded then.
    if first is not None and alike and first.joint_vel == "backward":
        models["joint_vel"] = replace(
            models.get("joint_vel", SensorModel()),
            noise_std=0.0,
            difference_span=first.joint_vel_span,
            time_constant_s=max(joint.joint_vel_time_constant_s for joint in twin.sensors),
        )
    position = models.get("joint_pos", SensorModel())
    own = [np.broadcast_to(np.asarray(one, np.float64), len(kinds)) for one in (position.bias_mean, position.bias)]
    found = position_offsets(twin, kinds)
    if found.shown.any():
        mean, reach = (
            _one_or_each(np.where(found.shown, one, default).tolist())
            for one, default in zip((found.mean, SPREAD_TO_REACH * found.std), own, strict=True)
        )
        models["joint_pos"] = replace(position, bias_mean=mean, bias=reach)
    return models


def _worst_of_kind(values: Sequence[float], kinds: Sequence[bool]) -> list[float]:
    """Return for each joint the greatest value of a joint of its kind."""
    worst = {kind: max(compress(values, (k == kind for k in kinds))) for kind in set(kinds)}
    return [worst[kind] for kind in kinds]


def _scaled(values: float | tuple[float, ...], scale: float) -> float | tuple[float, ...]:
    return tuple(scale * value for value in values) if isinstance(values, tuple) else scale * values


def _one_or_each(values: Iterable[float]) -> float | tuple[float, ...]:
    """One value if all are equal, else all of them."""
    each = tuple(values)
    return each[0] if len(set(each)) == 1 else each


OFFSET_MEASURED = 0.5
"""Share of its prior's standard deviation below which the offset of a recording counts as measured."""


SPREAD_TO_REACH = math.sqrt(3.0)
"""A uniform distribution over ±a has the standard deviation a/√3."""


@dataclass(frozen=True)
class PositionOffsets:
    """Measured minus true positions of J joints in one more recording, or in an episode [rad or m], shape (J,) each."""

    mean: Array
    std: Array
    shown: npt.NDArray[np.bool_]
    """Whether the recordings show offsets of this joint, or of another of its kind."""


def position_offsets(twin: Twin, kinds: Sequence[bool]) -> PositionOffsets:
    """Predict the offsets of one more recording from those of the twin's recordings, see `predicted_offset`.

    A joint whose own offset they do not show has as much spread as that of its kind with the most.

    Args:
        twin: the twin.
        kinds: whether each joint is prismatic.
    """
    logs = [log for log in (*twin.logs.train, *twin.logs.held_out) if log.joint_pos_offset]
    value = np.array([log.joint_pos_offset for log in logs]).reshape(len(logs), len(kinds))
    error = np.array([log.joint_pos_offset_std for log in logs]).reshape(len(logs), len(kinds))
    measured = error < OFFSET_MEASURED * OFFSET_STD
    each = [predicted_offset(value[measured[:, j], j], error[measured[:, j], j]) for j in range(len(kinds))]
    mean, own = np.array(each).reshape(len(kinds), 2).T
    worst = np.array(_worst_of_kind(own.tolist(), kinds))
    std = np.where((mean != 0.0) | (own > 0.0), own, worst)
    return PositionOffsets(mean, std, (mean != 0.0) | (std > 0.0))


def predicted_offset(value: Array, error: Array) -> tuple[float, float]:
    """Return mean and standard deviation of the offset that one more recording of a joint would have [rad or m].

    The mean x of n offsets with the standard deviation s has the standard error s/√n. The share 1 - s²/(n·x²) of it is
    systematic, and the rest counts as spread; a single recording's offset is spread. One more recording differs by
    t·s·√(1 + 1/n) at most in 95 of 100 cases, t with n - 1 degrees of freedom; the standard deviation returned has
    the same interval, but is not larger than the prior's for the small number of recordings alone.

    Args:
        value: offset of each recording, shape (n,).
        error: its standard deviation, below that of the prior.
    """
    from scipy.special import stdtrit  # pyright: ignore[reportMissingTypeStubs]

    count = len(value)
    if not count:
        return 0.0, 0.0
    # Values are pulled to the prior's 0, by this factor of what the recording alone shows.
    pull = 1.0 - (error / OFFSET_STD) ** 2
    alone, noise = value / pull, float((error**2 / pull).mean())
    centre, freedom = float(alone.mean()), max(1, count - 1)
    scatter = float(((alone - centre) ** 2).sum()) if count > 1 else centre**2
    chance = max(scatter / freedom, noise) / count
    mean = centre * (1.0 - chance / centre**2) if centre**2 > chance else 0.0
    # Less what errors of the estimates add: offsets that cannot be told from 0 must not decide over a policy.
    rest = float(((alone - mean) ** 2).sum())
    std = math.sqrt(max(0.0, rest / freedom - noise))
    few = math.sqrt(1.0 + 1.0 / count) * float(stdtrit(freedom, 0.975)) / Z_P975
    return mean, max(std, min(OFFSET_STD, few * std))


def training_task(task: Task, twin: Twin) -> Task:
    """Return the training task for the robot that the twin was fitted to.

    The task's randomisation applies to the fitted model. In addition, each model field varies by POSTERIOR_REACH
    posterior standard deviations. Sensors get TRAINING_NOISE times the measured noise, commands a delay of up to
    TRAINING_MARGIN times the measured one. The contract is unchanged.

    Raises:
        TaskError: the twin's robot has different joints.
        TwinError: the task's robot is not the one that the twin was fitted to.
    """
    joints = task.contract.robot.joint_names
    if twin.joint_names != joints:
        raise TaskError(
            f"the twin of {twin.robot} has joints {', '.join(twin.joint_names)}, but task {task.name} controls "
            f"{', '.join(joints)}; calibrate a twin of the task's robot"
        )
    upper, most = lag_range(task, twin)[1], plausible_lag_range(task, twin)[1]
    own = task.action_delay.at(task.contract.timing.control_dt)
    # Start from the task's model: its time step and integrator may differ from those of the robot file.
    model = copy.copy(task.model)
    twin.apply_commanded(model, twin.values)
    return replace(
        task,
        model=model,
        randomisation=(*task.randomisation, *posterior_randomisation(twin, model, task.robot)),
        sensors=measured_sensors(task.sensors, task.contract.robot.joints, twin, TRAINING_NOISE),
        sensor_delay=_training_age(task, twin),
        action_delay=Delay(lower_s=0.0, upper_s=max(own.upper_s, TRAINING_MARGIN * upper, most)),
    )


def _training_age(task: Task, twin: Twin) -> Delay:
    """Return the age of sensor samples in training: up to a multiple of the measured one, and no less than the task's.

    Without a measurement it is the task's own.
    """
    age = sensor_age(task, twin)
    if age is task.sensor_delay:
        return age
    most = age.scaled(TRAINING_MARGIN)
    return Delay(
        upper_s=max(task.sensor_delay.upper_s, most.upper_s),
        upper_periods=max(task.sensor_delay.upper_periods, most.upper_periods),
    )


def posterior_randomisation(twin: Twin, model: Any, robot: Robot) -> tuple[Randomise, ...]:
    """Return randomisation rules that cover the twin's posterior, one per model element that varies.

    `COUPLED_FIELDS` are left out.
    """
    if not twin.parameters:
        return ()
    rules: list[Randomise] = []
    twin.require_robot(robot)
    # Of the task's model: its floor shifts the robot's geoms.
    names = [parameter.name for parameter in twin.parameters]
    for name, rows in sorted(model_fields(model, names, twin.draw(POSTERIOR_DRAWS, seed=0)).items()):
        spread: Array = rows.std(axis=0)
        value: Array = np.asarray(getattr(model, name), dtype=np.float64)
        if name in COUPLED_FIELDS or spread.shape != value.shape:
            continue
        for place in np.argwhere(spread > ROUNDING * (1.0 + np.abs(value))).tolist():
            reach = POSTERIOR_REACH * float(spread[tuple(place)])
            # A mass or a friction must stay positive: at least a tenth remains.
            lower = -reach if name in SIGNED_FIELDS else max(-reach, -0.9 * float(value[tuple(place)]))
            row, *columns = (int(index) for index in place)
            rules.append(
                Randomise(
                    field=name, rows=(row,), columns=tuple(columns) or None, operation="add", lower=lower, upper=reach
                )
            )
    return tuple(rules)
