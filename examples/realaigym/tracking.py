"""Linear-quadratic regulators, about a point and along a trajectory, and the controller that follows one.

Source of the formulas: B. D. O. Anderson and J. B. Moore, Optimal Control: Linear Quadratic Methods, chapters 2 and 3.
"""

from dataclasses import dataclass
from typing import Any, cast

import mujoco
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_discrete_are
from torch import Tensor, nn

from physai.sim import Task
from realaigym.errors import DesignError

FloatArray = NDArray[np.float64]
_STEP = 1e-6
"""Finite difference of MuJoCo's linearisation."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """States and the efforts between them."""

    states: FloatArray
    """(qpos, qvel), shape (steps + 1, 2 nv) [rad or m, and per s]."""
    efforts: FloatArray
    """Of the driven joint, held during a step, shape (steps, 1) [N·m or N]."""
    steps_to_up: int
    """Number of steps after which the pole stays up."""
    cost: float
    """What was minimised."""


def linearised(task: Task, state: ArrayLike, effort: ArrayLike = 0.0) -> tuple[FloatArray, FloatArray]:
    """The twin's motion about a state over one control period: x' = A x + B u, by finite differences.

    Args:
        task: a task whose actuators are motors.
        state: (qpos, qvel), shape (2 nv,) [rad or m, and per s].
        effort: of every actuator [N·m or N], shape (nu,) or one number.

    Returns:
        A, shape (2 nv, 2 nv), and B, shape (2 nv, nu), in the order of the model's joints and actuators.

    Raises:
        DesignError: the state has another shape or is not finite, or the model has ball or floating joints.
    """
    model: Any = task.model
    if model.nq != model.nv:
        raise DesignError(f"robot {task.robot.name} has ball or floating joints; linearised needs hinges and slides")
    values = _finite("state", state, (2 * int(model.nv),))
    data: Any = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = np.split(values, 2)
    data.ctrl[:] = _finite("effort", np.broadcast_to(np.asarray(effort, dtype=np.float64), (int(model.nu),)), None)
    width = 2 * int(model.nv)
    step_a, step_b = np.zeros((width, width)), np.zeros((width, int(model.nu)))
    mujoco.mjd_transitionFD(model, data, _STEP, True, step_a, step_b, None, None)
    a, b = np.eye(width), np.zeros_like(step_b)
    for _ in range(task.contract.timing.decimation):
        a, b = step_a @ a, step_a @ b + step_b
    return a, b


def lqr(a: ArrayLike, b: ArrayLike, q: ArrayLike, r: ArrayLike) -> FloatArray:
    """The gain K, shape (inputs, states), of u = -K x that minimises Σ xᵀ Q x + uᵀ R u for x' = A x + B u.

    Raises:
        DesignError: shapes that do not fit, values that are not finite, or a point that no input can hold.
    """
    a, b, q, r = _system(a, b, q, r)
    try:
        cost = solve_discrete_are(a, b, q, r)
    except (np.linalg.LinAlgError, ValueError) as error:
        raise DesignError(f"no gain exists for this A, B, Q and R: {error}") from error
    return _gain(a, b, r, cost)


def tvlqr(a: ArrayLike, b: ArrayLike, q: ArrayLike, r: ArrayLike, final: ArrayLike) -> FloatArray:
    """The gains along a trajectory, shape (steps, inputs, states), by the backward Riccati recursion.

    Args:
        a: shape (steps, states, states).
        b: shape (steps, states, inputs).
        q: cost of the states' error, shape (states, states).
        r: cost of the inputs' change, shape (inputs, inputs).
        final: cost of the error at the end, shape (states, states).

    Raises:
        DesignError: shapes that do not fit, or values that are not finite.
    """
    along_a, along_b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if along_a.ndim != 3 or along_b.ndim != 3 or len(along_a) != len(along_b):
        raise DesignError(f"a and b have shapes {along_a.shape} and {along_b.shape}; expected one matrix per step")
    cost = _finite("final", final, along_a.shape[1:])
    gains: list[FloatArray] = []
    for step_a, step_b in zip(along_a[::-1], along_b[::-1], strict=True):
        checked_a, checked_b, checked_q, checked_r = _system(step_a, step_b, q, r)
        gain = _gain(checked_a, checked_b, checked_r, cost)
        closed = checked_a - checked_b @ gain
        cost = checked_q + gain.T @ checked_r @ gain + closed.T @ cost @ closed
        gains.append(gain)
    return np.stack(gains[::-1])


class Tracker(nn.Module):
    """A controller for `wrap(..., memory=1)`: follows a trajectory by its gains, then holds its last state.

    It reads `joint_pos` and `joint_vel`, and commands efforts. The memory is the number of periods that have passed.
    """

    def __init__(self, states: ArrayLike, efforts: ArrayLike, gains: ArrayLike, hold: ArrayLike) -> None:
        """Keeps a trajectory.

        Args:
            states: (qpos, qvel), shape (steps + 1, states) [rad or m, and per s].
            efforts: shape (steps, inputs) [N·m or N].
            gains: of each step, shape (steps, inputs, states).
            hold: the gain at the last state, shape (inputs, states).

        Raises:
            DesignError: shapes that do not fit, or values that are not finite.
        """
        super().__init__()
        path = _finite("states", states, None)
        drive = _finite("efforts", efforts, None)
        if path.ndim != 2 or drive.ndim != 2 or len(path) != len(drive) + 1:
            raise DesignError(
                f"states and efforts have shapes {path.shape} and {drive.shape}; "
                "expected (steps + 1, states) and (steps, inputs)"
            )
        inputs, width = drive.shape[1], path.shape[1]
        along = _finite("gains", gains, (len(drive), inputs, width))
        last = _finite("hold", hold, (inputs, width))
        self._width, self._inputs = width, inputs
        self._steps = len(drive)
        rows = np.concatenate([along.reshape(len(drive), -1), last.reshape(1, -1)])
        at_rest = np.concatenate([drive, np.zeros((1, inputs))])
        # One table, one look-up per period.
        table = np.concatenate([path, at_rest, rows], axis=1)
        self.register_buffer("_table", torch.tensor(table, dtype=torch.float32))

    def forward(self, fields: dict[str, Tensor], memory: Tensor) -> tuple[Tensor, Tensor]:
        """Efforts, shape (n, inputs), and the memory after this period, shape (n, 1)."""
        table = cast("Tensor", self._table)
        state = torch.cat([fields["joint_pos"], fields["joint_vel"]], dim=1)
        step = memory[:, 0].clamp(0.0, float(self._steps)).to(torch.int64)
        row = torch.index_select(table.to(state.dtype), 0, step)
        error = state - row[:, : self._width]
        drive = row[:, self._width : self._width + self._inputs]
        gain = row[:, self._width + self._inputs :].reshape(-1, self._inputs, self._width)
        # Term by term: a sum's order is the runtime's own, and steep gains make its rounding visible.
        for index in range(self._width):
            drive = drive - gain[:, :, index] * error[:, index : index + 1]
        return drive, (memory + 1.0).clamp(0.0, float(self._steps))


def track(task: Task, trajectory: Trajectory, q: ArrayLike | None = None, r: ArrayLike = ((1.0,),)) -> Tracker:
    """A tracker of a trajectory, with gains from the twin's linearisation along it and at its end.

    Args:
        task: a task that commands one joint's effort; its control period is the trajectory's step.
        trajectory: ends in a state that needs no effort.
        q: cost of the states' error, shape (2 nv, 2 nv), and 100 times of it at the end; unless given, 20 for positions
            and 0.1 for velocities.
        r: cost of the effort's change, shape (1, 1).

    Raises:
        DesignError: the task commands another number of joints, or shapes do not fit.
    """
    joints = [joint for term in task.contract.action.terms for joint in term.joints]
    if len(joints) != 1:
        raise DesignError(f"task {task.name} commands {len(joints)} joints; a trajectory has the effort of one")
    model: Any = task.model
    motor = int(np.flatnonzero(np.asarray(model.actuator_trnid)[:, 0] == model.joint(joints[0]).id)[0])
    efforts = np.zeros((len(trajectory.efforts) + 1, int(model.nu)))
    efforts[:-1, motor] = trajectory.efforts[:, 0]
    linear = [linearised(task, state, effort) for state, effort in zip(trajectory.states, efforts, strict=True)]
    a, b = np.stack([pair[0] for pair in linear]), np.stack([pair[1][:, [motor]] for pair in linear])
    nv = int(model.nv)
    cost = np.diag([20.0] * nv + [0.1] * nv) if q is None else np.asarray(q, dtype=np.float64)
    hold = lqr(a[-1], b[-1], cost, r)
    gains = tvlqr(a[:-1], b[:-1], cost, r, 100.0 * cost)
    return Tracker(trajectory.states, trajectory.efforts, gains, hold)


def _gain(a: FloatArray, b: FloatArray, r: FloatArray, cost: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.solve(r + b.T @ cost @ b, b.T @ cost @ a), dtype=np.float64)


def _system(
    a: ArrayLike, b: ArrayLike, q: ArrayLike, r: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    effect = _finite("b", b, None)
    if effect.ndim != 2:
        raise DesignError(f"b has shape {effect.shape}; expected (states, inputs)")
    states, inputs = effect.shape
    return (
        _finite("a", a, (states, states)),
        effect,
        _finite("q", q, (states, states)),
        _finite("r", r, (inputs, inputs)),
    )


def _finite(name: str, value: ArrayLike, shape: tuple[int, ...] | None) -> FloatArray:
    array = np.asarray(value, dtype=np.float64)
    if shape is not None and array.shape != shape:
        raise DesignError(f"{name} has shape {array.shape}; expected {shape}")
    if not np.isfinite(array).all():
        raise DesignError(f"{name} has values that are not finite")
    return array
