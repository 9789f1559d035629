"""Quadruped walking at a commanded velocity, from joint sensors and IMU only.

Rewards and their weights follow common practice (unitree_rl_gym `legged_gym/envs/go2/go2_config.py`, MuJoCo Playground
`locomotion/go1/joystick.py`, mjlab's velocity task), reimplemented as pure functions of the state.
"""

import math
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
from array_api_compat import array_namespace

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import RobotSpec
from physai.sdk.contract.terms import (
    ActionSpec,
    CommandField,
    CommandSpec,
    ObservationSpec,
    ObservationTerm,
)
from physai.sim.engines.protocol import Array, Stage
from physai.sim.robots import Robot, home_qpos, load_robot
from physai.sim.tasks import rotations
from physai.sim.tasks.common import envelope, once, position_action, target_rate_squared, timing
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.sensor_ranges import plausible_ranges
from physai.sim.tasks.task import (
    Delay,
    Push,
    Randomise,
    RewardTerm,
    SensorModel,
    Success,
    Task,
    Term,
    Uniforms,
    WorldView,
)

COMMAND = "velocity_command"
FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
FOOT_RADIUS_M = 0.022
PHYSICS_DT, DECIMATION = 0.005, 4

GREATEST_COMMAND = (1.0, 0.5, 1.0)
"""Forward [m/s], left [m/s], yaw to the left [rad/s]; commands lie between minus and plus these values."""
_GREATEST = Constant(GREATEST_COMMAND)
STANDING_SHARE = 0.1
"""Fraction of zero commands."""
COMMAND_INTERVAL_S = 4.0
TOLERANCE_M_S, TOLERANCE_RAD_S = 0.3, 0.5
"""Tolerances of planar velocity and yaw rate, including the oscillation of a gait."""

ACTION_SCALE_RAD = 0.5
"""Twice the 0.25 rad of legged gyms, whose actions may exceed 1; here the graph bounds its output to [-1, 1]."""
SWING_HEIGHT_M = 0.08
"""Height of the foot's centre above the floor at mid-swing."""
BASE_HEIGHT_M = 0.29
"""Height of the base above the floor when walking; below the home pose's 0.32 m, as the servos are compliant."""
FALLEN_COS = 0.5
"""Cosine of the tilt beyond which the robot has fallen: 60°."""
FALLEN_HEIGHT_M = 0.16

MISMATCH_RAD = 0.4
"""Greatest difference between position and integrated velocity [rad]: twice the maximum of 0.19 rad in simulation with
random full-scale commands, pushes and falls. Foot impacts change velocities a lot within a control period of 20 ms."""
FROZEN_SAMPLES = 5
"""Number of equal samples that count as a frozen sensor: 0.1 s."""


class Quadruped:
    """Quantities used by the terms, in the base frame (x forward, z up), computed once per step."""

    def __init__(self, robot: Robot, model: Any) -> None:
        """Resolves names against the task's model."""
        joints = robot.spec.joints
        self.home = Constant([joint.default_pos for joint in joints])
        self.stiffness = Constant([joint.stiffness for joint in joints])
        self.damping = Constant([joint.damping for joint in joints])
        self.effort_limit = Constant([joint.effort_limit for joint in joints])
        self._foot_z = Constant([_sensor(model, f"{foot}_pos") + 2 for foot in FEET])
        self._foot_x_vel = Constant([_sensor(model, f"{foot}_vel") for foot in FEET])
        self._foot_y_vel = Constant([_sensor(model, f"{foot}_vel") + 1 for foot in FEET])

    def lin_vel(self, view: WorldView) -> Array:
        """Velocity of the base [m/s], shape (num_worlds, 3)."""
        return once(view, "lin_vel", lambda v: rotations.rotate_inverse(v.qpos[:, 3:7], v.qvel[:, :3], v.xp))

    def gravity(self, view: WorldView) -> Array:
        """Unit vector of gravity, shape (num_worlds, 3)."""
        return once(view, "gravity", _gravity)

    def foot_heights(self, view: WorldView) -> Array:
        """Heights of the feet's lowest points above the floor [m], shape (num_worlds, 4)."""
        # The sensors measure the centres of the spherical feet.
        return once(view, "foot_heights", lambda v: _columns(v.derived["sensordata"], self._foot_z) - FOOT_RADIUS_M)

    def foot_speeds(self, view: WorldView) -> Array:
        """Horizontal speeds of the feet over the floor [m/s], shape (num_worlds, 4)."""
        return once(view, "foot_speeds", self._foot_speeds)

    def foot_contacts(self, view: WorldView) -> Array:
        """1 where a foot is within 2 mm of the floor, else 0, shape (num_worlds, 4)."""
        return view.xp.astype(self.foot_heights(view) < 0.002, view.qpos.dtype)

    def efforts(self, view: WorldView) -> Array:
        """Torques of the position servos, clip(kp (u - q) - kd q', ±limit) [N·m], shape (num_worlds, 12)."""
        return once(view, "efforts", self._efforts)

    def _foot_speeds(self, view: WorldView) -> Array:
        data = view.derived["sensordata"]
        x, y = _columns(data, self._foot_x_vel), _columns(data, self._foot_y_vel)
        return view.xp.sqrt(x * x + y * y)

    def _efforts(self, view: WorldView) -> Array:
        like = view.joint_pos
        wanted = self.stiffness.like(like) * (view.target - view.joint_pos) - self.damping.like(like) * view.joint_vel
        return view.xp.clip(wanted, -self.effort_limit.like(like), self.effort_limit.like(like))


