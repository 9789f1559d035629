"""The TVLQR controllers that swung DFKI's double pendulum up on the hardware, as graphs, and the tasks that they solve.

Rebuilt from their description: experiments/design_C.1/tvlqr_pendubot.py and tvlqr_acrobot.py of
github.com/dfki-ric-underactuated-lab/double_pendulum (at commits 49af406 and 7132266), with the nominal trajectory
data/trajectories/design_C.1/model_1.1/ROBOT/ilqr_1/trajectory.csv. The controller filters the measured speeds, follows
the trajectory by gains of a backward Riccati recursion, both smoothed by cubics over 40 pieces, changes to an LQR for
good where the cost to go falls below `RHO`, and adds what compensates friction; each sum is clipped to the limits.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import mujoco
import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from physai.sdk.contract.terms import ActionSpec, ActionTerm, ObservationSpec, ObservationTerm, TimingSpec
from physai.sim.robots import load_robot
from physai.sim.tasks.common import compiled
from physai.sim.tasks.pendulums.double_pendulum import is_up
from physai.sim.tasks.pendulums.realaigym import board_model
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Success, Task, WorldView

Array = NDArray[np.float64]

PIECES, DEGREE = 40, 3
ALPHA, DEADBAND = 0.2, 0.1
"""Share of the newest speed in the filter, and speed below which it counts as 0 [rad/s]."""
COULOMB, VISCOUS = (0.16, 0.12), (0.001, 0.001)
TOP = np.array([math.pi, 0.0, 0.0, 0.0])


@dataclass(frozen=True)
class Design:
    """What differs between the two."""

    motor: int
    """The joint whose motor swings it up."""
    driven: tuple[int, ...]
    """Joints that the recursion commands."""
    limits: tuple[float, float]
    """Greatest efforts [N·m]."""
    q: tuple[float, float, float, float]
    r: float
    final: bool
    """Whether the recursion starts at the cost to go of the LQR; else at `q`."""
    lqr_q: tuple[float, float, float, float]
    lqr_r: float
    rho: float
    """Cost to go below which the LQR takes over."""
    control_dt: float
    """Median of the recorded periods [s]."""


DESIGNS = {
    "pendubot": Design(
        motor=0,
        driven=(0,),
        limits=(5.0, 0.5),
        q=(1.0, 1.0, 1.0, 1.0),
        r=1.0,
        final=True,
        lqr_q=(1.92, 1.92, 0.3, 0.3),
        lqr_r=0.82,
        rho=0.1284790040036804,
        control_dt=0.0025,
    ),
    "acrobot": Design(
        motor=1,
        driven=(0, 1),
        limits=(0.5, 5.0),
        q=(0.64, 0.56, 0.13, 0.067),
        r=0.82,
        final=False,
        lqr_q=(0.97, 0.93, 0.39, 0.26),
        lqr_r=0.11,
        rho=0.1223754883788025,
        control_dt=0.002,
    ),
}


def hardware_task(name: str) -> Task:
    """The swing-up with both motors commanded, as on the hardware: the idle one compensates its own friction."""
    design, base = DESIGNS[name], load_task(f"{name}-swingup")
    robot = load_robot("double_pendulum")
    action = ActionTerm(
        kind="joint_effort",
        joints=robot.spec.joint_names,
        scale=design.limits,
        offset=(0.0, 0.0),
        lower=tuple(-limit for limit in design.limits),
        upper=design.limits,
    )
    terms = tuple(
        ObservationTerm(name=name, kind="sensor", source=name, scale=1.0) for name in ("joint_pos", "joint_vel")
    )
    timing = TimingSpec(
        control_dt=design.control_dt,
        physics_dt=design.control_dt / 2.0,
        decimation=2,
        deadline_s=0.001,
        max_observation_age_s=0.1,
    )
    safety = base.contract.safety
    # The hardware's loop ended at 2 pi and 20 rad/s; it had no guard.
    joints = tuple(
        joint.model_copy(update={"effort_limit": limit, "velocity_mismatch_limit": None})
        for joint, limit in zip(safety.joints, design.limits, strict=True)
    )
    contract = base.contract.model_copy(
        update={
            "task": f"{name}-hardware",
            "observation": ObservationSpec(terms=terms),
            "action": ActionSpec(terms=(action,)),
            "timing": timing,
            "safety": safety.model_copy(update={"joints": joints, "frozen_samples": None, "sensor_ranges": None}),
        }
    )
    return replace(
        base,
        name=f"{name}-hardware",
        contract=contract,
        model=compiled(robot, physics_dt=timing.physics_dt),
        rewards={},
        terminations={"outside": outside},
        push=None,
        training_reset=None,
        success=Success(condition=is_up, hold_s=2.0, text="end effector above 0.45 m for the last 2 s"),
    )


def outside(view: WorldView) -> Any:
    """Where the hardware's loop stopped: beyond a turn, or 20 rad/s."""
    return ((np.abs(view.joint_pos) > 2.0 * math.pi) | (np.abs(view.joint_vel) > 20.0)).any(axis=1)


