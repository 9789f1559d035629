"""Legged walking at a commanded velocity, from joint sensors and IMU only.

Rewards and their weights follow common practice (unitree_rl_gym `legged_gym/envs/go2/go2_config.py`, MuJoCo Playground
`locomotion/go1/joystick.py`, mjlab's velocity task), reimplemented as pure functions of the state.
"""

import math
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
from array_api_compat import array_namespace

from physai.sdk.base.errors import unknown_name
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import JointSpec
from physai.sdk.contract.terms import (
    ActionSpec,
    CommandField,
    CommandSpec,
    ObservationSpec,
    ObservationTerm,
    TimingSpec,
)
from physai.sim.engines.protocol import Array, Stage
from physai.sim.robots import Robot, home_qpos, load_robot
from physai.sim.robots.checks.feet import Foot
from physai.sim.robots.importing.timestep import stable_timestep
from physai.sim.robots.payload import moving_mass
from physai.sim.tasks.common import envelope, position_action, target_rate_squared, timing
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
from physai.sim.tasks.walking import biped
from physai.sim.tasks.walking.legged import Legged, Stature, add_feet, commanded, middle, require_legs
from physai.sim.tasks.walking.mean_velocity import mean_success
from physai.sim.tasks.walking.terrain import Terrain

COMMAND = "velocity_command"
TERRAIN = "terrain"
"""Preset with rough ground and stairs."""
PHYSICS_DT, DECIMATION = 0.005, 4
CONTROL_DT = 0.02
"""Control period [s], as far as the physics step divides it."""

GREATEST_COMMAND = (1.0, 0.5, 1.0)
"""Forward [m/s], left [m/s], yaw to the left [rad/s]; commands lie between minus and plus these values."""
STANDING_SHARE = 0.1
"""Fraction of zero commands."""
COMMAND_INTERVAL_S = 4.0
TOLERANCE_M_S, TOLERANCE_RAD_S = 0.3, 0.5
"""Tolerances of planar velocity and yaw rate, including the oscillation of a gait."""

ACTION_SCALE_RAD = 0.5
"""Twice the 0.25 rad of legged gyms, whose actions may exceed 1; here the graph bounds its output to [-1, 1]."""
LEAST_SCALE_RAD = 0.25
"""Of the stiffest servos."""
GO2 = Stature(base_height=0.29, fallen_height=0.16, clearance=0.058)
"""Below the home pose's 0.32 m, as the servos are compliant; the centre of a foot swings 0.08 m high."""
FALLEN_COS = 0.5
"""Cosine of the tilt beyond which the robot has fallen: 60°."""

MISMATCH_RAD = 0.4
"""Greatest difference between position and integrated velocity [rad]: twice the maximum of 0.19 rad in simulation with
random full-scale commands, pushes and falls. Foot impacts change velocities a lot within a control period of 20 ms."""
FROZEN_SAMPLES = 5
"""Number of equal samples that count as a frozen sensor: 0.1 s."""


def velocity_error(body: Legged) -> Term:
    """Distance between commanded and actual planar velocity [m/s]."""

    def error(view: WorldView) -> Array:
        gap = body.lin_vel(view)[:, :2] - view.commands[COMMAND][:, :2]
        return view.xp.sqrt(view.xp.vecdot(gap, gap))

    return error


def yaw_rate_error(view: WorldView) -> Array:
    """Magnitude of the turning rate's error [rad/s]."""
    # A free joint's angular velocity is in the body frame: column 5 is the turn about the base's own z axis.
    return view.xp.abs(view.qvel[:, 5] - view.commands[COMMAND][:, 2])


def has_fallen(body: Legged) -> Term:
    """True where the base is tilted by more than 60° or lower than a robot that has not fallen."""
    low = body.stature.fallen_height
    return lambda view: (body.gravity(view)[:, 2] > -FALLEN_COS) | (body.base_height(view) < low)


def rewards(body: Legged) -> dict[str, RewardTerm]:
    """Weighted reward terms; tracking yields up to 3 per second, of which a good gait loses about 10 %."""
    error = velocity_error(body)

    def tilt(view: WorldView) -> Array:
        """Squared sine of the tilt [1]."""
        sideways = body.gravity(view)[:, :2]
        return view.xp.vecdot(sideways, sideways)

    def swing(view: WorldView) -> Array:
        """Σ over feet of horizontal speed times the distance from the swing height [m²/s]."""
        gap = view.xp.abs(body.foot_heights(view) - body.stature.clearance)
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
        "height": (lambda v: (body.base_height(v) - body.stature.base_height) ** 2, -10.0),
        "effort": (lambda v: v.xp.vecdot(body.efforts(v), body.efforts(v)), -1e-4),
        "target_rate": (target_rate_squared, -5e-5),
        "pose": (lambda v: ((v.joint_pos - body.home.like(v.joint_pos)) ** 2).sum(axis=1), -0.1),
        "swing": (swing, -0.5),
        "slip": (slip, -0.1),
    }
    return {name: RewardTerm(term=term, weight=weight) for name, (term, weight) in terms.items()}