def _columns(data: Array, columns: Constant) -> Array:
    return array_namespace(data).take(data, columns.like(data), axis=1)


def _gravity(view: WorldView) -> Array:
    # Minus the third row of the rotation matrix of qpos[3:7], without its other six entries.
    w, x, y, z = (view.qpos[:, i] for i in range(3, 7))
    return view.xp.stack([2.0 * (w * y - x * z), -2.0 * (w * x + y * z), 2.0 * (x * x + y * y) - 1.0], axis=1)


def _sensor(model: Any, name: str) -> int:
    return int(model.sensor_adr[mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, name)])


def velocity_error(body: Quadruped) -> Term:
    """Distance between commanded and actual planar velocity [m/s]."""

    def error(view: WorldView) -> Array:
        gap = body.lin_vel(view)[:, :2] - view.commands[COMMAND][:, :2]
        return view.xp.sqrt(view.xp.vecdot(gap, gap))

    return error


def yaw_rate_error(view: WorldView) -> Array:
    """Magnitude of the turning rate's error [rad/s]."""
    # A free joint's angular velocity is in the body frame: column 5 is the turn about the base's own z axis.
    return view.xp.abs(view.qvel[:, 5] - view.commands[COMMAND][:, 2])


def has_fallen(body: Quadruped) -> Term:
    """True where the base is tilted by more than 60° or lower than 0.16 m."""
    return lambda view: (body.gravity(view)[:, 2] > -FALLEN_COS) | (view.qpos[:, 2] < FALLEN_HEIGHT_M)


def rewards(body: Quadruped) -> dict[str, RewardTerm]:
    """Weighted reward terms; tracking yields up to 3 per second, of which a good gait loses about 10 %."""
    error = velocity_error(body)

    def tilt(view: WorldView) -> Array:
        """Squared sine of the tilt [1]."""
        sideways = body.gravity(view)[:, :2]
        return view.xp.vecdot(sideways, sideways)

    def swing(view: WorldView) -> Array:
        """Σ over feet of horizontal speed times the distance from the swing height [m²/s]."""
        gap = view.xp.abs(body.foot_heights(view) + FOOT_RADIUS_M - SWING_HEIGHT_M)
        return (gap * body.foot_speeds(view)).sum(axis=1)

    def slip(view: WorldView) -> Array:
        """Σ over touching feet of squared horizontal speed [m²/s²]."""
        return (body.foot_contacts(view) * body.foot_speeds(view) ** 2).sum(axis=1)

    terms: dict[str, tuple[Term, float]] = {
        "track_velocity": (lambda v: v.xp.exp(-(error(v) ** 2) / 0.25), 2.0),
        "track_yaw_rate": (lambda v: v.xp.exp(-(yaw_rate_error(v) ** 2) / 0.25), 1.0),
        "vertical_velocity": (lambda v: body.lin_vel(v)[:, 2] ** 2, -2.0),
        "roll_pitch_rate": (lambda v: v.xp.vecdot(v.qvel[:, 3:5], v.qvel[:, 3:5]), -0.05),
        "tilt": (tilt, -2.0),
        "height": (lambda v: (v.qpos[:, 2] - BASE_HEIGHT_M) ** 2, -10.0),
        "effort": (lambda v: v.xp.vecdot(body.efforts(v), body.efforts(v)), -1e-4),
        "target_rate": (target_rate_squared, -5e-5),
        "pose": (lambda v: ((v.joint_pos - body.home.like(v.joint_pos)) ** 2).sum(axis=1), -0.1),
        "swing": (swing, -0.5),
        "slip": (slip, -0.1),
    }
    return {name: RewardTerm(term=term, weight=weight) for name, (term, weight) in terms.items()}


