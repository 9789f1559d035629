"""Ten numbers of a body: by hand, and for any choice a body that can exist."""

from typing import Any

import mujoco
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sim.robots import Robot
from physai.twin.calibration.fit.links import outside_links
from physai.twin.model.twin_file import FittedParameter
from physai.twin.parameters import inertia

Array = NDArray[np.float64]


@st.composite
def bodies(draw: st.DrawFn) -> Array:
    spread = [draw(st.floats(0.01, 0.5)) for _ in range(3)]
    shear = [draw(st.floats(-0.3, 0.3)) for _ in range(3)]
    centre = [draw(st.floats(-1.0, 1.0)) for _ in range(3)]
    return np.array([draw(st.floats(0.01, 50.0)), *centre, *spread, *shear])


def test_numbers_of_a_body_by_hand(pendulum: Robot) -> None:
    """I = 0.1 kg·m² about every axis, so tr(I)/2 - I = 0.05 = m·spread², spread = sqrt(0.05/2) = 0.158114 m."""
    body = int(pendulum.model.body("arm").id)
    expected = [2.0, 0.0, 0.0, -0.5, *[0.158114] * 3, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(inertia.numbers(pendulum.model, body), expected, atol=1e-6)


def test_fields_by_hand() -> None:
    """3 kg that reach 0.1, 0.2 and 0.3 m: I = 3·(0.04 + 0.09), 3·(0.01 + 0.09), 3·(0.01 + 0.04)."""
    ten = np.array([[3.0, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.0, 0.0, 0.0]])
    mass, centre, principal, _ = inertia.fields(ten)
    assert mass[0] == 3.0
    assert centre[0].tolist() == [0.1, 0.2, 0.3]
    np.testing.assert_allclose(np.sort(principal[0]), [0.15, 0.3, 0.39])


@settings(deadline=None)
@given(bodies())
def test_every_choice_is_a_body_that_can_exist(ten: Array) -> None:
    _, _, principal, quat = inertia.fields(ten[None])
    a, b, c = principal[0]
    slack = 1e-9 * principal.max()
    assert principal.min() > 0.0
    assert a + b >= c - slack
    assert b + c >= a - slack
    assert a + c >= b - slack
    np.testing.assert_allclose(np.linalg.norm(quat[0]), 1.0, atol=1e-9)


@settings(deadline=None)
@given(ten=bodies())
def test_a_body_written_into_a_model_is_read_back(pendulum: Robot, ten: Array) -> None:
    model: Any = pendulum.model_spec.copy().compile()
    body = int(model.body("arm").id)
    mass, centre, principal, quat = inertia.fields(ten[None])
    model.body_mass[body], model.body_ipos[body] = mass[0], centre[0]
    model.body_inertia[body], model.body_iquat[body] = principal[0], quat[0]
    mujoco.mj_setConst(model, mujoco.MjData(model))
    np.testing.assert_allclose(inertia.numbers(model, body), ten, rtol=1e-6, atol=1e-5)


LINK = """
<mujoco><worldbody><body name="link" pos="0 0 1"><joint name="hinge" axis="0 1 0"/>
  <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.05" mass="1"/>
  <body name="tip" pos="0.1 0 -0.6"><joint axis="0 1 0"/><inertial pos="0 0 0" mass="0.1" diaginertia="1e-4 1e-4 1e-4"/>
  </body></body></worldbody></mujoco>"""


def test_the_box_of_a_link_contains_its_geoms_and_the_next_joint() -> None:
    """A capsule from 0 to -0.4 m of radius 0.05 m, and the next link at (0.1, 0, -0.6) m."""
    model: Any = mujoco.MjSpec.from_string(LINK).compile()
    box = inertia.extent(model, model.body("link").id)
    assert box is not None
    assert np.allclose(box, [[-0.05, -0.05, -0.6], [0.1, 0.05, 0.05]])
    assert inertia.extent(model, model.body("tip").id) is None


def test_a_centre_of_mass_beyond_its_link_is_said() -> None:
    model: Any = mujoco.MjSpec.from_string(LINK).compile()

    def com(link: str, value: float, *, identified: bool = True) -> FittedParameter:
        return FittedParameter(
            name=f"{link}.com_z",
            unit="m",
            prior=-0.2,
            prior_std=0.1,
            lower=-1.0,
            upper=1.0,
            value=value,
            std=0.01,
            identified=identified,
        )

    (note,) = outside_links((com("link", -0.7), com("tip", 9e-1)), model)
    assert note.startswith("link.com_z, -0.7 ± 0.02 m, is outside link, which reaches from -0.6 to 0.05 m")
    assert outside_links((com("link", -0.59), com("link", 0.5, identified=False)), model) == []
