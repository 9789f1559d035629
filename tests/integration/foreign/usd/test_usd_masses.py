"""Masses, shapes and contacts of a stage come back by OpenUSD's rules, or their prim is refused."""

import math
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import pytest

Made = Callable[..., str]
NONE = ""
CORNERS = [(0, 0, 0), (10, 0, 0), (0, 10, 0), (0, 0, 10)]
TETRAHEDRON = (
    f"point3f[] points = {CORNERS}\nint[] faceVertexCounts = [3, 3, 3, 3]\n"
    "int[] faceVertexIndices = [0, 2, 1, 0, 1, 3, 0, 3, 2, 1, 2, 3]"
)


def shape(kind: str, name: str, more: str = "", apis: str = "", at: str = "(0, 0, 0)") -> str:
    return (
        f'def {kind} "{name}" (prepend apiSchemas = ["PhysicsCollisionAPI"{apis}])\n{{\n{more}\n'
        f'double3 xformOp:translate = {at}\nuniform token[] xformOpOrder = ["xformOp:translate"]\n}}\n'
    )


def test_stated_numbers_are_taken_as_they_are_however_small(stages: Any, robot: Made, body: Made) -> None:
    """OpenUSD itself passes over moments below about 1e-5."""
    mass = (
        "float physics:mass = 0.012\npoint3f physics:centerOfMass = (0.1, 0.2, 0.3)\n"
        "float3 physics:diagonalInertia = (0.000001, 0.000002, 0.0000025)\n"
        f"quatf physics:principalAxes = ({math.sqrt(0.5)}, 0, 0, {math.sqrt(0.5)})"
    )
    part = shape("Mesh", "hull", TETRAHEDRON)
    model = stages.read(robot(body("link", mass=mass, more=part))).model
    assert model.body_mass[1] == pytest.approx(0.012, rel=1e-7)
    np.testing.assert_allclose(model.body_ipos[1], [0.1, 0.2, 0.3], rtol=1e-7)
    turned = np.zeros(9)
    mujoco.mju_quat2Mat(turned, model.body_iquat[1])
    axes = turned.reshape(3, 3)
    # The axes are turned by 90° about z.
    expected = np.diag([0.000002, 0.000001, 0.0000025])
    np.testing.assert_allclose(axes @ np.diag(model.body_inertia[1]) @ axes.T, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "sizes", "volume", "moments"),
    [
        ("Cube", "double size = 0.2", 0.008, [0.008 * 0.04 / 6] * 3),
        ("Sphere", "double radius = 0.1", 4 / 3 * math.pi * 1e-3, [4 / 3 * math.pi * 1e-3 * 0.4 * 0.01] * 3),
        (
            "Cylinder", "double radius = 0.1\ndouble height = 0.6\nuniform token axis = \"X\"", math.pi * 0.006,
            [math.pi * 0.006 * 0.005, *[math.pi * 0.006 * (0.0025 + 0.03)] * 2],
        ),
        (
            # A cylinder of 0.6 m and two halves of a ball, whose centres of mass are 0.3 + 0.0375 m from the middle,
            # and whose moment about those is 83/320 m r².
            "Capsule", "double radius = 0.1\ndouble height = 0.6", math.pi * 0.006 + 4 / 3 * math.pi * 1e-3,
            [
                *[
                    math.pi * 0.006 * 0.0325
                    + 4 / 3 * math.pi * 1e-3 * (83 / 320 * 0.01 + 0.3375**2)
                ] * 2,
                math.pi * 0.006 * 0.005 + 4 / 3 * math.pi * 1e-3 * 0.004,
            ],
        ),
    ],
)  # fmt: skip
def test_a_density_times_the_volume_is_the_mass(
    stages: Any, robot: Made, body: Made, kind: str, sizes: str, volume: float, moments: list[float]
) -> None:
    solid = body("link", mass="float physics:density = 500", more=shape(kind, "part", sizes))
    read = stages.read(robot(solid))
    assert read.model.body_mass[1] == pytest.approx(500 * volume, rel=1e-6)
    turned = read.data.ximat[1].reshape(3, 3)
    inertia = turned @ np.diag(read.model.body_inertia[1]) @ turned.T
    np.testing.assert_allclose(inertia, 500 * np.diag(moments), rtol=1e-6, atol=1e-6 * 500 * max(moments))


