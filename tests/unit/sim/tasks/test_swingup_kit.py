"""The task `swingup` on robots that nobody prepared for it: what hangs, what stands, what is refused."""

import math

import numpy as np
import pytest

from physai.sdk.base.errors import TaskError
from physai.sim.envs.environment import Environment
from physai.sim.robots import load_robot
from physai.sim.tasks.pendulums.poles import find_poles
from physai.sim.tasks.registry import load_task


def test_poles_hang_and_stand_where_their_energy_is_least_and_greatest() -> None:
    cart = find_poles(load_robot("cartpole"))
    assert (cart.joints, cart.slides) == ((1,), (0,))
    assert abs(cart.hanging) == pytest.approx([0.0, math.pi])
    assert cart.upright == pytest.approx([0.0, 0.0])
    double = find_poles(load_robot("double_pendulum"))
    assert double.hanging == pytest.approx([0.0, 0.0], abs=1e-6)
    assert abs(double.upright) == pytest.approx([math.pi, 0.0], abs=1e-6)
    # 2 g (m1 r1 + m2 (l1 + r2)), from the identified parameters.
    assert double.energy == pytest.approx(2 * 9.81 * (0.52346023 * 0.2 + 0.62556772 * (0.2 + 0.25569305)), rel=1e-4)


def test_success_is_all_poles_upright() -> None:
    task = load_task("swingup", robot="double_pendulum")
    worlds = Environment(task, 4, seed=0)
    worlds.reset()
    up = np.array([[math.pi, 0.0], [-math.pi, 2.0 * math.pi], [math.pi, 0.5], [0.0, 0.0]])
    worlds.view.joint_pos[:] = up
    assert task.success.condition(worlds.view).tolist() == [True, True, False, False]


def test_robots_that_do_not_swing_are_refused_with_the_way_out() -> None:
    with pytest.raises(TaskError, match=r"has a position servo; swingup commands efforts.*--servo effort -o OTHER$"):
        load_task("swingup", robot="ur10e")
    with pytest.raises(TaskError, match=r"swingup"):
        load_task("swingup", robot="go2")
