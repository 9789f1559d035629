"""The built-in robots against their published figures, typed in here a second time."""

import math

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sim.robots import home_qpos, load_robot

Array = NDArray[np.float64]

CARTPOLE = load_robot("cartpole")
PENDULUM = load_robot("double_pendulum")
UR10E = load_robot("ur10e")
GO2 = load_robot("go2")
SO101 = load_robot("so101")

ANGLES = st.floats(-3.0, 3.0)


def state(model: mujoco.MjModel, qpos: Array, qvel: Array | None = None) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    if qvel is not None:
        data.qvel[:] = qvel
    mujoco.mj_forward(model, data)
    return data


def mass_matrix(model: mujoco.MjModel, data: mujoco.MjData) -> Array:
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    return full


def body_tensor(model: mujoco.MjModel, body: str) -> Array:
    """Inertia about the centre of mass in the body frame."""
    b = model.body(body).id
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, model.body_iquat[b])
    turn = rotation.reshape(3, 3)
    return turn @ np.diag(model.body_inertia[b]) @ turn.T


def tensor(xx: float, xy: float, xz: float, yy: float, yz: float, zz: float) -> Array:
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


class TestCartpole:
    # Barto, Sutton, Anderson 1983: M = 1 kg, m = 0.1 kg, half-length l = 0.5 m, g = 9.81 m/s^2.
    @given(st.floats(-7.0, 7.0), st.floats(-5.0, 5.0), st.floats(-10.0, 10.0))
    def test_obeys_the_textbook_equations(self, theta: float, theta_dot: float, force: float) -> None:
        """(M + m) x'' + m l (th'' cos - th'^2 sin) = F;  (4/3) m l^2 th'' + m l x'' cos = m g l sin."""
        data = state(CARTPOLE.model, np.array([0.0, theta]), np.array([0.0, theta_dot]))
        data.ctrl[:] = force
        mujoco.mj_forward(CARTPOLE.model, data)
        left = np.array(
            [
                [1.1, 0.1 * 0.5 * math.cos(theta)],
                # The rod is 0.04 m thick to the eye only: its inertia is that of a thin one.
                [0.1 * 0.5 * math.cos(theta), 4.0 / 3.0 * 0.1 * 0.5**2],
            ]
        )
        right = np.array(
            [
                force + 0.1 * 0.5 * theta_dot**2 * math.sin(theta),
                0.1 * 9.81 * 0.5 * math.sin(theta) - 0.000002 * theta_dot,
            ]
        )
        np.testing.assert_allclose(data.qacc, np.linalg.solve(left, right), rtol=1e-5, atol=1e-5)

    def test_hangs_at_home_within_its_track_and_force(self) -> None:
        slider, pole = CARTPOLE.spec.joints
        assert (slider.kind, slider.position_lower, slider.position_upper) == ("prismatic", -2.4, 2.4)
        assert (slider.effort_limit, pole.effort_limit, pole.kind) == (10.0, 0.0, "continuous")
        assert pole.default_pos == pytest.approx(math.pi)
        data = state(CARTPOLE.model, home_qpos(CARTPOLE.model))
        assert np.abs(data.qacc).max() < 1e-12


