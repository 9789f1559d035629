"""Which parameters a robot has, their priors and bounds by hand, and how values get into a model."""

import copy
import re
from pathlib import Path

import mujoco
import numpy as np
import pytest

from physai.sdk.base.errors import ModelError, UnknownNameError
from physai.sim import friction
from physai.sim.robots import Robot, load_robot
from physai.twin.parameters.parameters import Parameter, catalogue, channel, model_fields

PAGES = Path(__file__).parents[4] / "docs" / "explanation"


@pytest.mark.parametrize("name", ["double_pendulum", "go2", "xl330_pendulum"])
def test_every_parameter_is_explained(name: str) -> None:
    """By its name; of axes the first or last one."""
    text = "".join(
        (PAGES / f"{page}.md").read_text() for page in ("calibration", "friction-and-contact", "motors", "twin-sensors")
    )
    robot = load_robot(name)
    for drive in ("effort", "command"):
        for model in friction.MODELS:
            for parameter in catalogue(robot, drive, model, saturation=0.1, two_rates=True):
                what = re.sub("_[xyz]$", "_x", parameter.name.split(".")[-1]).replace("shear_xz", "shear_xy")
                whole = parameter.name if parameter.name.split(".")[0] in ("command", "joint_pos") else what
                assert f"`{whole}`" in text or f".{what}`" in text, parameter.name


def by_name(robot: Robot) -> dict[str, Parameter]:
    return {parameter.name: parameter for parameter in catalogue(robot, "effort")}


def test_priors_and_bounds_by_hand(pendulum: Robot) -> None:
    known = by_name(pendulum)
    mass, friction, armature = known["arm.mass"], known["hinge.friction"], known["hinge.armature"]
    assert (mass.prior, mass.lower, mass.upper, mass.unit) == (2.0, 1.0, 4.0, "kg")
    assert mass.prior_std == pytest.approx(0.03 * 2.0)
    # 2 % of 20 N·m is more than half of 0.2 N·m; 30 % of 20 N·m more than 5 times 0.2.
    assert (friction.prior, friction.prior_std, friction.lower) == pytest.approx((0.2, 0.4, 0.0))
    assert friction.upper == pytest.approx(6.0)
    # The hinge moves 0.1 + 2·0.5² + 0.05 = 0.65 kg·m²; 5 % of that is more than 30 % of 0.05.
    assert (armature.prior, armature.prior_std, armature.upper) == pytest.approx((0.05, 0.0325, 0.65))
    # Its size is the distance of its centre of mass, 0.5 m.
    assert known["arm.com_z"].prior_std == pytest.approx(0.05)
    assert "command.delay" not in known
    assert "command.delay" in {parameter.name for parameter in catalogue(pendulum, "command")}


@pytest.mark.parametrize("name", ["cartpole", "double_pendulum", "simple_pendulum", "xl330_pendulum", "ur10e"])
def test_every_prior_lies_within_its_bounds(name: str) -> None:
    robot = load_robot(name)
    for drive in ("effort", "command"):
        found = catalogue(robot, drive)
        assert len({parameter.name for parameter in found}) == len(found)
        for parameter in found:
            assert parameter.lower <= parameter.prior <= parameter.upper, parameter
            assert parameter.prior_std > 0.0, parameter


def test_values_get_into_the_fields_of_their_parameter_only(pendulum: Robot) -> None:
    names = ["arm.mass", "hinge.friction", "hinge.damping", "hinge.effort_gain", "hinge.pos_bias"]
    fields = model_fields(pendulum.model, names, np.array([[3.0, 0.4, 0.2, 1.1, 0.01], [1.5, 0.0, 0.3, 0.9, 0.02]]))
    body = int(pendulum.model.body("arm").id)
    assert fields["body_mass"][:, body].tolist() == [3.0, 1.5]
    assert fields["dof_frictionloss"][:, 0].tolist() == [0.4, 0.0]
    assert fields["dof_damping"].reshape(2, -1)[:, 0].tolist() == [0.2, 0.3]
    assert fields["actuator_gainprm"][:, 0, 0].tolist() == [1.1, 0.9]
    # At a constant spread the inertia follows the mass: 0.1·3/2 and 0.1·1.5/2.
    np.testing.assert_allclose(fields["body_inertia"][:, body], [[0.15] * 3, [0.075] * 3])
    assert "qpos0" not in fields


def test_a_servos_gain_and_limit_move_both_of_their_ends() -> None:
    robot = load_robot("xl330_pendulum")
    fields = model_fields(robot.model, ["servo.kp", "servo.kd", "servo.effort_limit"], np.array([[2.0, 0.1, 0.5]]))
    assert fields["actuator_gainprm"][0, 0, 0] == 2.0
    assert fields["actuator_biasprm"][0, 0, :3].tolist() == [0.0, -2.0, -0.1]
    assert fields["actuator_forcerange"][0, 0].tolist() == [-0.5, 0.5]


