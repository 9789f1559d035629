"""Joints and drives of a stage come back in SI, or their prim is refused."""

import math
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import pytest

from physai.sim.robots.importing.importer import import_robot

Made = Callable[..., str]
DEGREE = math.pi / 180.0


@pytest.fixture
def pendulum(robot: Made, body: Made, joint: Made) -> Made:
    """A base on the world and an arm, with a joint of the given type at 0.5 m above the arm's frame."""

    def made(kind: str = "Revolute", more: str = "", apis: str = "", **options: Any) -> str:
        return robot(
            body("base", (0, 0, 1)),
            body("arm", (0, 0, 0.5)),
            joint("Fixed", "weld", ("", "base"), places=((0, 0, 1), (0, 0, 0))),
            joint(kind, "swing", ("base", "arm"), places=((0, 0, 0), (0, 0, 0.5)), more=more, apis=apis, **options),
        )

    return made


def drive(axis: str, **numbers: object) -> str:
    return "\n".join(
        f"uniform token drive:{axis}:physics:{name} = {value}" if name == "type"
        else f"float drive:{axis}:physics:{name} = {value}"
        for name, value in numbers.items()
    )  # fmt: skip


def test_a_drive_in_degrees_is_a_servo_in_radians(stages: Any, pendulum: Made) -> None:
    more = drive("angular", stiffness=2, damping=0.25, maxForce=7, targetPosition=30, targetVelocity=90)
    limits = "float physics:lowerLimit = -45\nfloat physics:upperLimit = 90\n"
    model = stages.read(pendulum(more=limits + more, apis='"PhysicsDriveAPI:angular"')).model
    assert (model.njnt, model.nu, model.joint("swing").type[0]) == (1, 1, mujoco.mjtJoint.mjJNT_HINGE)
    np.testing.assert_allclose(model.jnt_range[0], [-math.pi / 4, math.pi / 2], rtol=1e-7)
    # Torque [N·m] = 2/° · (target − position) + 0.25 s/° · (90°/s − velocity).
    stiffness, damping = 2 / DEGREE, 0.25 / DEGREE
    np.testing.assert_allclose(model.actuator_gainprm[0, 0], stiffness, rtol=1e-7)
    np.testing.assert_allclose(model.actuator_biasprm[0, :3], [damping * 90 * DEGREE, -stiffness, -damping], rtol=1e-7)
    assert model.actuator_forcerange[0].tolist() == [-7, 7]
    np.testing.assert_allclose(model.key("home").ctrl, [30 * DEGREE], rtol=1e-7)


def test_a_pendulum_swings_as_the_equation_says(stages: Any, pendulum: Made) -> None:
    """Bob of 2 kg, 0.5 m below the axis y, moment 0.2 about its centre: θ'' = −m g l / (I + m l²) sin θ."""
    model = stages.read(pendulum()).model
    data = mujoco.MjData(model)
    data.qpos[0] = angle = 0.3
    mujoco.mj_forward(model, data)
    expected = -2 * 9.81 * 0.5 * math.sin(angle) / (0.2 + 2 * 0.25)
    assert data.qacc[0] == pytest.approx(expected, rel=1e-6)


def test_a_prismatic_joint_in_centimetres_is_one_in_metres(stages: Any, robot: Made, body: Made, joint: Made) -> None:
    """Stiffness is mass per s², maxForce mass · length per s², length in cm."""
    more = drive("linear", stiffness=300, damping=5, maxForce=1000, targetPosition=4)
    limits = "float physics:lowerLimit = -10\nfloat physics:upperLimit = 20\n"
    slide = joint(
        "Prismatic", "slide", ("base", "cart"), axis="X", places=((0, 0, 30), (0, 0, 0)), more=limits + more,
        apis='"PhysicsDriveAPI:linear"',
    )  # fmt: skip
    weld = joint("Fixed", "weld", ("", "base"))
    read = stages.read(robot(body("base"), body("cart", (0, 0, 30)), weld, slide), metres=0.01)
    model = read.model
    np.testing.assert_allclose(read.data.body("cart").xpos, [0, 0, 0.3], atol=1e-9)
    np.testing.assert_allclose(model.jnt_range[0], [-0.1, 0.2], rtol=1e-7)
    np.testing.assert_allclose(model.actuator_biasprm[0, 1:3], [-300, -5], rtol=1e-7)
    np.testing.assert_allclose(model.actuator_forcerange[0], [-10, 10], rtol=1e-7)
    np.testing.assert_allclose(model.key("home").ctrl, [0.04], rtol=1e-7)
    # Inertia in kg·cm², gravity 981 cm/s² by default.
    np.testing.assert_allclose(model.body_inertia[2], [1e-5, 2e-5, 2.5e-5], rtol=1e-6)
    np.testing.assert_allclose(model.opt.gravity, [0, 0, -9.81], rtol=1e-6)