class TestDoublePendulum:
    # model_parameters.yml of design C.1, model 1.0; I1 and I2 about the joint axes.
    M1, M2, L1, L2 = 0.5234602302310271, 0.6255677234174437, 0.2, 0.3
    R1, R2 = 0.2, 0.25569305436052964
    I1, I2 = 0.031887199591513114, 0.05086984812807257
    ROTOR = 6.287203962819607e-05 * 6.0**2

    @given(ANGLES, ANGLES)
    def test_mass_matrix_is_the_published_one(self, q1: float, q2: float) -> None:
        coupling = self.M2 * self.L1 * self.R2 * math.cos(q2)
        expected = np.array(
            [
                [self.I1 + self.I2 + self.M2 * self.L1**2 + 2 * coupling + self.ROTOR, self.I2 + coupling],
                [self.I2 + coupling, self.I2 + self.ROTOR],
            ]
        )
        data = state(PENDULUM.model, np.array([q1, q2]))
        np.testing.assert_allclose(mass_matrix(PENDULUM.model, data), expected, rtol=0, atol=2e-8)

    @given(ANGLES, ANGLES, st.floats(-10, 10), st.floats(-10, 10))
    def test_gravity_and_coriolis_are_the_published_ones(self, q1: float, q2: float, v1: float, v2: float) -> None:
        g, h = 9.81, self.M2 * self.L1 * self.R2 * math.sin(q2)
        expected = [
            g * (self.M1 * self.R1 + self.M2 * self.L1) * math.sin(q1)
            + g * self.M2 * self.R2 * math.sin(q1 + q2)
            - h * (2 * v1 * v2 + v2**2),
            g * self.M2 * self.R2 * math.sin(q1 + q2) + h * v1**2,
        ]
        data = state(PENDULUM.model, np.array([q1, q2]), np.array([v1, v2]))
        np.testing.assert_allclose(data.qfrc_bias, expected, rtol=0, atol=1e-9)

    @given(ANGLES, ANGLES)
    def test_tip_is_where_the_published_kinematics_put_it(self, q1: float, q2: float) -> None:
        data = state(PENDULUM.model, np.array([q1, q2]))
        tip = data.site("ee").xpos - data.body("base").xpos
        x = self.L1 * math.sin(q1) + self.L2 * math.sin(q1 + q2)
        z = -self.L1 * math.cos(q1) - self.L2 * math.cos(q1 + q2)
        np.testing.assert_allclose(tip, [x, 0.0, z], atol=1e-12)

    def test_friction_is_the_limit_of_the_published_arctangent(self) -> None:
        np.testing.assert_allclose(PENDULUM.model.dof_frictionloss, np.array([0.16, 0.12]) * math.pi / 2, atol=1e-7)
        np.testing.assert_allclose(PENDULUM.model.dof_damping, [0.001, 0.001])

    def test_limits(self) -> None:
        for joint in PENDULUM.spec.joints:
            assert (joint.effort_limit, joint.velocity_limit, joint.default_pos) == (10.0, 20.0, 0.0)
            assert (joint.kind, joint.stiffness, joint.damping) == ("continuous", 0.0, 0.0)