class HardwareController(nn.Module):
    """For `wrap(..., memory=4)`: both filtered speeds, the periods that have passed, and whether the LQR is active."""

    def __init__(self, name: str, trajectory: Path) -> None:
        super().__init__()
        design = DESIGNS[name]
        self._design = design
        rows = np.genfromtxt(trajectory, delimiter=",", names=True)
        time = rows["time"]
        states = np.stack([rows[column] for column in ("pos1", "pos2", "vel1", "vel2")], axis=1)
        efforts = np.stack([rows["tau1"], rows["tau2"]], axis=1)
        self._lqr, cost, gains = _gains(design, states, efforts, float(time[1] - time[0]))
        driven = list(design.driven)
        table = [_smoothed(time, part) for part in (states, efforts[:, driven], gains.reshape(len(time), -1))]
        moments = np.arange(0.0, time[-1], design.control_dt)
        values = np.concatenate([_at(pieces, moments) for pieces in table], axis=1)
        self.register_buffer("_table", torch.tensor(values, dtype=torch.float32))
        self.register_buffer("_cost", torch.tensor(cost, dtype=torch.float32))
        self.register_buffer("_gain", torch.tensor(self._lqr, dtype=torch.float32))

    def forward(self, fields: dict[str, Tensor], memory: Tensor) -> tuple[Tensor, Tensor]:
        """Efforts, shape (n, 2), and the memory after this period, shape (n, 4)."""
        design = self._design
        kind = fields["joint_pos"].dtype
        table, cost, gain = (cast("Tensor", part).to(kind) for part in (self._table, self._cost, self._gain))
        speed = fields["joint_vel"]
        speed = torch.where(torch.abs(speed) < DEADBAND, torch.zeros_like(speed), speed)
        speed = (1.0 - ALPHA) * memory[:, :2] + ALPHA * speed
        state = torch.cat([fields["joint_pos"], speed], dim=1)
        step = memory[:, 2].clamp(0.0, float(len(table) - 1)).to(torch.int64)
        row = torch.index_select(table, 0, step)
        from_top = _wrapped(state - torch.tensor(TOP, dtype=kind))
        near = ((from_top @ cost) * from_top).sum(dim=1, keepdim=True) < design.rho
        caught = torch.where(near, torch.ones_like(memory[:, 3:]), memory[:, 3:])
        count = len(design.driven)
        error = _wrapped(state - row[:, :4]).unsqueeze(2)
        along = row[:, 4 : 4 + count] - (row[:, 4 + count :].reshape(-1, count, 4) @ error).squeeze(2)
        drive = torch.where(caught > 0.5, -(from_top @ gain.T), along)
        if count == 1:
            drive = torch.cat([drive, torch.zeros_like(drive)], dim=1)
        limits = torch.tensor(design.limits, dtype=kind)
        drive = torch.minimum(torch.maximum(drive, -limits), limits)
        friction = torch.tensor(COULOMB, dtype=kind) * torch.atan(100.0 * speed)
        efforts = drive + friction + torch.tensor(VISCOUS, dtype=kind) * speed
        return efforts, torch.cat([speed, memory[:, 2:3] + 1.0, caught], dim=1)