def test_friction_terms_start_without_effect_and_get_into_the_joints_user_data(pendulum: Robot) -> None:
    for model, terms in friction.MODELS.items():
        added = catalogue(pendulum, "effort", model)[len(catalogue(pendulum, "effort")) :]
        assert [parameter.name for parameter in added] == [f"hinge.{term}" for term in terms]
        nominal = copy.copy(pendulum.model)
        names, values = [p.name for p in added], np.array([[p.prior for p in added]])
        for name, rows in model_fields(nominal, names, values).items():
            getattr(nominal, name)[...] = rows[0]
        assert not friction.has_friction(nominal)
    found = {p.name: p for p in catalogue(pendulum, "effort", "full")}
    # 2 % and 30 % of 20 N·m.
    assert found["hinge.stribeck_friction"].prior_std == pytest.approx(0.4)
    assert found["hinge.stribeck_friction"].upper == pytest.approx(6.0)
    assert found["hinge.quadratic_motor"].unit == "1/(N·m)"
    fields = model_fields(pendulum.model, ["hinge.load_friction", "hinge.stribeck_speed"], np.array([[0.2, 0.5]]))
    assert set(fields) == {"jnt_user"}
    # Fs, vs, α, cm, ce, sm, se, qm, qe and the mark.
    assert fields["jnt_user"][0, 0, -10:-1].tolist() == [0.0, 0.5, 1.0, 0.2, 0.2, 0.0, 0.0, 0.0, 0.0]
    with pytest.raises(UnknownNameError, match="no friction model named 'stribek'"):
        catalogue(pendulum, "effort", "stribek")
    bare = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body><joint name="j"/><geom size="1"/></body></worldbody></mujoco>'
    )
    with pytest.raises(ModelError, match="joint j has no room for the parameter load_friction"):
        model_fields(bare.compile(), ["j.load_friction"], np.array([[0.2]]))


def test_a_measured_saturation_takes_the_place_of_a_servos_gain() -> None:
    robot = load_robot("xl330_pendulum")
    names = [parameter.name for parameter in catalogue(robot, "command")]
    found = {p.name: p for p in catalogue(robot, "command", saturation=0.8)}
    expected = [name.replace("servo.kp", "servo.saturation_error") for name in names]
    assert list(found) == [*expected[:-1], "servo.idle_speed", "command.delay"]
    assert (found["servo.idle_speed"].prior, found["servo.idle_speed"].prior_std) == pytest.approx((19.1, 1.91))
    saturation = found["servo.saturation_error"]
    assert (saturation.prior, saturation.prior_std) == pytest.approx((0.8, 0.016))
    assert saturation.unit == "rad"
    # 0.6 N·m at 0.8 rad, whichever of the two is written first.
    values = {"servo.effort_limit": 0.6, "servo.saturation_error": 0.8}
    for order in (list(values), list(values)[::-1]):
        fields = model_fields(robot.model, order, np.array([[values[name] for name in order]]))
        assert fields["actuator_gainprm"][0, 0, 0] == pytest.approx(0.75)
        assert fields["actuator_biasprm"][0, 0, 1] == pytest.approx(-0.75)
        assert fields["actuator_forcerange"][0, 0].tolist() == [-0.6, 0.6]


def test_a_motor_damps_at_least_as_much_as_the_voltage_that_it_induces() -> None:
    model = load_robot("xl330_pendulum").model
    names = ["servo.idle_speed", "servo.damping", "servo.effort_limit"]
    # At most 20 rad/s at 0.8 N·m: 0.04 N·m·s/rad; bearings and grease add to it.
    fields = model_fields(model, names, np.array([[20.0, 0.01, 0.8], [20.0, 0.05, 0.8]]))
    assert fields["dof_damping"].reshape(2, -1)[:, 0] == pytest.approx([0.04, 0.05])
    with pytest.raises(UnknownNameError):
        model_fields(model, ["knee.idle_speed"], np.array([[20.0]]))


def test_names_of_nothing_are_refused(pendulum: Robot) -> None:
    for name in ("leg.mass", "knee.friction", "hinge.kp_of_nothing"):
        with pytest.raises(UnknownNameError):
            model_fields(pendulum.model, [name], np.array([[1.0]]))


def test_what_lies_between_robot_and_log() -> None:
    found = channel(("a", "b"), ["command.delay", "b.effort_bias"], np.array([[0.01, 0.2], [0.02, 0.3]]))
    assert found.delay_s.tolist() == [0.01, 0.02]
    assert found.effort_bias.tolist() == [[0.0, 0.2], [0.0, 0.3]]


def test_an_encoders_zero_is_no_parameter_of_the_robot(pendulum: Robot) -> None:
    for drive in ("effort", "command"):
        assert not [parameter for parameter in catalogue(pendulum, drive) if parameter.name.endswith(".pos_bias")]
    # Files of twins fitted when it was one can still be read.
    assert model_fields(pendulum.model, ["hinge.pos_bias"], np.array([[0.1]])) == {}
