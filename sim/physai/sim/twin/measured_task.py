"""Task with a twin's fitted model, measured delay and measured noise."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot
from physai.sim.tasks.task import Delay, Randomise, SensorModel, Task
from physai.sim.twin.parameters import DELAY, model_fields
from physai.sim.twin.twin import Twin

Z_P99 = 2.326
"""99th percentile of a normal distribution, in standard deviations."""

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
    """Return the range of the command delay [s]; the task's own without a measurement.

    The upper end is the measured 99th percentile, the lower end its mirror image about the mean.
    """
    mean, p99 = twin.timing.command_lag_mean_s, twin.timing.command_lag_p99_s
    for parameter in twin.parameters:
        if parameter.name == DELAY and parameter.identified and (mean is None or p99 is None):
            mean, p99 = parameter.value, parameter.value + Z_P99 * parameter.std
    if mean is None or p99 is None:
        return task.action_delay.lower_s, task.action_delay.upper_s
    return max(0.0, 2.0 * mean - p99), max(mean, p99)


def measured_sensors(sensors: Mapping[str, SensorModel], twin: Twin, scale: float) -> dict[str, SensorModel]:
    """Return the sensor models with noise times `scale`: that of the noisiest joint where measured, else the task's."""
    models = {name: replace(model, noise_std=scale * model.noise_std) for name, model in sensors.items()}
    for name in ("joint_pos", "joint_vel", "joint_effort"):
        measured: tuple[float, ...] = getattr(twin.noise, f"{name}_std")
        if measured:
            models[name] = replace(models.get(name, SensorModel()), noise_std=scale * max(measured))
    bias = _position_bias(twin)
    if bias is not None:
        models["joint_pos"] = replace(models.get("joint_pos", SensorModel()), bias=bias)
    return models


CONSTRAINED = 0.5
"""Share of its prior's standard deviation below which an offset of a position sensor counts as measured."""


def _position_bias(twin: Twin) -> float | None:
    """Return the 2 σ bound on the position sensors' offset [rad or m]; None if the logs do not identify one."""
    biases = [p for p in twin.parameters if p.identified and p.name.endswith(".pos_bias")]
    # What stayed at its prior says nothing about the sensors, though the fit may have moved it with others.
    biases = [p for p in biases if p.std < CONSTRAINED * p.prior_std]
    return max((abs(p.value) + 2.0 * p.std for p in biases), default=None)


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
    _, upper = lag_range(task, twin)
    # Start from the task's model: its time step and integrator may differ from those of the robot file.
    model = copy.copy(task.model)
    if twin.parameters:
        twin.apply(model, twin.values)
    return replace(
        task,
        model=model,
        randomisation=(*task.randomisation, *posterior_randomisation(twin, model, task.robot)),
        sensors=measured_sensors(task.sensors, twin, TRAINING_NOISE),
        action_delay=Delay(lower_s=0.0, upper_s=max(task.action_delay.upper_s, TRAINING_MARGIN * upper)),
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
                    field=name,
                    rows=(row,),
                    columns=tuple(columns) or None,
                    operation="add",
                    lower=lower,
                    upper=reach,
                )
            )
    return tuple(rules)
