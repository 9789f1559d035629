"""Additions to a robot with a floating base: shapes that touch the floor, a height, an IMU."""

import math

import mujoco
import numpy as np

from physai.sim.robots.checks.feet import lowest_touching
from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.spec import IMU_SENSORS, home_qpos

IMU_SITE = "imu"


def require_touch(spec: mujoco.MjSpec, decisions: Decisions) -> None:
    """Lets a floating robot without collision shapes touch the floor with what is drawn."""
    shapes = [geom for geom in spec.geoms if geom.type != mujoco.mjtGeom.mjGEOM_PLANE]
    if any(geom.contype or geom.conaffinity for geom in shapes):
        return
    for geom in shapes:
        geom.contype = 1
    decisions.add("collisions", "the file has no collision shapes, so the drawn ones touch the floor", "edit the file")


def stand_on_floor(spec: mujoco.MjSpec, decisions: Decisions) -> None:
    """Moves the floor below the robot's lowest point to height 0, and the robot with it."""
    floor = next((geom for geom in spec.geoms if geom.name == "physai_floor"), None)
    if floor is None:
        return
    model = spec.compile()
    raised = -lowest_touching(model, home_qpos(model))
    # A robot without shapes touches nothing, and has no lowest point.
    if not math.isfinite(raised) or abs(raised) < 1e-6:
        return
    base = next(joint for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_FREE).parent
    base.pos = np.asarray(base.pos) + np.array([0.0, 0.0, raised])
    floor.pos = [0.0, 0.0, 0.0]
    for key in spec.keys:
        if len(key.qpos) >= 3:
            qpos = np.array(key.qpos)
            qpos[2] += raised
            key.qpos = qpos
    decisions.add("height", f"raised by {raised:.3g} m, so that its lowest point touches the floor at home")


def add_imu(spec: mujoco.MjSpec, decisions: Decisions) -> None:
    """Gives a floating base what it lacks of the IMU that walking robots have."""
    present = {str(sensor.name) for sensor in spec.sensors}
    wanted = {name: kind for name, (kind, *_) in IMU_SENSORS.items() if name not in present}
    if not wanted:
        return
    base = next(joint for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_FREE).parent
    site, found = _imu_site(spec, base, {kind for kind, *_ in IMU_SENSORS.values()})
    for name, kind in wanted.items():
        spec.add_sensor(name=name, type=kind, objtype=mujoco.mjtObj.mjOBJ_SITE, objname=site)
    decisions.add("imu", found or f"at the origin of {base.name}", f"move the site {site} in the result")


def _imu_site(spec: mujoco.MjSpec, base: mujoco.MjsBody, kinds: set[int]) -> tuple[str, str]:
    """Return the site of the base's IMU, and why it is that; a new one at the base's origin without a reason."""
    sites = {str(site.name): site for site in spec.sites if site.name and _moves_with(site.parent, base)}
    for sensor in spec.sensors:
        if sensor.type in kinds and sensor.objtype == mujoco.mjtObj.mjOBJ_SITE and str(sensor.objname) in sites:
            return str(sensor.objname), f"where the file has its sensor {sensor.name or sensor.objname}"
    if IMU_SITE in sites:
        return IMU_SITE, "at the site of that name"
    name, taken = IMU_SITE, {str(site.name) for site in spec.sites}
    while name in taken:
        name = f"base_{name}"
    return str(base.add_site(name=name).name), ""


def _moves_with(body: mujoco.MjsBody, base: mujoco.MjsBody) -> bool:
    """Whether a body is the base, or welded to it."""
    while body.name != base.name:
        if list(body.joints) or body.name == "world":
            return False
        body = body.parent
    return True