class TestUr10e:
    # Universal Robots, "DH parameters for calculations of kinematics and dynamics", UR10e.
    A = (0.0, -0.6127, -0.57155, 0.0, 0.0, 0.0)
    D = (0.1807, 0.0, 0.0, 0.17415, 0.11985, 0.11655)
    ALPHA = (math.pi / 2, 0.0, 0.0, math.pi / 2, -math.pi / 2, 0.0)
    MASS = (7.369, 13.051, 3.989, 2.1, 1.98, 0.615)
    COM = ((0.021, 0, 0.027), (0.38, 0, 0.158), (0.24, 0, 0.068), (0, 0.007, 0.018), (0, 0.007, 0.018), (0, 0, -0.026))
    TENSOR = (
        tensor(0.03408, 0.00002, -0.00425, 0.03529, 0.00008, 0.02156),
        tensor(0.02814, 0.00005, -0.01561, 0.77068, 0.00002, 0.76943),
        tensor(0.01014, 0.00008, 0.00916, 0.30928, 0.0, 0.30646),
        tensor(0.00296, -0.00001, 0.0, 0.00222, -0.00024, 0.00258),
        tensor(0.00296, -0.00001, 0.0, 0.00222, -0.00024, 0.00258),
        tensor(0.00040, 0.0, 0.0, 0.00041, 0.0, 0.00034),
    )
    LINKS = ("shoulder_link", "upper_arm_link", "forearm_link", "wrist_1_link", "wrist_2_link", "wrist_3_link")

    def frames(self, q: Array) -> list[Array]:
        """Denavit-Hartenberg frames in base_link, which is the controller's base turned by pi about z."""
        pose = np.diag([-1.0, -1.0, 1.0, 1.0])
        poses: list[Array] = []
        for theta, a, d, alpha in zip(q, self.A, self.D, self.ALPHA, strict=True):
            ct, s, ca, sa = math.cos(theta), math.sin(theta), math.cos(alpha), math.sin(alpha)
            step = [[ct, -s * ca, s * sa, a * ct], [s, ct * ca, -ct * sa, a * s], [0, sa, ca, d], [0, 0, 0, 1]]
            pose = pose @ np.array(step)
            poses.append(pose)
        return poses

    @given(st.lists(ANGLES, min_size=6, max_size=6))
    def test_forward_kinematics_are_those_of_the_dh_parameters(self, angles: list[float]) -> None:
        q = np.array(angles)
        data, flange = state(UR10E.model, q), self.frames(q)[-1]
        np.testing.assert_allclose(data.site("ee").xpos, flange[:3, 3], atol=1e-9)
        np.testing.assert_allclose(data.site("ee").xmat.reshape(3, 3), flange[:3, :3], atol=1e-9)

    def test_home_pose_holds_the_tool_down_in_front(self) -> None:
        # q = (0, -90, 90, -90, -90, 0) deg: x = 0.57155 + 0.11985, y = 0.17415, z = 0.1807 + 0.6127 - 0.11655.
        data = state(UR10E.model, home_qpos(UR10E.model))
        np.testing.assert_allclose(data.site("ee").xpos, [0.6914, 0.17415, 0.67685], atol=1e-12)
        np.testing.assert_allclose(data.site("ee").xmat.reshape(3, 3)[:, 2], [0, 0, -1], atol=1e-12)

    def test_stretched_arm_reaches_1_18_m_plus_the_wrist(self) -> None:
        data = state(UR10E.model, np.zeros(6))
        assert data.site("ee").xpos[0] == pytest.approx(0.6127 + 0.57155)

    @given(st.lists(ANGLES, min_size=6, max_size=6))
    @settings(max_examples=20)
    def test_masses_and_inertia_are_those_of_the_article(self, angles: list[float]) -> None:
        q = np.array(angles)
        data = state(UR10E.model, q)
        for link, frame, mass, com, published in zip(
            self.LINKS, self.frames(q), self.MASS, self.COM, self.TENSOR, strict=True
        ):
            b = UR10E.model.body(link).id
            assert UR10E.model.body_mass[b] == mass
            np.testing.assert_allclose(data.xipos[b], (frame @ [*com, 1.0])[:3], atol=1e-9)
            turn = data.ximat[b].reshape(3, 3)
            actual = turn @ np.diag(UR10E.model.body_inertia[b]) @ turn.T
            np.testing.assert_allclose(actual, frame[:3, :3] @ published @ frame[:3, :3].T, atol=1e-9)

    def test_limits_and_gains(self) -> None:
        joints = UR10E.spec.joints
        assert [j.name for j in joints] == [
            "shoulder_pan_joint",
            "shoulder_lift_joint",
            "elbow_joint",
            "wrist_1_joint",
            "wrist_2_joint",
            "wrist_3_joint",
        ]
        assert [j.effort_limit for j in joints] == [330, 330, 150, 54, 54, 54]
        assert [j.stiffness for j in joints] == [1320, 1320, 600, 216, 216, 216]
        np.testing.assert_allclose([j.damping for j in joints], [72.6636085] * 2 + [34.64101615] + [29.39387691] * 3)
        degrees = [math.degrees(j.velocity_limit or 0.0) for j in joints]
        np.testing.assert_allclose(degrees, [120, 120, 180, 180, 180, 180])
        upper = [math.degrees(j.position_upper or 0.0) for j in joints]
        np.testing.assert_allclose(upper, [360, 360, 180, 360, 360, 360])

    def test_servos_settle_at_8_ms_without_droop(self) -> None:
        spec = UR10E.model_spec.copy()
        spec.option.timestep = 0.008
        model = spec.compile()
        rng, home = np.random.default_rng(1), home_qpos(model)
        data = state(model, home)
        for _ in range(5):
            target = home + rng.uniform(-0.5, 0.5, 6)
            data.ctrl[:] = target
            for _ in range(375):
                mujoco.mj_step(model, data)
                assert np.abs(data.qvel).max() < 10.0
            np.testing.assert_allclose(data.qpos, target, atol=1e-3)
        assert abs(data.qfrc_actuator[1]) > 10.0, "the motors carry the arm's weight"


