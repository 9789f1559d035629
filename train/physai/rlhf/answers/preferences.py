"""Tastes: what a simulated teacher likes, as a weighted sum of named terms of a task. No code comes from outside."""

import math
from collections.abc import Callable, Mapping, Sequence

import mujoco
import numpy as np
import numpy.typing as npt

from physai.rlhf.answers.segment import REWARD, PreferenceError
from physai.sdk.base.errors import unknown_name
from physai.sim.engines.protocol import Array
from physai.sim.tasks import rotations
from physai.sim.tasks.arms.arm import TIP
from physai.sim.tasks.common import target_rate_squared, target_squared
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import Task, Term, WorldView

ELBOW = "elbow_height"
TILT = "tool_tilt"
DERIVED = ("xpos", "xquat")
"""Derived fields of the physics that the measures read."""
NEAR_M = 0.1
"""Distance at which `near_goal` is 1/e, and `speed_near_goal` that share of the speed."""
_DISTANCE = "position_error_m"
MAX_TERMS = 16


def joint_speed(view: WorldView) -> Array:
    """Euclidean norm of the joint velocities [rad/s, m/s]."""
    return view.xp.sqrt(view.xp.vecdot(view.joint_vel, view.joint_vel))


def command_size(view: WorldView) -> Array:
    """Euclidean norm of the commands, in joint units or N·m and N."""
    return view.xp.sqrt(target_squared(view))


def command_rate(view: WorldView) -> Array:
    """Euclidean norm of the change of the commands, per second."""
    return view.xp.sqrt(target_rate_squared(view))


def _near(distance: Term) -> dict[str, Term]:
    def near_goal(view: WorldView) -> Array:
        return view.xp.exp(-distance(view) / NEAR_M)

    def speed_near_goal(view: WorldView) -> Array:
        return joint_speed(view) * near_goal(view)

    return {"near_goal": near_goal, "speed_near_goal": speed_near_goal}


def _elbow(task: Task) -> Callable[[WorldView], Array] | None:
    """Height of the arm's third joint above the first [m]; None for a robot that is not an arm."""
    chains = task.contract.robot.chains
    names = [joint.name for joint in task.contract.robot.joints]
    if task.contract.robot.base != "fixed" or not chains or len(names) < 4:
        return None
    bodies = [int(task.model.jnt_bodyid[mujoco.mj_name2id(task.model, mujoco.mjtObj.mjOBJ_JOINT, n)]) for n in names]
    base, elbow = bodies[0], bodies[2]

    def elbow_height(view: WorldView) -> Array:
        position = view.derived["xpos"]
        return position[:, elbow, 2] - position[:, base, 2]

    return elbow_height


def _tilt(task: Task) -> Callable[[WorldView], Array] | None:
    """Angle between the z axis of an arm's end effector and straight down [rad]; None without the site `ee`."""
    site = mujoco.mj_name2id(task.model, mujoco.mjtObj.mjOBJ_SITE, TIP)
    if task.contract.robot.base != "fixed" or site < 0:
        return None
    body, turned = int(task.model.site_bodyid[site]), Constant(np.array(task.model.site_quat[site])[None])

    def tool_tilt(view: WorldView) -> Array:
        quat = rotations.multiply(view.derived["xquat"][:, body], turned.like(view.qpos), view.xp)
        # Of the rotation matrix R(q): -R[2, 2].
        return view.xp.arccos(view.xp.clip(2.0 * (quat[:, 1] ** 2 + quat[:, 2] ** 2) - 1.0, -1.0, 1.0))

    return tool_tilt


def measures(task: Task) -> dict[str, Term]:
    """The terms that a taste for a task may name, besides the task's own reward terms."""
    found: dict[str, Term] = {"joint_speed": joint_speed, "command_size": command_size, "command_rate": command_rate}
    if _DISTANCE in task.metrics:
        found.update(_near(task.metrics[_DISTANCE]))
    of_arms = {ELBOW: _elbow(task), TILT: _tilt(task)}
    found.update({name: measure for name, measure in of_arms.items() if measure is not None})
    return found


def term_names(task: Task) -> tuple[str, ...]:
    """Names of all terms of a task's segments: its reward, the weighted terms of it, and the measures."""
    return REWARD, *(f"{REWARD}.{name}" for name in task.rewards), *measures(task)


def parse_taste(given: str | Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """A taste from `NAME=WEIGHT,…`, or from weights by term.

    Raises:
        UnknownNameError: there is no such term.
        PreferenceError: it is malformed.
    """
    taste: dict[str, float] = {}
    parts = given.split(",") if isinstance(given, str) else [f"{name}={weight}" for name, weight in given.items()]
    for part in parts:
        name, _, weight = part.partition("=")
        name = name.strip()
        if name not in names:
            raise unknown_name("term", name[:64], names)
        try:
            taste[name] = float(weight)
        except ValueError:
            taste[name] = math.nan
        if not math.isfinite(taste[name]):
            raise PreferenceError(f"taste {part[:80]!r}: expected NAME=WEIGHT with a finite weight, as joint_speed=-1")
    if not len(taste) <= MAX_TERMS:
        raise PreferenceError(f"a taste has at most {MAX_TERMS} terms, got {len(taste)}")
    return taste


def rewards_of(
    terms: npt.NDArray[np.float32], names: Sequence[str], taste: Mapping[str, float]
) -> npt.NDArray[np.float64]:
    """Weighted sum of a segment's terms in each step, per second, (T,)."""
    weights = np.array([taste.get(name, 0.0) for name in names])
    return terms.astype(np.float64) @ weights
