"""A robot's model with things beside it: boxes that stand still or move freely.

Their bodies and free joints come after those of the robot, so that every index of the robot's bodies, joints and
velocities is the same in the model with objects and without.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import ModelError
from physai.sdk.contract.robot import SensorField
from physai.sim.robots.loader import Robot
from physai.sim.robots.spec import TIP_SITE, posed

Array = npt.NDArray[np.float64]

_FINGER = 2
"""Contact bit of the ball at the tip, which touches boxes and not the robot that it is a part of."""

BASE_SITE = "physai_base"
"""Site in the base frame of a contract's chain: sensors of objects measure from it."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A box beside a robot, upright in the world frame."""

    name: str
    half_size: tuple[float, float, float]
    """Half edges [m]."""
    position: tuple[float, float, float]
    """Where its centre is, or starts [m]."""
    mass: float | None = None
    """Mass of one that moves [kg]; None for one that stands still."""
    friction: float = 1.0
    """Coefficient of sliding friction; of two bodies in contact, the greater one counts."""
    rgba: tuple[float, float, float, float] = (0.8, 0.8, 0.78, 1.0)
    """Colour and opacity."""

    @property
    def sensor(self) -> str:
        """Name of the sensor of its position."""
        return f"{self.name}_pos"

    @property
    def field(self) -> SensorField:
        """The position of its centre as a robot may measure it with a camera or markers, in the base frame."""
        return SensorField(name=self.sensor, size=3, unit="m", frame="b")


def with_objects(robot: Robot, boxes: Sequence[Box], *, physics_dt: float, finger_radius: float | None = None) -> Any:
    """The robot's compiled model with boxes, which touch each other and all of the robot that touches anything.

    Each box that moves has a sensor of its position in the base frame, named as `Box.sensor`.

    Args:
        robot: the robot; must have a site `ee`.
        boxes: those that stand still and those that move.
        physics_dt: physics time step [s].
        finger_radius: radius of a ball without mass at `ee` that touches the boxes [m]; None for no ball.

    Raises:
        ModelError: the model has a body or joint of that name, or a robot's index would change.
    """
    spec = robot.model_spec.copy()
    spec.option.timestep = physics_dt
    # A model of an arm alone may switch contacts off; its shapes say for themselves what touches.
    spec.option.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    _add_base(spec, robot.model)
    if finger_radius is not None:
        site = robot.model.site(TIP_SITE)
        body = spec.body(robot.model.body(int(robot.model.site_bodyid[site.id])).name)
        ball = body.add_geom(name="finger", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[finger_radius, 0.0, 0.0])
        ball.pos, ball.mass, ball.material, ball.rgba = site.pos, 0.0, "", (0.9, 0.4, 0.1, 1.0)
        ball.contype, ball.conaffinity = _FINGER, 0
    for box in boxes:
        _add(spec, box)
    try:
        model = spec.compile()
    except ValueError as error:
        raise ModelError(f"robot {robot.name} with {', '.join(box.name for box in boxes)}: {error}") from error
    _require_same_indices(robot, model)
    return model


def free_columns(model: Any, name: str) -> tuple[int, int]:
    """First column of a moving box in `qpos`, of seven, and in `qvel`, of six."""
    joint = model.joint(name).id
    return int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])


def is_object(model: Any, body: int) -> bool:
    """Whether a body belongs to something that moves freely beside the robot."""
    joint = int(model.body_jntadr[model.body_rootid[body]])
    return joint > 0 and int(model.jnt_type[joint]) == mujoco.mjtJoint.mjJNT_FREE


def base_pose(model: Any) -> tuple[Array, Array]:
    """Position [m] and rotation matrix of the base frame of an arm with a fixed base, in the world frame."""
    data = posed(model, model.qpos0)
    site = model.site(BASE_SITE).id
    return np.array(data.site_xpos[site]), np.array(data.site_xmat[site]).reshape(3, 3)


def _add_base(spec: mujoco.MjSpec, model: Any) -> None:
    """Marks the frame from which `kinematic_chain` counts: the root body's, the world's if that one moves."""
    body = int(model.site_bodyid[model.site(TIP_SITE).id])
    root = int(model.body_rootid[body])
    owner = spec.worldbody if int(model.body_jntnum[root]) else spec.body(model.body(root).name)
    owner.add_site(name=BASE_SITE, group=5)


def _add(spec: mujoco.MjSpec, box: Box) -> None:
    body = spec.worldbody.add_body(name=box.name, pos=box.position)
    # Whatever the robot's file sets by default for its own shapes does not apply here.
    geom = body.add_geom(name=box.name, type=mujoco.mjtGeom.mjGEOM_BOX, size=box.half_size)
    geom.material, geom.rgba = "", box.rgba
    geom.friction, geom.condim = (box.friction, 0.005, 0.0001), 4
    geom.contype, geom.conaffinity = 1, 1 | _FINGER
    if box.mass is None:
        return
    geom.mass = box.mass
    body.add_freejoint(name=box.name)
    spec.add_sensor(
        name=box.sensor,
        type=mujoco.mjtSensor.mjSENS_FRAMEPOS,
        objtype=mujoco.mjtObj.mjOBJ_BODY,
        objname=box.name,
        reftype=mujoco.mjtObj.mjOBJ_SITE,
        refname=BASE_SITE,
    )


def _require_same_indices(robot: Robot, model: Any) -> None:
    own = robot.model
    for count, name in ((own.nbody, "body"), (own.njnt, "joint"), (own.nu, "actuator")):
        before = [getattr(own, name)(i).name for i in range(count)]
        if [getattr(model, name)(i).name for i in range(count)] != before:
            raise ModelError(f"robot {robot.name}: the objects would renumber its {name} list")