class TestGo2:
    # go2_description.urdf, front left leg; the others are its mirror images.
    LEGS = (("FL", 1, 1), ("FR", 1, -1), ("RL", -1, 1), ("RR", -1, -1))

    def test_masses_and_centres_of_mass(self) -> None:
        m = GO2.model
        assert m.body("base").mass[0] == 6.921
        np.testing.assert_allclose(m.body("base").ipos, [0.021112, 0, -0.005366])
        for leg, x, y in self.LEGS:
            masses = [float(m.body(f"{leg}_{part}").mass[0]) for part in ("hip", "thigh", "calf", "foot")]
            assert masses == [0.678, 1.152, 0.154, 0.04]
            np.testing.assert_allclose(m.body(f"{leg}_hip").ipos, [-0.0054 * x, 0.00194 * y, -0.000105])
            np.testing.assert_allclose(m.body(f"{leg}_thigh").ipos, [-0.00374, -0.0223 * y, -0.0327])
            np.testing.assert_allclose(m.body(f"{leg}_calf").ipos, [0.00548, -0.000975 * y, -0.115])
        # 6.921 + 4 (0.678 + 1.152 + 0.154 + 0.04).
        assert float(np.sum(m.body_mass)) == pytest.approx(15.017)

    def test_inertia_about_the_centres_of_mass(self) -> None:
        m = GO2.model
        base = tensor(0.02448, 0.00012166, 0.0014849, 0.098077, -3.12e-05, 0.107)
        np.testing.assert_allclose(body_tensor(m, "base"), base, atol=1e-9)
        for leg, x, y in self.LEGS:
            hip = tensor(0.00048, -3.01e-06 * x * y, 1.11e-06 * x, 0.000884, -1.42e-06 * y, 0.000596)
            thigh = tensor(0.00584, 8.72e-05 * y, -0.000289, 0.0058, 0.000808 * y, 0.00103)
            calf = tensor(0.00108, 3.4e-07 * y, 1.72e-05, 0.0011, 8.28e-06 * y, 3.29e-05)
            for part, expected in (("hip", hip), ("thigh", thigh), ("calf", calf)):
                np.testing.assert_allclose(body_tensor(m, f"{leg}_{part}"), expected, atol=1e-9)

    def test_limits_and_gains(self) -> None:
        joints = GO2.spec.joints
        names = [f"{leg}_{part}_joint" for leg in ("FL", "FR", "RL", "RR") for part in ("hip", "thigh", "calf")]
        assert [j.name for j in joints] == names
        assert [j.effort_limit for j in joints] == [23.7, 23.7, 45.43] * 4
        assert [j.velocity_limit for j in joints] == [30.1, 30.1, 15.7] * 4
        assert [j.stiffness for j in joints] == [20, 20, 40] * 4
        assert [j.damping for j in joints] == [1, 1, 2] * 4
        front, rear = (-1.5708, 3.4907), (-0.5236, 4.5379)
        thighs = [(j.position_lower, j.position_upper) for j in joints[1::3]]
        assert thighs == [front, front, rear, rear]
        assert {(j.position_lower, j.position_upper) for j in joints[0::3]} == {(-1.0472, 1.0472)}
        assert {(j.position_lower, j.position_upper) for j in joints[2::3]} == {(-2.7227, -0.83776)}
        assert GO2.spec.base == "floating"
        assert [s.name for s in GO2.spec.sensors[3:]] == ["imu_quat", "imu_ang_vel_b", "imu_lin_acc_b"]

    def test_stretched_leg_is_0_426_m_long(self) -> None:
        qpos = home_qpos(GO2.model)
        qpos[7:] = 0.0
        data = state(GO2.model, qpos)
        for leg, x, y in self.LEGS:
            foot = data.body(f"{leg}_foot").xpos - data.body("base").xpos
            np.testing.assert_allclose(foot, [0.1934 * x, (0.0465 + 0.0955) * y, -0.426], atol=1e-12)

    def test_stands_still_at_home(self) -> None:
        data = state(GO2.model, home_qpos(GO2.model))
        data.ctrl[:] = home_qpos(GO2.model)[7:]
        for _ in range(400):
            mujoco.mj_step(GO2.model, data)
        assert 0.28 < data.qpos[2] < 0.32
        assert np.abs(data.qvel).max() < 0.02
        upright = data.body("base").xmat.reshape(3, 3)[2, 2]
        assert upright > 0.999
        # The four feet carry 15.017 kg.
        weight = sum(contact_force(GO2.model, data, i) for i in range(data.ncon))
        assert data.ncon == 4
        assert weight == pytest.approx(15.017 * 9.81, rel=0.01)

    def test_an_imu_at_rest_measures_gravity_upwards(self) -> None:
        data = state(GO2.model, home_qpos(GO2.model))
        data.ctrl[:] = home_qpos(GO2.model)[7:]
        for _ in range(400):
            mujoco.mj_step(GO2.model, data)
        np.testing.assert_allclose(data.sensor("imu_lin_acc_b").data, [0, 0, 9.81], atol=0.2)
        np.testing.assert_allclose(data.sensor("imu_quat").data, [1, 0, 0, 0], atol=0.01)
        np.testing.assert_allclose(data.sensor("imu_ang_vel_b").data, [0, 0, 0], atol=0.02)