def critic_of(body: Quadruped) -> Callable[[WorldView], Array]:
    """Base velocities, height and gravity, command, joints and their commands, feet; shape (num_worlds, 57)."""

    def critic(view: WorldView) -> Array:
        # The factors bring all inputs to a magnitude of about 1.
        return view.xp.concatenate(
            [
                2.0 * body.lin_vel(view),
                0.5 * view.qvel[:, 3:6],
                10.0 * (view.qpos[:, 2:3] - BASE_HEIGHT_M),
                body.gravity(view),
                view.commands[COMMAND],
                view.joint_pos - body.home.like(view.joint_pos),
                0.05 * view.joint_vel,
                2.0 * (view.target - view.joint_pos),
                10.0 * body.foot_heights(view),
                body.foot_contacts(view),
            ],
            axis=1,
        )

    return critic


CRITIC_SIZE = 3 + 3 + 1 + 3 + 3 + 3 * 12 + 2 * len(FEET)
RESET_DRAWS = 1 + 12 + 6


def standing(home: Array) -> Callable[[Uniforms], tuple[Array, Array]]:
    """Home pose dropped from 3 cm, any heading, joints within 0.1 rad, base moving by up to 0.3 m/s and 0.3 rad/s."""
    place, joints = Constant(home[:3] + np.array([0.0, 0.0, 0.03])), Constant(home[7:])

    def reset(draw: Uniforms) -> tuple[Array, Array]:
        xp = array_namespace(draw)
        centre = 2.0 * draw - 1.0
        # Half of the yaw angle, which is uniform in ±π.
        half_yaw = 0.5 * math.pi * centre[:, :1]
        zero = 0.0 * half_yaw
        quat = [xp.cos(half_yaw), zero, zero, xp.sin(half_yaw)]
        start = place.like(draw) + 0.0 * centre[:, :3]
        qpos = xp.concatenate([start, *quat, joints.like(draw) + 0.1 * centre[:, 1:13]], axis=1)
        return qpos, xp.concatenate([0.3 * centre[:, 13:19], 0.0 * centre[:, 1:13]], axis=1)

    return reset


def draw_command(draw: Uniforms) -> dict[str, Array]:
    """Velocities uniform in their ranges, one in ten zero; needs four uniform numbers."""
    command = (2.0 * draw[:, :3] - 1.0) * _GREATEST.like(draw)
    return {COMMAND: array_namespace(draw).where(draw[:, 3:4] < STANDING_SHARE, 0.0, command)}


def _model(robot: Robot) -> Any:
    """The robot's model with fast solver settings and the sensors that the terms need."""
    spec = robot.model_spec.copy()
    spec.option.timestep = PHYSICS_DT
    # Ten iterations of PGS with elliptic cones match the contacts of 100 Newton iterations, at the cost of five Newton
    # iterations, with which feet bounce.
    spec.option.solver = mujoco.mjtSolver.mjSOL_PGS
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.iterations = 10
    spec.option.impratio = 10.0
    # No policy of this task reads the accelerometer, and it costs 5 % of the step time.
    spec.delete(spec.sensor("imu_lin_acc_b"))
    body = mujoco.mjtObj.mjOBJ_XBODY
    for foot in FEET:
        spec.add_sensor(name=f"{foot}_pos", type=mujoco.mjtSensor.mjSENS_FRAMEPOS, objtype=body, objname=foot)
        spec.add_sensor(name=f"{foot}_vel", type=mujoco.mjtSensor.mjSENS_FRAMELINVEL, objtype=body, objname=foot)
    return spec.compile()


def _accelerations(robot: RobotSpec, model: Any) -> list[float]:
    """Acceleration limits: full effort on the rotor inertia alone [rad/s²], an upper bound for any leg motion."""
    # Targets of a walking robot are equilibrium points of its servos, not trajectories, and may reverse within a
    # control period. These limits allow that, and HOLD still brakes within one or two periods.
    inertia = model.dof_armature[-len(robot.joints) :]
    return [round(float(joint.effort_limit / rotor), 1) for joint, rotor in zip(robot.joints, inertia, strict=True)]


