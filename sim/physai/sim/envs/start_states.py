"""States in which episodes begin: those of the task, moved into the start envelope of its contract.

On a robot, a policy takes over only inside that envelope (`physai.sdk.safety.start`), and is judged for all of it.
"""

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from physai.sdk.contract.safety_envelope import StartEnvelope
from physai.sdk.safety.start import tilt
from physai.sim.engines.protocol import Array
from physai.sim.robots.checks.feet import lowest_touching
from physai.sim.robots.spec import has_floating_base, joint_columns
from physai.sim.tasks import rotations
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import ResetFunction, Task, Uniforms

STATES = 256
"""Number of states inside an envelope, of which each episode takes one; the task's reset draws its heading."""
SEED = 0x57A27
AT_REST = 0.5
"""Share of the ranges, around their middle, in which a robot at rest stands: its joints sag under its weight."""


def start_states(task: Task, *, at_rest: bool = False) -> tuple[ResetFunction, int]:
    """Return the reset of a task's episodes, and how many uniform numbers it needs.

    With a start envelope, positions of the joints that it names are drawn in their ranges and speeds below theirs, the
    base is tilted by up to its tilt, and lifted or lowered so that its lowest point stays as high as the task sets it.
    Everything else is as the task draws it. The states are computed once and on the host, as a device has no contacts
    before a step.

    Args:
        task: with the contract.
        at_rest: well inside the envelope, upright and with joints at rest, as a robot waits for its start.
    """
    start = task.contract.safety.start
    if start is None or not (start.joints or start.tilt):
        return task.reset, task.reset_draws
    states = _States(task, start, AT_REST if at_rest else 1.0)
    return states.reset, task.reset_draws + 1


class _States:
    """Table of states inside an envelope."""

    def __init__(self, task: Task, start: StartEnvelope, share: float) -> None:
        model: Any = task.model
        self._task = task
        middle = np.array(task.reset(np.full((1, task.reset_draws), 0.5))[0][0], np.float64)
        position, velocity = joint_columns(model, task.contract.robot)
        rng = np.random.default_rng(SEED)
        qpos, qvel = np.tile(middle, (STATES, 1)), np.zeros((STATES, int(model.nv)))
        drawn, moving = np.zeros(len(middle)), np.zeros(int(model.nv))
        joints = {joint.name: (index, joint) for index, joint in enumerate(task.contract.robot.joints)}
        for one in start.joints:
            index, joint = joints[one.joint]
            lower = one.lower if joint.position_lower is None else max(one.lower, joint.position_lower)
            upper = one.upper if joint.position_upper is None else min(one.upper, joint.position_upper)
            centre, half = 0.5 * (lower + upper), 0.5 * share * (upper - lower)
            qpos[:, position.start + index] = rng.uniform(centre - half, centre + half, STATES)
            drawn[position.start + index] = 1.0
            speed = one.speed if share == 1.0 else 0.0
            if speed is not None:
                qvel[:, velocity.start + index] = rng.uniform(-speed, speed, STATES)
                moving[velocity.start + index] = 1.0
        self._floats = has_floating_base(model)
        lift = np.zeros(STATES)
        tilted = np.tile([1.0, 0.0, 0.0, 0.0], (STATES, 1))
        if self._floats:
            most = (start.tilt or 0.0) - tilt(middle[3:7]) if share == 1.0 else 0.0
            tilted = _tilts(max(0.0, most), rng)
            qpos[:, 3:7] = rotations.multiply(qpos[:, 3:7], tilted, np)
            lift = lowest_touching(model, middle) - np.array([lowest_touching(model, row) for row in qpos])
        self._qpos, self._qvel, self._tilted, self._lift = (Constant(one) for one in (qpos, qvel, tilted, lift))
        self._drawn, self._moving = Constant(drawn), Constant(moving)

    def reset(self, draw: Uniforms) -> tuple[Array, Array]:
        """Return positions (n, nq) and velocities (n, nv); the last uniform number selects the state."""
        xp: Any = array_namespace(draw)
        qpos, qvel = self._task.reset(draw[:, :-1])
        row = xp.astype(xp.floor(draw[:, -1] * STATES), xp.int64)
        drawn, moving = self._drawn.like(draw), self._moving.like(draw)
        qpos = qpos + drawn * (self._qpos.like(draw)[row] - qpos)
        qvel = qvel + moving * (self._qvel.like(draw)[row] - qvel)
        if not self._floats:
            return qpos, qvel
        height = qpos[:, 2:3] + self._lift.like(draw)[row][:, None]
        turned = rotations.multiply(qpos[:, 3:7], self._tilted.like(draw)[row], xp)
        return xp.concatenate([qpos[:, :2], height, turned, qpos[:, 7:]], axis=1), qvel


def _tilts(greatest: float, rng: np.random.Generator) -> Array:
    """Return rotations about horizontal axes by up to an angle [rad], quaternions wxyz, shape (STATES, 4)."""
    half, axis = 0.5 * rng.uniform(0.0, greatest, STATES), rng.uniform(-np.pi, np.pi, STATES)
    zero = np.zeros(STATES)
    return np.stack([np.cos(half), np.sin(half) * np.cos(axis), np.sin(half) * np.sin(axis), zero], axis=1)