def critic_of(body: Legged) -> Callable[[WorldView], Array]:
    """Base velocities, height and gravity, command, joints and commands, feet; shape (num_worlds, `critic_size`)."""

    def critic(view: WorldView) -> Array:
        # The factors bring all inputs to a magnitude of about 1.
        return view.xp.concatenate(
            [
                2.0 * body.lin_vel(view),
                0.5 * view.qvel[:, 3:6],
                10.0 * (body.base_height(view)[:, None] - body.stature.base_height),
                body.gravity(view),
                view.commands[COMMAND],
                view.joint_pos - body.home.like(view.joint_pos),
                0.05 * view.joint_vel,
                2.0 * body.lag(view),
                10.0 * body.foot_heights(view),
                body.foot_contacts(view),
            ],
            axis=1,
        )

    return critic


def critic_size(joints: int, commands: int, feet: int) -> int:
    """Number of the critic's inputs for a robot with so many joints, commanded joints and feet."""
    return 3 + 3 + 1 + 3 + 3 + 2 * joints + commands + 2 * feet


def standing(
    home: Array, terrain: Terrain | None = None, *, spread: float = 1.0
) -> Callable[[Uniforms], tuple[Array, Array]]:
    """Home pose dropped from 3 cm, any heading, joints within 0.1 rad, base moving by up to 0.3 m/s and 0.3 rad/s.

    All these times `spread`, except the heading. Needs 7 uniform numbers and one for each joint; on terrain two more
    for the tile, of which the last says how hard.
    """
    place, joints = Constant(home[:3] + np.array([0.0, 0.0, 0.03 * spread])), Constant(home[7:])
    last = 1 + len(home) - 7

    def reset(draw: Uniforms) -> tuple[Array, Array]:
        xp = array_namespace(draw)
        centre = 2.0 * draw - 1.0
        # Half of the yaw angle, which is uniform in ±π.
        half_yaw = 0.5 * math.pi * centre[:, :1]
        zero = 0.0 * half_yaw
        quat = [xp.cos(half_yaw), zero, zero, xp.sin(half_yaw)]
        start = place.like(draw) + (
            0.0 * centre[:, :3] if terrain is None else terrain.start(draw[:, -2], draw[:, -1], xp)
        )
        qpos = xp.concatenate([start, *quat, joints.like(draw) + 0.1 * spread * centre[:, 1:last]], axis=1)
        return qpos, xp.concatenate([0.3 * spread * centre[:, last : last + 6], 0.0 * centre[:, 1:last]], axis=1)

    return reset


def commands(greatest: tuple[float, float, float]) -> Callable[[Uniforms], dict[str, Array]]:
    """Velocities uniform up to the greatest, one in ten zero; needs four uniform numbers."""
    limits = Constant(greatest)

    def draw_command(draw: Uniforms) -> dict[str, Array]:
        command = (2.0 * draw[:, :3] - 1.0) * limits.like(draw)
        return {COMMAND: array_namespace(draw).where(draw[:, 3:4] < STANDING_SHARE, 0.0, command)}

    return draw_command


def _model(robot: Robot, feet: tuple[Foot, ...], physics_dt: float, terrain: Terrain | None) -> Any:
    """The robot's model with fast solver settings and the sensors that the terms need."""
    spec = robot.model_spec.copy()
    spec.option.timestep = physics_dt
    # Ten iterations of PGS with elliptic cones match the contacts of 100 Newton iterations, at the cost of five Newton
    # iterations, with which feet bounce.
    spec.option.solver = mujoco.mjtSolver.mjSOL_PGS
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.iterations = 10
    spec.option.impratio = 10.0
    # No policy of this task reads the accelerometer, and it costs 5 % of the step time.
    accelerometer = spec.sensor("imu_lin_acc_b")
    if accelerometer is not None:
        spec.delete(accelerometer)
    add_feet(spec, robot.model, feet)
    if terrain is not None:
        terrain.add_to(spec)
    return spec.compile()


