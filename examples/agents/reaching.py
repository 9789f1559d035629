"""Joint positions for a pose of an arm's end effector: inverse kinematics of a contract's chain."""

from typing import Self, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from physai.sdk import ActionTerm, PolicyContract
from physai.train.models.kinematics import ForwardKinematics, pose_error

TOLERANCE = 1e-3
"""Greatest error of a solution in any component, m or rad."""
DAMPING = 0.05
"""Regularises the least squares near singular postures, where a joint would otherwise turn without bound."""
ITERATIONS = 100
STEP = 0.3
"""Greatest change of a joint in an iteration [rad]: the linearisation holds about so far."""

Vector = npt.NDArray[np.float64]


class Reach:
    """An arm whose joint positions are commanded, and a command that is a pose of its end effector."""

    def __init__(self, command: str, kinematics: ForwardKinematics, term: ActionTerm) -> None:
        """The chain's joints must be those of the term, in the robot's order."""
        self.command = command
        """Name of the command field that holds the target pose."""
        self._kinematics = kinematics
        self._lower: Vector = np.array(term.lower)
        self._upper: Vector = np.array(term.upper)

    @classmethod
    def of(cls, contract: PolicyContract) -> Self | None:
        """The reach of a contract's arm; None where the task has no target pose or commands no positions."""
        robot, terms = contract.robot, contract.action.terms
        goals = [term for term in contract.observation.terms if term.kind == "pose_error"]
        if len(goals) != 1 or len(terms) != 1 or terms[0].target_name != "joint_pos_target":
            return None
        if terms[0].joints != robot.joint_names:
            return None
        (chain,) = (chain for chain in robot.chains if chain.name == goals[0].chain)
        return cls(goals[0].source or "", ForwardKinematics(chain, robot.joint_names), terms[0])

    def solve(self, pose: Vector, start: Vector) -> Vector | None:
        """Joint positions [rad] that bring the end effector to a pose, found from a start by damped least squares.

        Args:
            pose: position [m] and unit quaternion wxyz in the base frame, shape (7,).
            start: joint positions to start from [rad], shape (joints,).

        Returns:
            Positions within the term's bounds, shape (joints,); None if none were found near the start.
        """
        target = torch.as_tensor(pose, dtype=torch.float32)[None]

        def error(joints: Tensor) -> Tensor:
            return pose_error(target, *self._kinematics(joints[None]))[0]

        joints: Vector = start.copy()
        for _ in range(ITERATIONS):
            at = torch.as_tensor(joints, dtype=torch.float32)
            residual: Vector = error(at).numpy().astype(np.float64)
            if np.abs(residual).max() < TOLERANCE:
                return joints
            jacobian: Vector = cast("Tensor", torch.func.jacrev(error)(at)).numpy().astype(np.float64)
            normal = jacobian @ jacobian.T + DAMPING**2 * np.abs(residual).max() * np.eye(6)
            solved = cast("Vector", np.linalg.solve(normal, residual))
            change: Vector = np.negative(jacobian.T @ solved)
            shorten = min(1.0, STEP / max(float(np.abs(change).max()), 1e-12))
            joints = np.clip(joints + shorten * change, self._lower, self._upper)
        return None