def _wrapped(error: Tensor) -> Tensor:
    """A difference of states, with angles from -pi to pi."""
    turn = 2.0 * math.pi
    angles = error[:, :2]
    return torch.cat([angles - turn * torch.floor(angles / turn + 0.5), error[:, 2:]], dim=1)


_solve: Any = scipy.linalg
"""Its own annotations lack the Riccati equations."""


def _cost_to_go(a: Array, b: Array, q: Array, r: Array) -> Array:
    return np.asarray(_solve.solve_continuous_are(a, b, q, r), dtype=np.float64)


def _gains(design: Design, states: Array, efforts: Array, step_s: float) -> tuple[Array, Array, Array]:
    """The LQR's gain, the cost to go that decides when it takes over, and the gains along the trajectory."""
    driven = list(design.driven)
    at_top, effect = _linear(TOP, np.zeros(2))
    q = np.diag(design.lqr_q)
    alone = effect[:, [design.motor]]
    cost = _cost_to_go(at_top, alone, q, np.array([[design.lqr_r]]))
    both = effect[:, driven]
    r = design.lqr_r * np.eye(len(driven))
    lqr: Array = np.asarray(np.linalg.solve(r, both.T @ _cost_to_go(at_top, both, q, r)), np.float64)
    r, q = design.r * np.eye(len(driven)), np.diag(design.q)
    after = cost if design.final else q
    gains = np.zeros((len(states), len(driven), 4))
    for step in range(len(states) - 2, -1, -1):
        a, b = _linear(states[step], efforts[step])
        a, b = np.eye(4) + step_s * a, step_s * b[:, driven]
        gains[step] = np.linalg.solve(r + b.T @ after @ b, b.T @ after @ a)
        after = q + a.T @ after @ (a - b @ gains[step])
    return lqr, cost, gains


_MODEL: Any = board_model()
_DATA: Any = mujoco.MjData(_MODEL)


def _acceleration(state: Array, effort: Array) -> Array:
    _DATA.qpos[:], _DATA.qvel[:], _DATA.ctrl[:] = state[:2], state[2:], effort
    mujoco.mj_forward(_MODEL, _DATA)
    return np.array(_DATA.qacc)


def _linear(state: Array, effort: Array, step: float = 1e-5) -> tuple[Array, Array]:
    """A and B of the frictionless model's motion, by central differences."""
    a, b = np.zeros((4, 4)), np.zeros((4, 2))
    a[:2, 2:] = np.eye(2)
    for column, move in enumerate(step * np.eye(4)):
        a[2:, column] = (_acceleration(state + move, effort) - _acceleration(state - move, effort)) / (2.0 * step)
    for column, move in enumerate(step * np.eye(2)):
        b[2:, column] = (_acceleration(state, effort + move) - _acceleration(state, effort - move)) / (2.0 * step)
    return a, b


Piece = tuple[float, float, Array]
"""End, centre and coefficients of a cubic."""


def _smoothed(time: Array, values: Array) -> list[Piece]:
    return [
        (float(moments[-1]), float(moments.mean()), np.polyfit(moments - moments.mean(), part, DEGREE))
        for moments, part in zip(np.array_split(time, PIECES), np.array_split(values, PIECES), strict=True)
    ]


def _at(pieces: list[Piece], moments: Array) -> Array:
    index: list[int] = np.minimum(np.searchsorted([p[0] for p in pieces], moments), len(pieces) - 1).tolist()
    rows: list[Array] = []
    for moment, number in zip(moments.tolist(), index, strict=True):
        _, centre, coefficients = pieces[number]
        rows.append(np.vander([moment - centre], DEGREE + 1)[0] @ coefficients)
    return np.stack(rows)