def _accelerations(robot: Robot, driven: tuple[str, ...]) -> list[float | None]:
    """Acceleration limits: full effort on the rotor inertia alone [rad/s²], an upper bound for any leg motion."""
    # Targets of a walking robot are equilibrium points of its servos, not trajectories, and may reverse within a
    # control period. These limits allow that, and HOLD still brakes within one or two periods.
    inertia = robot.model.dof_armature[-len(robot.spec.joints) :]
    return [
        round(float(joint.effort_limit / rotor), 1) if joint.effort_limit and rotor and joint.name in driven else None
        for joint, rotor in zip(robot.spec.joints, inertia, strict=True)
    ]


def _scales(joints: list[JointSpec]) -> list[float]:
    """Distance that an action moves each joint's target [rad]; the stiffer the servo, the less is enough."""
    saturating = [joint.effort_limit / joint.stiffness for joint in joints]
    return [round(min(ACTION_SCALE_RAD, max(LEAST_SCALE_RAD, angle)), 3) for angle in saturating]


def _contract(
    name: str, robot: Robot, feet: tuple[Foot, ...], greatest: tuple[float, float, float], timing: TimingSpec
) -> PolicyContract:
    spec, joints = robot.spec, commanded(robot, feet)
    driven = tuple(joint.name for joint in joints)
    seen = driven if len(feet) == 2 else None
    lower = tuple(-x for x in greatest)
    command = CommandField(name=COMMAND, size=3, unit="m/s, m/s, rad/s", frame="b", lower=lower, upper=greatest)
    terms = (
        ObservationTerm(name="ang_vel", kind="sensor", source="imu_ang_vel_b", scale=0.25),
        ObservationTerm(name="gravity", kind="projected_gravity"),
        ObservationTerm(name="command", kind="command", source=COMMAND),
        ObservationTerm(name="joint_pos", kind="joint_pos_rel", joints=seen),
        ObservationTerm(name="joint_vel", kind="sensor", source="joint_vel", joints=seen, scale=0.05),
        ObservationTerm(name="previous_action", kind="previous_action"),
    )
    return PolicyContract(
        task=name,
        robot=spec,
        observation=ObservationSpec(terms=terms),
        action=ActionSpec(terms=(position_action(spec, scale=_scales(joints), kind="joint_pos", names=driven),)),
        command=CommandSpec(fields=(command,)),
        timing=timing,
        safety=envelope(
            spec,
            parity_tolerance=0.01,
            acceleration=_accelerations(robot, driven),
            # No limit on the following error: legs push against the floor with targets that they do not reach, up to
            # 2.2 rad away in simulation, more than the range of a hip.
            velocity_mismatch=[MISMATCH_RAD] * len(spec.joints),
            frozen_samples=FROZEN_SAMPLES,
            sensor_ranges=plausible_ranges(spec),
        ),
    )


def _randomisation(robot: Robot, model: Any, feet: tuple[Foot, ...]) -> tuple[Randomise, ...]:
    # The task's model has the robot's bodies and shapes in the same order, but more sites.
    base, shapes = (int(model.jnt_bodyid[0]),), tuple(geom for foot in feet for geom in foot.geoms)
    imu = (int(model.sensor_objid[mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, "imu_quat")]),)
    mass = moving_mass(robot.model)
    return (
        Randomise(field="body_mass", operation="scale", lower=0.95, upper=1.05, together=("body_inertia",)),
        # -0.5 to 2 kg for the 15 kg of a Go2.
        Randomise(field="body_mass", rows=base, operation="add", lower=-mass / 30.0, upper=mass / 7.5),
        Randomise(field="body_ipos", rows=base, columns=(0, 1, 2), operation="add", lower=-0.02, upper=0.02),
        Randomise(field="geom_friction", rows=shapes, columns=(0,), operation="set", lower=0.4, upper=1.2, shared=True),
        # Gain and bias of a position servo are (kp, 0, 0) and (0, -kp, -kd): one factor for kp and kd.
        Randomise(field="actuator_gainprm", operation="scale", lower=0.9, upper=1.1, together=("actuator_biasprm",)),
        Randomise(field="actuator_forcerange", operation="scale", lower=0.85, upper=1.0),
        Randomise(field="dof_armature", operation="scale", lower=0.8, upper=1.2),
        Randomise(field="dof_damping", operation="scale", lower=0.5, upper=2.0),
        # Mounting of the IMU: up to 0.02 rad about each axis.
        Randomise(field="site_quat", rows=imu, columns=(1, 2, 3), operation="add", lower=-0.01, upper=0.01),
    )