def test_a_drive_without_stiffness_holds_a_speed(stages: Any, pendulum: Made) -> None:
    more = drive("angular", damping=0.1, targetVelocity=180)
    model = stages.read(pendulum(more=more, apis='"PhysicsDriveAPI:angular"')).model
    np.testing.assert_allclose(model.actuator_gainprm[0, 0], 0.1 / DEGREE, rtol=1e-7)
    np.testing.assert_allclose(model.actuator_biasprm[0, :3], [0, 0, -0.1 / DEGREE], rtol=1e-7)
    np.testing.assert_allclose(model.key("home").ctrl, [math.pi], rtol=1e-7)
    assert not model.actuator_forcelimited[0]


def test_a_drive_that_exerts_nothing_limits_the_effort(stages: Any, pendulum: Made) -> None:
    """Policies for Isaac Sim that compute torques themselves leave such drives."""
    read = stages.read(pendulum(more=drive("angular", maxForce=8), apis='"PhysicsDriveAPI:angular"'))
    assert read.model.nu == 0
    assert read.model.jnt_actfrcrange[0].tolist() == [-8, 8]
    assert read.decisions["drives"] == (
        "without stiffness and damping leave their maxForce as the joint's limit of effort: /robot/swing"
    )


def test_a_joint_that_is_bent_in_the_stage_starts_bent(stages: Any, pendulum: Made) -> None:
    """The frame on the base is turned by −40° about y, so the joint stands at 40°, and the limits count from there."""
    half = 20 * DEGREE
    more = f"quatf physics:localRot0 = ({math.cos(half)}, 0, {-math.sin(half)}, 0)\n"
    more += "float physics:lowerLimit = 0\nfloat physics:upperLimit = 90\n"
    read = stages.read(pendulum(more=more))
    np.testing.assert_allclose(read.model.qpos0, [40 * DEGREE], rtol=1e-6)
    np.testing.assert_allclose(read.model.jnt_range[0], [0, math.pi / 2], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(read.data.body("arm").xpos, [0, 0, 0.5], atol=1e-7)


def test_a_joint_that_names_the_world_second_turns_the_other_way(
    stages: Any, robot: Made, body: Made, joint: Made
) -> None:
    """MuJoCo's decoder leaves such joints out, and lets the body fly."""
    hinge = joint("Revolute", "hinge", ("arm", ""), axis="X", places=((0, 0, 0.5), (0, 0, 1)))
    read = stages.read(robot(body("arm", (0, 0, 0.5)), hinge))
    assert read.model.njnt == 1
    np.testing.assert_allclose(read.data.xaxis[0], [-1, 0, 0], atol=1e-7)
    np.testing.assert_allclose(read.data.xanchor[0], [0, 0, 1], atol=1e-7)


def test_a_scaled_body_scales_its_joint_and_its_centre_of_mass(stages: Any, robot: Made, joint: Made) -> None:
    arm = """def Cube "arm" (prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI", "PhysicsCollisionAPI"])
    {
        double size = 1
        float physics:mass = 2
        point3f physics:centerOfMass = (0.25, 0, 0)
        float3 physics:diagonalInertia = (0.01, 0.02, 0.02)
        double3 xformOp:translate = (1, 0, 0)
        double3 xformOp:scale = (2, 0.1, 0.1)
        uniform token[] xformOpOrder = ["xformOp:translate", "xformOp:scale"]
    }"""
    read = stages.read(robot(arm, joint("Revolute", "hinge", ("", "arm"), places=((0, 0, 0), (-0.5, 0, 0)))))
    np.testing.assert_allclose(read.data.xanchor[0], [0, 0, 0], atol=1e-7)
    np.testing.assert_allclose(read.data.body("arm").xipos, [1.5, 0, 0], atol=1e-7)
    np.testing.assert_allclose(read.model.geom("arm").size, [1, 0.05, 0.05], rtol=1e-6)


def test_y_up_becomes_z_up(stages: Any, robot: Made, body: Made, joint: Made) -> None:
    scene = 'def PhysicsScene "scene"\n{\nvector3f physics:gravityDirection = (0, -1, 0)\n'
    scene += "float physics:gravityMagnitude = 5\n}\n"
    hinge = joint("Revolute", "hinge", ("", "arm"), axis="Z", places=((0, 2, 0), (0, 0, 0)))
    read = stages.read(robot(body("arm", (0, 2, 0)), hinge, scene), up="Y")
    np.testing.assert_allclose(read.data.body("arm").xpos, [0, 0, 2], atol=1e-9)
    np.testing.assert_allclose(read.data.xaxis[0], [0, -1, 0], atol=1e-7)
    np.testing.assert_allclose(read.model.opt.gravity, [0, 0, -5], atol=1e-9)
    read = stages.read(robot(body("arm"), scene), up="Y", metres=0.01)
    np.testing.assert_allclose(read.model.opt.gravity, [0, 0, -0.05], atol=1e-9)


def test_armature_of_newton_and_physx_is_read_and_the_rest_named(stages: Any, pendulum: Made) -> None:
    more = "float physxJoint:armature = 0.03\nfloat physxJoint:maxJointVelocity = 100\n"
    read = stages.read(pendulum(more=more, apis='"PhysxJointAPI"'))
    assert read.model.dof_armature[0] == pytest.approx(0.03, rel=1e-7)
    assert read.decisions["PhysxJointAPI"] == "is not read: physxJoint:maxJointVelocity of /robot/swing"
    more = "float newton:armature = 0.02\nfloat newton:damping = 0.1\nfloat newton:friction = 0.4\n"
    model = stages.read(pendulum(more=more, apis='"NewtonJointAPI"')).model
    assert model.dof_armature[0] == pytest.approx(0.02, rel=1e-7)
    assert float(np.ravel(model.dof_damping)[0]) == pytest.approx(0.1 / DEGREE, rel=1e-7)
    assert model.dof_frictionloss[0] == pytest.approx(0.4, rel=1e-7)


READ = "read are PhysicsRevoluteJoint, PhysicsPrismaticJoint, PhysicsFixedJoint"


@pytest.mark.parametrize(("kind", "name"), [("Spherical", "PhysicsSphericalJoint"), ("", "PhysicsJoint")])
def test_joints_that_the_decoder_drops_are_refused(stages: Any, pendulum: Made, kind: str, name: str) -> None:
    assert stages.refusal(pendulum(kind)) == f"/robot/swing: is a {name}; {READ}"


@pytest.mark.parametrize(
    ("more", "apis", "message"),
    [
        ("bool physics:jointEnabled = 0", "", "is not enabled (jointEnabled); remove it"),
        ("float physics:breakForce = 50", "", "breaks at physics:breakForce 50; MuJoCo's joints do not break"),
        ("float physics:lowerLimit = 10", "", "has the limits 10 … inf; read are none (-inf … inf), or lower < upper"),
        (
            drive("angular", stiffness=1, type='"acceleration"'),
            '"PhysicsDriveAPI:angular"',
            "has a drive of the type 'acceleration'; MuJoCo's actuators exert a force",
        ),
        ("", '"PhysicsDriveAPI:rotX"', "has PhysicsDriveAPI:rotX, which a PhysicsRevoluteJoint does not have"),
        ("", '"PhysicsLimitAPI:rotY"', "has PhysicsLimitAPI:rotY, which a PhysicsRevoluteJoint does not have"),
        (
            drive("angular", stiffness=-1),
            '"PhysicsDriveAPI:angular"',
            "has a drive with a negative stiffness, damping or maxForce (-57.2958, 0, inf)",
        ),
        ("", '"NewtonMimicAPI"', "has NewtonMimicAPI, which is not read and changes how the robot moves"),
    ],
)  # fmt: skip
def test_what_a_joint_of_mujoco_does_not_have_is_refused(
    stages: Any, pendulum: Made, more: str, apis: str, message: str
) -> None:
    assert stages.refusal(pendulum(more=more, apis=apis)) == f"/robot/swing: {message}"


def test_frames_that_do_not_meet_are_refused(stages: Any, robot: Made, body: Made, joint: Made) -> None:
    hinge = joint("Revolute", "hinge", ("", "arm"), places=((0, 0, 0.25), (0, 0, 0)))
    assert stages.refusal(robot(body("arm"), hinge)) == (
        "/robot/hinge: its frames on both bodies miss each other by 0.25 m and 0 rad, at most 0.0001 is read; move the "
        "bodies to where the joint holds them"
    )


def test_a_loop_of_joints_is_refused(stages: Any, robot: Made, body: Made, joint: Made) -> None:
    loop = robot(
        body("a"),
        body("b"),
        joint("Revolute", "one", ("a", "b")),
        joint("Revolute", "two", ("", "b")),
    )
    assert stages.refusal(loop).startswith("/robot/two: moves /robot/b, as /robot/one does: the joints make a loop")
    circle = robot(body("a"), body("b"), joint("Revolute", "one", ("a", "b")), joint("Revolute", "two", ("b", "a")))
    assert "is part of a loop of joints through /robot/" in stages.refusal(circle)


def test_a_kinematic_base_is_fixed_and_a_moved_one_refused(stages: Any, robot: Made, body: Made, joint: Made) -> None:
    still = "bool physics:kinematicEnabled = 1"
    read = stages.read(robot(body("base", more=still), body("arm"), joint("Revolute", "hinge", ("base", "arm"))))
    assert read.model.njnt == 1
    assert read.decisions["base"] == "is kinematic, and so fixed to the world: /robot/base"
    moved = robot(body("base"), body("arm", more=still), joint("Revolute", "hinge", ("base", "arm")))
    assert stages.refusal(moved) == "/robot/arm: is kinematic (kinematicEnabled), and moved by the joint /robot/hinge"


def test_two_articulations_are_refused(stages: Any, robot: Made, body: Made) -> None:
    other = body("other", apis=', "PhysicsArticulationRootAPI"')
    assert stages.refusal(robot(body("arm"), other)) == (
        "/robot/other: is a second articulation after /robot; export one robot to a file"
    )


def test_actuators_of_newton_are_refused(stages: Any, pendulum: Made) -> None:
    more = 'def NewtonActuator "motor"\n{\nrel newton:targets = [</robot/swing>]\n}\n'
    assert stages.refusal(pendulum() + more) == "/motor: is a NewtonActuator, which is not read"


@pytest.mark.parametrize(
    "schema", ["PhysxTendonAxisRootAPI:finger", "PhysicsDeformableBodyAPI", "PhysxMimicJointAPI:rotX"]
)
def test_schemas_that_move_a_robot_otherwise_are_refused(stages: Any, robot: Made, body: Made, schema: str) -> None:
    message = f"/robot/arm: has {schema}, which is not read and changes how the robot moves"
    assert stages.refusal(robot(body("arm", apis=f', "{schema}"'))) == message
    assert (
        stages.refusal(robot(body("arm"), 'def TetMesh "soft"\n{\n}')) == "/robot/soft: is a TetMesh, which is not read"
    )


@pytest.mark.parametrize("limited", [True, False])
def test_the_gains_of_a_drive_without_a_limit_are_replaced_and_that_is_said(
    stages: Any, pendulum: Made, limited: bool
) -> None:
    more = drive("angular", stiffness=2, damping=0.25, **({"maxForce": 7} if limited else {}))
    limits = "float physics:lowerLimit = -45\nfloat physics:upperLimit = 90\n"
    path = stages.write(pendulum(more=limits + more, apis='"PhysicsDriveAPI:angular"'))
    made = import_robot(path, stages.folder / "out")
    said = "gains: those that the file states for 1 joints are replaced [--servo none]" in made.decisions.lines()
    assert said is not limited
    assert (made.robot.spec.joints[0].stiffness == pytest.approx(2 / DEGREE, rel=1e-5)) is limited