def test_without_a_density_a_shape_weighs_what_water_does(stages: Any, robot: Made, body: Made) -> None:
    """Two cubes of 10 cm, in a stage in centimetres: 1000 kg/m³, 2 kg, the centre of mass between them."""
    parts = shape("Cube", "one", "double size = 10") + shape("Cube", "two", "double size = 10", at="(40, 0, 0)")
    model = stages.read(robot(body("link", mass=NONE, more=parts)), metres=0.01).model
    assert model.body_mass[1] == pytest.approx(2.0, rel=1e-6)
    np.testing.assert_allclose(model.body_ipos[1], [0.2, 0, 0], rtol=1e-6, atol=1e-9)
    own = 0.01 / 6
    np.testing.assert_allclose(np.sort(model.body_inertia[1]), [2 * own, *[2 * own + 2 * 0.04] * 2], rtol=1e-6)
    np.testing.assert_allclose(model.geom("two").pos, [0.4, 0, 0], rtol=1e-6, atol=1e-9)


def test_kilograms_per_unit_is_read(stages: Any, robot: Made, body: Made) -> None:
    model = stages.read(robot(body("link")), more="    kilogramsPerUnit = 0.001\n").model
    assert model.body_mass[1] == pytest.approx(0.002, rel=1e-6)
    np.testing.assert_allclose(np.sort(model.body_inertia[1]), [1e-4, 2e-4, 2.5e-4], rtol=1e-6)


def test_a_density_that_is_not_stated_is_that_of_water_in_every_unit(stages: Any, robot: Made, body: Made) -> None:
    solid = robot(body("link", mass=NONE, more=shape("Cube", "box", "double size = 0.1")))
    assert stages.read(solid, more="    kilogramsPerUnit = 0.001\n").model.body_mass[1] == pytest.approx(1.0, rel=1e-6)