def velocity_task(
    name: str, robot: Robot, *, stature: Stature, physics_dt: float, decimation: int, terrain: Terrain | None = None
) -> Task:
    """Follow a commanded planar velocity; position servos, three commands in 12 s.

    Args:
        name: task name.
        robot: a robot with a floating base, legs and an IMU.
        stature: how high it walks.
        physics_dt: physics time step [s].
        decimation: physics steps per control period.
        terrain: shape of the ground; None for flat. The policy does not see it.

    Raises:
        TaskError: the robot has no legs, no IMU, a fixed base or no position servos.
    """
    feet = require_legs(robot)
    model = _model(robot, feet, physics_dt, terrain)
    body = Legged(robot, model, feet, stature, terrain)
    error, fallen = velocity_error(body), has_fallen(body)
    joints, two_feet = len(robot.spec.joints), len(feet) == 2
    greatest = biped.GREATEST_COMMAND if two_feet else GREATEST_COMMAND
    # The middle of a step is known on flat ground only.
    mid_step = two_feet and terrain is None
    begin = standing(home_qpos(model), terrain, spread=biped.SPREAD if two_feet else 1.0)

    def follows(view: WorldView) -> Array:
        return (error(view) < TOLERANCE_M_S) & (yaw_rate_error(view) < TOLERANCE_RAD_S) & ~fallen(view)

    return Task(
        name=name,
        summary="walk at a commanded velocity" + ("" if terrain is None else " over rough ground and stairs"),
        robot=robot,
        model=model,
        contract=_contract(name, robot, feet, greatest, timing(physics_dt, decimation, max_observation_age=3.0)),
        episode_length_s=3 * COMMAND_INTERVAL_S,
        reset=begin,
        training_reset=biped.mid_step(robot, feet, begin) if mid_step else None,
        training_age=biped.mid_step_age if mid_step else None,
        reset_draws=joints + 7 + (0 if terrain is None else 2) + 3 * mid_step,
        harder=terrain is not None,
        least_command=biped.LEAST_COMMAND if two_feet else 1.0,
        rewards=rewards(body) | (biped.rewards(robot, body, feet, COMMAND) if two_feet else {}),
        terminations={"fallen": fallen},
        success=Success(
            condition=follows,
            hold_s=1.0,
            text="within 0.3 m/s and 0.5 rad/s of the command throughout the last of 4 s, on its feet",
        ),
        mean_success=mean_success(fallen, COMMAND, tolerance_m_s=TOLERANCE_M_S, tolerance_rad_s=TOLERANCE_RAD_S),
        critic=critic_of(body),
        critic_size=critic_size(joints, len(commanded(robot, feet)), len(feet)),
        command=commands(greatest),
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
        action_delay=Delay(lower_s=0.0, upper_s=3 * physics_dt),
        randomisation=_randomisation(robot, model, feet),
        # Pushes at 5 and 10 s are 1 and 2 s into a command and therefore miss its last, evaluated second.
        push=Push(interval_s=5.0, velocity=(0.5, 0.5, 0.2, 0.3, 0.3, 0.3, *[0.0] * joints)),
        metrics={"velocity_error_m_s": error, "yaw_rate_error_rad_s": yaw_rate_error},
        training=biped.TRAINING if two_feet else {},
    )


def go2_velocity() -> Task:
    """A Unitree Go2 with the settings that were tuned for it."""
    return velocity_task("go2-velocity", load_robot("go2"), stature=GO2, physics_dt=PHYSICS_DT, decimation=DECIMATION)


def velocity(robot: Robot | None = None, preset: str | None = None) -> Task:
    """Any legged robot with a floating base, position servos and an IMU; its home pose is how it stands.

    Args:
        robot: the robot; a Go2 if there is none.
        preset: `terrain` for rough ground and stairs up and down, from easy to hard as training goes on.
    """
    if preset not in (None, TERRAIN):
        raise unknown_name("preset of velocity", preset, [TERRAIN])
    robot = robot or load_robot("go2")
    feet = require_legs(robot)
    step = min(PHYSICS_DT, stable_timestep(robot.model))
    standing_height = float(home_qpos(robot.model)[2]) + middle(robot)
    return velocity_task(
        "velocity",
        robot,
        stature=Stature.of(standing_height, feet=len(feet)),
        physics_dt=step,
        decimation=max(1, round(CONTROL_DT / step)),
        terrain=None if preset is None else Terrain(standing_height),
    )
