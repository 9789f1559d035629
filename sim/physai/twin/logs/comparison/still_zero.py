"""Zeros of encoders at rest: what commands and positions differ by, against earlier recordings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np

from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_columns
from physai.twin.logs.checks.reading import sound_rows
from physai.twin.logs.raw_log import RawLog
from physai.twin.logs.robot_log import Array
from physai.twin.logs.signals.noise import still_stretches

LEAST_SHIFT = 0.005
"""Shift below which a zero counts as unchanged [rad or m]: friction holds a joint that far from its target."""
SIGNIFICANT = 3.0
"""Standard deviations that a shift must exceed."""


@dataclass(frozen=True, kw_only=True)
class ZeroShift:
    """Change of a joint's position at rest relative to its command."""

    joint: str
    unit: Literal["rad", "m"]
    shift: float
    """Command minus position, later minus earlier mean over stretches at rest [rad or m]."""
    std: float
    """Standard deviation of the shift, from the scatter of the stretches."""
    stretches: tuple[int, int]
    """Number of stretches at rest in earlier and later recordings."""
    tool_m: float | None
    """Motion of the end of the joint's chain that the shift makes in the mean pose [m]; None without a model."""

    @property
    def text(self) -> str:
        """The shift in words, with its 95 % interval."""
        factor, unit = (1e3, " mm") if self.unit == "m" else (float(np.rad2deg(1.0)), "°")
        tool = "" if self.tool_m is None or self.unit == "m" else f", {1e3 * self.tool_m:.1f} mm at the tool"
        return f"{self.joint}: {factor * self.shift:+.2f}{unit} ± {1.96 * factor * self.std:.2f}{unit}{tool}"

    @property
    def moved(self) -> bool:
        """Whether the shift is larger than friction and scatter explain."""
        return abs(self.shift) > max(LEAST_SHIFT, SIGNIFICANT * self.std)


def zero_shifts(later: Sequence[RawLog], earlier: Sequence[RawLog], robot: Robot | None) -> tuple[ZeroShift, ...]:
    """Compare recordings of one robot; joints without position commands, or without rest in both, are left out."""
    before, after = _at_rest(earlier), _at_rest(later)
    slides = {joint.name for log in later for joint in log.joints if joint.kind == "prismatic"}
    found: list[ZeroShift] = []
    for joint in after:
        if joint not in before:
            continue
        old, new = np.array(before[joint]), np.array(after[joint])
        # One stretch has no scatter of its own; that of both together is all there is to tell.
        squares = float(((old - old.mean()) ** 2).sum() + ((new - new.mean()) ** 2).sum())
        scatter = float(np.sqrt(squares / max(1, len(old) + len(new) - 2)))
        shift = float(new.mean() - old.mean())
        found.append(
            ZeroShift(
                joint=joint,
                unit="m" if joint in slides else "rad",
                shift=shift,
                std=scatter * float(np.sqrt(1.0 / len(old) + 1.0 / len(new))),
                stretches=(len(old), len(new)),
                tool_m=None if robot is None else abs(shift) * reach(robot, joint, _mean_pose(later, robot)),
            )
        )
    return tuple(found)


def _at_rest(logs: Sequence[RawLog]) -> dict[str, list[float]]:
    """Return command minus position of each stretch at rest, by joint."""
    found: dict[str, list[float]] = {}
    for raw in logs:
        log = sound_rows(raw)
        if log.command_kind != "joint_pos" or len(log.time) < 2:
            continue
        for number, name in enumerate(log.joint_names):
            command, position = log.command[:, number], log.joint_pos[:, number]
            parts = still_stretches(log.time, position, command) if log.driven[number] else []
            if parts:
                found.setdefault(name, []).extend(float((command[part] - position[part]).mean()) for part in parts)
    return found


def _mean_pose(logs: Sequence[RawLog], robot: Robot) -> Array:
    positions = [sound_rows(log).joint_pos for log in logs if log.joint_names == robot.spec.joint_names]
    home = np.array([joint.default_pos for joint in robot.spec.joints])
    return np.concatenate(positions).mean(axis=0) if positions else home


def reach(robot: Robot, joint: str, pose: Array) -> float:
    """Return how far the end of a joint's chain moves per change of the joint in a pose, shape (J,) [m/rad or 1]."""
    model: Any = robot.model
    data: Any = mujoco.MjData(model)
    columns, dofs = joint_columns(model, robot.spec)
    data.qpos[columns] = pose
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    dof, down, far = dofs.start + robot.spec.joint_names.index(joint), np.zeros((3, model.nv)), 0.0
    for body in range(1, model.nbody):
        mujoco.mj_jac(model, data, down, None, data.xipos[body], body)
        far = max(far, float(np.linalg.norm(down[:, dof])))
    return far