def test_a_scaled_body_scales_its_shapes(stages: Any, robot: Made) -> None:
    """A cube of 0.1 m at 0.5 m in a body twice as large: 8 kg at 1 m."""
    solid = (
        'def Xform "link" (prepend apiSchemas = ["PhysicsRigidBodyAPI"])\n{\nfloat3 xformOp:scale = (2, 2, 2)\n'
        'uniform token[] xformOpOrder = ["xformOp:scale"]\n'
        f"{shape('Cube', 'box', 'double size = 0.1', at='(0.5, 0, 0)')}\n}}"
    )
    model = stages.read(robot(solid)).model
    assert model.body_mass[1] == pytest.approx(8.0, rel=1e-6)
    np.testing.assert_allclose(model.body_ipos[1], [1, 0, 0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.body_inertia[1], [8 * 0.04 / 6] * 3, rtol=1e-5)
    np.testing.assert_allclose(model.geom("box").size, [0.1, 0.1, 0.1], rtol=1e-6)


def test_shapes_of_a_colliding_xform_collide(stages: Any, robot: Made, body: Made) -> None:
    """Isaac Sim's importers write so; MuJoCo's decoder lets such shapes pass through each other."""
    group = 'def Xform "collisions" (prepend apiSchemas = ["PhysicsCollisionAPI"])\n{\ndef Cube "box"\n{\n}\n}\n'
    read = stages.read(robot(body("link", more=group + 'def Cube "seen"\n{\n}\n')))
    assert [int(read.model.geom(name).contype[0]) for name in ("box", "seen")] == [1, 0]
    assert read.decisions["collisions"] == "of an Xform are those of the shapes below it: /robot/link/collisions"
    assert stages.refusal(robot(body("link", mass="float physics:mass = 1", more=group))) == (
        "/robot/link: leaves its mass to the box /robot/link/collisions/box; state physics:mass, centerOfMass, "
        "diagonalInertia"
    )


def test_a_mesh_lies_where_the_stage_has_it(stages: Any, robot: Made, body: Made) -> None:
    """In centimetres, twice as long along x and mirrored along y: its corners in the world are computed here."""
    mesh = (
        'def Mesh "hull" (prepend apiSchemas = ["PhysicsCollisionAPI"])\n{\n'
        f"{TETRAHEDRON}\nfloat3 xformOp:scale = (2, -1, 1)\n"
        "double3 xformOp:translate = (0, 0, 5)\n"
        'uniform token[] xformOpOrder = ["xformOp:translate", "xformOp:scale"]\n}\n'
    )
    read = stages.read(robot(body("link", (100, 0, 0), more=mesh)), metres=0.01)
    model, data = read.model, read.data
    turned = data.geom_xmat[0].reshape(3, 3)
    found = data.geom_xpos[0] + model.mesh_vert @ turned.T
    expected = [(1 + 0.02 * x, -0.01 * y, 0.05 + 0.01 * z) for x, y, z in CORNERS]
    for corner in expected:
        assert min(np.linalg.norm(found - corner, axis=1)) < 1e-7
    assert read.decisions["meshes"] == "collide as their convex hulls: /robot/link/hull"


def test_instances_weigh_what_their_prototype_does(stages: Any, robot: Made, body: Made) -> None:
    reference = 'def "part" (\ninstanceable = true\nadd references = </proto>\n)\n{\n}\n'
    proto = f'over "proto"\n{{\n{shape("Cube", "box", "double size = 0.1")}\n}}\n'
    model = stages.read(robot(body("link", mass=NONE, more=reference)) + proto).model
    assert model.body_mass[1] == pytest.approx(1.0, rel=1e-6)
    assert model.ngeom == 1
    assert model.geom("box").contype == 1


@pytest.mark.parametrize(
    ("mass", "inside", "message"),
    [
        (
            "", "",
            "/robot/link: has no mass or inertia, and no shape that gives one; state physics:mass, diagonalInertia",
        ),
        (
            "float physics:mass = 1\nfloat3 physics:diagonalInertia = (1, 1, 3)", "",
            "/robot/link: has moments of inertia 1, 1, 3 kg·m², which no body has",
        ),
        (
            "", shape("Mesh", "hull"),
            "/robot/link: leaves its mass to the mesh /robot/link/hull; state physics:mass, centerOfMass, "
            "diagonalInertia",
        ),
        ("float physics:mass = 1", shape("Cone", "tip"), "/robot/link/tip: is a Cone, no shape of MuJoCo's"),
        (
            "float physics:mass = 1", shape("Xform", "group"),
            "/robot/link/group: has PhysicsCollisionAPI, is a Xform and has no shape below it",
        ),
        (
            "bool physics:rigidBodyEnabled = 0", "",
            "/robot/link: is a rigid body that is not enabled; remove it, or its PhysicsRigidBodyAPI",
        ),
        (
            "float physics:mass = 1", shape("Plane", "ground"),
            "/robot/link/ground: is a plane on the rigid body /robot/link; MuJoCo has planes on the world only",
        ),
        (
            "float physics:mass = 1\nfloat3 physics:diagonalInertia = (1, 1, 1)",
            shape("Mesh", "hull", 'uniform token physics:approximation = "boundingCube"'),
            "/robot/link/hull: physics:approximation is 'boundingCube'; MuJoCo collides with convexHull",
        ),
    ],
)  # fmt: skip
def test_a_body_that_mujoco_does_not_have_is_refused(
    stages: Any, robot: Made, body: Made, mass: str, inside: str, message: str
) -> None:
    assert stages.refusal(robot(body("link", mass=mass, more=inside))) == message


def test_values_of_another_type_and_transforms_without_a_result_are_refused(
    stages: Any, robot: Made, body: Made
) -> None:
    assert stages.refusal(robot(body("link", mass="vec3 physics:diagonalInertia = (1, 2, 3)"))) == (
        "/robot/link.physics:diagonalInertia: has a value that is no float3"
    )
    scaled = 'float3 xformOp:scale = (0, 1, 1)\nuniform token[] xformOpOrder = ["xformOp:scale"]'
    flat = f'def Xform "link" (prepend apiSchemas = ["PhysicsRigidBodyAPI"])\n{{\n{scaled}\n}}'
    assert stages.refusal(robot(flat)).startswith("/robot/link: has a transform that ")


def test_sheared_mirrored_and_moving_frames_are_refused(stages: Any, robot: Made, body: Made) -> None:
    turned = (
        'def Xform "wide"\n{\nfloat3 xformOp:scale = (2, 1, 1)\nuniform token[] xformOpOrder = ["xformOp:scale"]\n'
        'def Xform "link" (prepend apiSchemas = ["PhysicsRigidBodyAPI"])\n{\nfloat xformOp:rotateZ = 30\n'
        'uniform token[] xformOpOrder = ["xformOp:rotateZ"]\n}\n}\n'
    )
    assert stages.refusal(robot(turned)) == (
        "/robot/wide/link: is sheared: a rotation within a scale that differs by axis"
    )
    mirrored = (
        'def Xform "link" (prepend apiSchemas = ["PhysicsRigidBodyAPI"])\n{\nfloat3 xformOp:scale = (-1, 1, 1)\n'
        'uniform token[] xformOpOrder = ["xformOp:scale"]\n}\n'
    )
    assert stages.refusal(robot(mirrored)) == "/robot/link: is a mirrored rigid body (a negative scale)"
    moving = mirrored.replace(
        "float3 xformOp:scale = (-1, 1, 1)", "float3 xformOp:scale.timeSamples = {\n0: (1, 1, 1),\n1: (2, 2, 2),\n}"
    )
    assert stages.refusal(robot(moving)) == "/robot/link: moves with time; export the robot without its animation"


@pytest.fixture
def chain(robot: Made, body: Made, joint: Made) -> Made:
    """Three bodies with a ball each, a – b hinged, b – c welded, and more in the joint of a and b, and below /robot."""

    def made(
        hinge: str = "", more: str = "", apis: str = '"PhysicsArticulationRootAPI"', own: str = "", filtered: str = ""
    ) -> str:
        ball = shape("Sphere", "ball", "double radius = 0.1")
        return robot(
            own,
            body("a", more=ball + filtered, apis=', "PhysicsFilteredPairsAPI"' if filtered else ""),
            body("b", more=ball + shape("Sphere", "second", "double radius = 0.1")),
            body("c", more=ball),
            joint("Revolute", "hinge", ("a", "b"), more=hinge),
            joint("Fixed", "weld", ("b", "c")),
            more,
            apis=apis,
        )

    return made


def touching(read: Any) -> set[frozenset[str]]:
    """Pairs of bodies in contact; all balls are in one place."""
    data = read.data
    return {
        frozenset(read.model.body(int(read.model.geom_bodyid[geom])).name for geom in contact.geom)
        for contact in (data.contact[row] for row in range(data.ncon))
    }


def test_bodies_of_a_joint_pass_through_each_other_unless_it_lets_them_touch(stages: Any, chain: Made) -> None:
    assert touching(stages.read(chain())) == {frozenset("ac")}
    assert touching(stages.read(chain(hinge="bool physics:collisionEnabled = 1"))) == {frozenset("ab"), frozenset("ac")}


def test_self_collisions_switched_off_are_off(stages: Any, chain: Made) -> None:
    off = chain(
        own="bool physxArticulation:enabledSelfCollisions = 0",
        apis='"PhysicsArticulationRootAPI", "PhysxArticulationAPI"',
    )
    assert touching(stages.read(off)) == set()


def test_filtered_pairs_of_bodies_pass_through_each_other(stages: Any, chain: Made) -> None:
    pair = "rel physics:filteredPairs = </robot/{}>"
    assert touching(stages.read(chain(filtered=pair.format("c")))) == set()
    assert stages.refusal(chain(filtered=pair.format("b/ball"), hinge="bool physics:collisionEnabled = 1")) == (
        "/robot/a: keeps /robot/a/ball and /robot/b/ball apart, and not all shapes of their bodies"
    )
    assert stages.refusal(chain(filtered=pair.format("d"))) == (
        "/robot/a: has a filtered pair with /robot/d, and one of the two has no shape"
    )


def test_collision_groups_are_read(stages: Any, chain: Made) -> None:
    groups = "".join(
        f'def PhysicsCollisionGroup "g{name}"\n{{\nrel collection:colliders:includes = </robot/{name}>\n{filters}\n}}\n'
        for name, filters in (("a", "rel physics:filteredGroups = </robot/gc>"), ("c", ""))
    )
    assert touching(stages.read(chain(more=groups))) == set()


def test_friction_of_a_material_is_read_and_what_mujoco_lacks_named(stages: Any, robot: Made, body: Made) -> None:
    material = (
        'def Material "rubber" (prepend apiSchemas = ["PhysicsMaterialAPI"])\n{\nfloat physics:staticFriction = 0.9\n'
        "float physics:dynamicFriction = 0.7\nfloat physics:restitution = 0.1\nfloat newton:rollingFriction = 0.01\n}\n"
    )
    bound = shape(
        "Sphere", "foot", "rel material:binding:physics = </robot/rubber>", ', "MaterialBindingAPI"'
    )  # fmt: skip
    read = stages.read(robot(body("leg", more=bound + shape("Cube", "shin")), material))
    np.testing.assert_allclose(read.model.geom("foot").friction, [0.7, 0.005, 0.01], rtol=1e-7)
    assert read.decisions["friction"] == "is not stated, MuJoCo's 1 is taken: /robot/leg/shin"
    assert "newton" not in read.decisions
    assert read.decisions["restitution"] == (
        "and static friction are not read, the dynamic friction is, of /robot/rubber"
    )


def test_names_are_plain_where_they_are_unique(stages: Any, chain: Made) -> None:
    read = stages.read(chain())
    assert [read.model.geom(row).name for row in range(4)] == ["robot_a_ball", "robot_b_ball", "second", "robot_c_ball"]
    assert read.decisions["names"].endswith("unique: /robot/a/ball, /robot/b/ball, /robot/c/ball")