def _contract(robot: Robot, model: Any) -> PolicyContract:
    spec = robot.spec
    lower = tuple(-x for x in GREATEST_COMMAND)
    command = CommandField(name=COMMAND, size=3, unit="m/s, m/s, rad/s", frame="b", lower=lower, upper=GREATEST_COMMAND)
    terms = (
        ObservationTerm(name="ang_vel", kind="sensor", source="imu_ang_vel_b", scale=0.25),
        ObservationTerm(name="gravity", kind="projected_gravity"),
        ObservationTerm(name="command", kind="command", source=COMMAND),
        ObservationTerm(name="joint_pos", kind="joint_pos_rel"),
        ObservationTerm(name="joint_vel", kind="sensor", source="joint_vel", scale=0.05),
        ObservationTerm(name="previous_action", kind="previous_action"),
    )
    return PolicyContract(
        task="go2-velocity",
        robot=spec,
        observation=ObservationSpec(terms=terms),
        action=ActionSpec(terms=(position_action(spec, scale=ACTION_SCALE_RAD, kind="joint_pos"),)),
        command=CommandSpec(fields=(command,)),
        timing=timing(PHYSICS_DT, DECIMATION, max_observation_age=3.0),
        safety=envelope(
            spec,
            parity_tolerance=0.01,
            acceleration=_accelerations(spec, model),
            # No limit on the following error: legs push against the floor with targets that they do not reach, up to
            # 2.2 rad away in simulation, more than the range of a hip.
            velocity_mismatch=[MISMATCH_RAD] * len(spec.joints),
            frozen_samples=FROZEN_SAMPLES,
            sensor_ranges=plausible_ranges(spec),
        ),
    )


def _randomisation(model: Any) -> tuple[Randomise, ...]:
    base = (int(model.body("base").id),)
    feet = tuple(int(model.geom(foot).id) for foot in FEET)
    imu = (int(model.site("imu").id),)
    return (
        Randomise(field="body_mass", operation="scale", lower=0.95, upper=1.05, together=("body_inertia",)),
        Randomise(field="body_mass", rows=base, operation="add", lower=-0.5, upper=2.0),
        Randomise(field="body_ipos", rows=base, columns=(0, 1, 2), operation="add", lower=-0.02, upper=0.02),
        Randomise(field="geom_friction", rows=feet, columns=(0,), operation="set", lower=0.4, upper=1.2, shared=True),
        # Gain and bias of a position servo are (kp, 0, 0) and (0, -kp, -kd): one factor for kp and kd.
        Randomise(field="actuator_gainprm", operation="scale", lower=0.9, upper=1.1, together=("actuator_biasprm",)),
        Randomise(field="actuator_forcerange", operation="scale", lower=0.85, upper=1.0),
        Randomise(field="dof_armature", operation="scale", lower=0.8, upper=1.2),
        Randomise(field="dof_damping", operation="scale", lower=0.5, upper=2.0),
        # Mounting of the IMU: up to 0.02 rad about each axis.
        Randomise(field="site_quat", rows=imu, columns=(1, 2, 3), operation="add", lower=-0.01, upper=0.01),
    )


def go2_velocity() -> Task:
    """Follow a commanded planar velocity on flat ground; 50 Hz, position servos, three commands in 12 s."""
    robot = load_robot("go2")
    model = _model(robot)
    body = Quadruped(robot, model)
    error = velocity_error(body)
    fallen = has_fallen(body)

    def follows(view: WorldView) -> Array:
        return (error(view) < TOLERANCE_M_S) & (yaw_rate_error(view) < TOLERANCE_RAD_S) & ~fallen(view)

    return Task(
        name="go2-velocity",
        summary="walk at a commanded velocity with a Go2",
        robot=robot,
        model=model,
        contract=_contract(robot, model),
        episode_length_s=3 * COMMAND_INTERVAL_S,
        reset=standing(home_qpos(model)),
        reset_draws=RESET_DRAWS,
        rewards=rewards(body),
        terminations={"fallen": fallen},
        success=Success(
            condition=follows,
            hold_s=1.0,
            text="within 0.3 m/s and 0.5 rad/s of the command throughout the last of 4 s, on its feet",
        ),
        critic=critic_of(body),
        critic_size=CRITIC_SIZE,
        command=draw_command,
        command_draws=4,
        command_interval_s=COMMAND_INTERVAL_S,
        stage=Stage.VELOCITY,
        derived=("sensordata",),
        sensors={
            "joint_pos": SensorModel(noise_std=0.005, bias=0.02),
            "joint_vel": SensorModel(noise_std=0.3),
            "imu_quat": SensorModel(noise_std=0.005),
            "imu_ang_vel_b": SensorModel(noise_std=0.1, bias=0.02),
        },
        action_delay=Delay(lower_s=0.0, upper_s=0.015),
        randomisation=_randomisation(model),
        # Pushes at 5 and 10 s are 1 and 2 s into a command and therefore miss its last, evaluated second.
        push=Push(interval_s=5.0, velocity=(0.5, 0.5, 0.2, 0.3, 0.3, 0.3, *[0.0] * 12)),
        metrics={"velocity_error_m_s": error, "yaw_rate_error_rad_s": yaw_rate_error},
    )
