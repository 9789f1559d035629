"""A task as a robot's recordings show its robot: fitted model, measured delay, measured noise."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sim.engines.protocol import Array
from physai.sim.tasks.task import Delay, Randomise, SensorModel, Task
from physai.sim.twin.parameters import DELAY
from physai.sim.twin.twin import Twin

Z_P99 = 2.326
"""99th percentile of a normal distribution, in standard deviations."""

TRAINING_MARGIN = 2.0
"""Training sees delays from none to this many times the measured 99th percentile: validation asks for twice too."""
TRAINING_NOISE = 1.5
"""Training sees this many times the measured noise, between what validation asks for at first and twice that."""


POSTERIOR_REACH = 3.0
"""Training varies each model field by so many of its posterior's standard deviations either way, evenly."""
POSTERIOR_DRAWS = 256
ROUNDING = 1e-9
"""What varies by less only rounds differently."""
SIGNED_FIELDS = ("body_ipos",)
"""Fields whose values may have either sign; all others keep a tenth of their value at least."""
COUPLED_FIELDS = ("body_iquat", "actuator_gainprm", "actuator_biasprm", "actuator_forcerange")
"""Fields whose elements only make sense together: a quaternion, a servo's gain and its bias, both ends of a range. The
rules of a task draw elements one by one, so these are left to the task's own randomisation."""


def lag_range(task: Task, twin: Twin) -> tuple[float, float]:
    """Delay of a command [s]: measured mean and 99th percentile, mirrored; the task's own where no log tells."""
    mean, p99 = twin.timing.command_lag_mean_s, twin.timing.command_lag_p99_s
    for parameter in twin.parameters:
        if parameter.name == DELAY and parameter.identified and (mean is None or p99 is None):
            mean, p99 = parameter.value, parameter.value + Z_P99 * parameter.std
    if mean is None or p99 is None:
        return task.action_delay.lower_s, task.action_delay.upper_s
    return max(0.0, 2.0 * mean - p99), max(mean, p99)


def measured_sensors(sensors: Mapping[str, SensorModel], twin: Twin, scale: float) -> dict[str, SensorModel]:
    """Measured noise, times `scale`, where there is any, the task's assumption elsewhere; of several joints, the
    noisiest one's.
    """
    models = {name: replace(model, noise_std=scale * model.noise_std) for name, model in sensors.items()}
    for name in ("joint_pos", "joint_vel", "joint_effort"):
        measured: tuple[float, ...] = getattr(twin.noise, f"{name}_std")
        if measured:
            models[name] = replace(models.get(name, SensorModel()), noise_std=scale * max(measured))
    bias = _position_bias(twin)
    if bias is not None:
        models["joint_pos"] = replace(models.get("joint_pos", SensorModel()), bias=bias)
    return models


def _position_bias(twin: Twin) -> float | None:
    """Greatest offset of a position sensor that the logs leave possible [rad or m]; None where they say nothing."""
    found = [p for p in twin.parameters if p.identified and p.name.endswith(".pos_bias")]
    return max((abs(p.value) + 2.0 * p.std for p in found), default=None)


def training_task(task: Task, twin: Twin) -> Task:
    """The task to learn for the robot that the twin was fitted to.

    The task's own randomisation stays and now varies the fitted model; beside it, each field of the model varies by
    POSTERIOR_REACH standard deviations of the twin's posterior, as the recordings leave it open. Sensors get
    TRAINING_NOISE times the measured noise, commands a delay of up to TRAINING_MARGIN times the measured one. The
    contract is the task's.

    Raises:
        TaskError: the twin is of a robot with other joints.
        TwinError: its robot's file is missing or has changed.
    """
    joints = task.contract.robot.joint_names
    if twin.joint_names != joints:
        raise TaskError(
            f"the twin is of {twin.robot} with joints {', '.join(twin.joint_names)}, task {task.name} drives "
            f"{', '.join(joints)}; calibrate a twin of the task's robot"
        )
    _, upper = lag_range(task, twin)
    # The task's own copy: its time step and integrator are not those of the robot's file.
    model = copy.copy(task.model)
    if twin.parameters:
        twin.apply(model, twin.values)
    return replace(
        task,
        model=model,
        randomisation=(*task.randomisation, *posterior_randomisation(twin, model)),
        sensors=measured_sensors(task.sensors, twin, TRAINING_NOISE),
        action_delay=Delay(lower_s=0.0, upper_s=max(task.action_delay.upper_s, TRAINING_MARGIN * upper)),
    )


def posterior_randomisation(twin: Twin, model: Any) -> tuple[Randomise, ...]:
    """What the recordings leave open, as rules for training: one per element of a model field that varies.

    `COUPLED_FIELDS` are left alone.
    """
    if not twin.parameters:
        return ()
    rules: list[Randomise] = []
    for name, rows in sorted(twin.randomisation(POSTERIOR_DRAWS, seed=0).items()):
        spread: Array = rows.std(axis=0)
        value: Array = np.asarray(getattr(model, name), dtype=np.float64)
        if name in COUPLED_FIELDS or spread.shape != value.shape:
            continue
        for place in np.argwhere(spread > ROUNDING * (1.0 + np.abs(value))).tolist():
            reach = POSTERIOR_REACH * float(spread[tuple(place)])
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