def contact_force(model: mujoco.MjModel, data: mujoco.MjData, contact: int) -> float:
    """Normal force of a contact [N]."""
    wrench = np.zeros(6)
    mujoco.mj_contactForce(model, data, contact, wrench)
    return float(wrench[0])


class TestSo101:
    # TheRobotStudio, Simulation/SO101/so101_new_calib.xml: mass [kg], then xx yy zz xy xz yz [kg·m²].
    @pytest.mark.parametrize(
        ("body", "mass", "inertia"),
        [
            ("shoulder_link", 0.100006, (8.3759e-05, 8.10403e-05, 2.39783e-05, 7.55525e-08, -1.16342e-06, 1.54663e-07)),
            (
                "upper_arm_link",
                0.103,
                (4.08002e-05, 0.000147318, 0.000142487, -1.97819e-05, -4.03016e-08, 8.97326e-09),
            ),
            ("lower_arm_link", 0.104, (2.87438e-05, 0.000159844, 0.00014529, 7.41152e-06, 1.26409e-06, -4.90188e-08)),
            ("wrist_link", 0.079, (3.68263e-05, 2.5391e-05, 2.1e-05, 1.7893e-08, -5.28128e-08, 3.6412e-06)),
            ("gripper_link", 0.087, (2.75087e-05, 4.33657e-05, 3.45059e-05, -3.35241e-07, -5.7352e-06, -5.17847e-08)),
            (
                "moving_jaw_link",
                0.012,
                (6.61427e-06, 1.89032e-06, 5.28738e-06, -3.19807e-07, -5.90717e-09, -1.09945e-07),
            ),
        ],
    )
    def test_masses_and_inertia(self, body: str, mass: float, inertia: tuple[float, ...]) -> None:
        xx, yy, zz, xy, xz, yz = inertia
        assert SO101.model.body(body).mass[0] == pytest.approx(mass)
        assert body_tensor(SO101.model, body) == pytest.approx(tensor(xx, xy, xz, yy, yz, zz), abs=2e-9)

    def test_joints_and_servos(self) -> None:
        joints = SO101.spec.joints
        assert [joint.name for joint in joints] == [
            *("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
        ]
        assert [joint.position_upper for joint in joints] == [1.91986, 1.74533, 1.69, 1.65806, 2.84121, 1.74533]
        # 30 kg·cm; an eighth of 998.22 N·m/rad; 60 degrees in 0.222 s.
        assert {joint.effort_limit for joint in joints} == {2.94}
        assert pytest.approx(2.94, abs=2e-3) == 0.3 * 9.80665
        for joint in joints:
            assert joint.stiffness == pytest.approx(998.22 / 8, rel=1e-3)
            assert joint.velocity_limit == pytest.approx(math.pi / 3 / 0.222, abs=0.02)

    def test_the_jaws_meet_when_closed_and_open_wide(self) -> None:
        model, between = SO101.model, np.zeros(6)
        gaps: list[float] = []
        for angle in (-0.174533, 0.8):
            data = state(model, np.array([0.0, 0.0, 0.0, 0.0, 0.0, angle]))
            jaws = model.geom("fixed_jaw").id, model.geom("moving_jaw").id
            gaps.append(mujoco.mj_geomDistance(model, data, *jaws, 0.2, between))
        assert gaps[0] < 0.005
        assert gaps[1] > 0.02
