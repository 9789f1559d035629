"""Ten numbers of a body: by hand, and for any choice a body that can exist."""

from typing import Any

import mujoco
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sim.robots import Robot
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
