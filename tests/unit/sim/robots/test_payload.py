"""Where a payload sits and what its weight does, computed by hand."""

import mujoco
import numpy as np
import pytest

from physai.sim.robots.payload import add_payload, moving_mass, payload_body

ARM = """<mujoco><option timestep="0.002" integrator="implicitfast"/><worldbody>
  <body name="link" gravcomp="1"><joint name="j" type="hinge" axis="0 1 0"/>
    <inertial pos="0.5 0 0" mass="2" diaginertia="0.1 0.1 0.1"/>
    <body name="hand" pos="0.5 0 0" gravcomp="1"><inertial pos="0 0 0" mass="1" diaginertia="0.01 0.01 0.01"/>
      {site}
      <body name="finger" gravcomp="1"><joint name="f" type="slide" axis="0 1 0"/>
        <inertial pos="0 0 0" mass="0.02" diaginertia="1e-5 1e-5 1e-5"/></body></body></body>
  </worldbody><actuator><position joint="j" kp="200" kv="40"/>
  <position joint="f" kp="200" kv="4"/></actuator></mujoco>"""


def compiled(text: str) -> mujoco.MjModel:
    return mujoco.MjSpec.from_string(text).compile()


def test_a_payload_sits_at_the_end_effector_and_not_on_a_finger() -> None:
    with_site = compiled(ARM.format(site='<site name="ee"/>'))
    assert with_site.body(payload_body(with_site)).name == "hand"
    without = compiled(ARM.format(site=""))
    assert without.body(payload_body(without)).name == "finger"
    assert moving_mass(with_site) == pytest.approx(3.02)


def test_what_carries_the_arm_does_not_carry_the_payload() -> None:
    model = compiled(ARM.format(site='<site name="ee"/>'))
    add_payload(model, payload_body(model), 0.8)
    data = mujoco.MjData(model)
    for _ in range(5000):
        mujoco.mj_step(model, data)
    # 0.8 kg · 9.81 m/s² · 0.5 m against 200 N·m/rad; the cosine of so small an angle is 1 within 0.02 %.
    assert data.qpos[0] == pytest.approx(0.8 * 9.81 * 0.5 / 200.0, rel=1e-3)
    assert data.qpos[1] == pytest.approx(0.0, abs=1e-6)
    assert np.isclose(model.body_mass[2], 1.8)
