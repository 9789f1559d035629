"""What a person sees of a motion, as numbers with names."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from physai.rlhf.answers.motion_features import seen_names, with_seen
from physai.rlhf.answers.preferences import measures
from physai.rlhf.answers.segment import SegmentLayout
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import WorldView

WORLDS = 3


@pytest.mark.parametrize("name", ["cartpole-swingup", "ur10e-reach", "go2-velocity"])
def test_names_and_values_are_those_of_the_engine(name: str) -> None:
    """Heights, and the vertical component of each axis: the last row of MuJoCo's own rotation matrices."""
    plain = load_task(name)
    task, names = with_seen(plain), seen_names(plain)
    env = Environment(task, WORLDS, seed=3, training=True)
    critic = env.reset().critic
    assert critic.shape == (WORLDS, plain.critic_size + len(names)) == (WORLDS, task.critic_size)
    np.testing.assert_array_equal(critic[:, : plain.critic_size], plain.critic(env.view).astype(np.float32))
    data = mujoco.MjData(task.model)
    for world in range(WORLDS):
        found = dict(zip(names, critic[world, plain.critic_size :], strict=True))
        data.qpos[:] = env.view.qpos[world]
        mujoco.mj_kinematics(task.model, data)
        for joint in range(task.model.njnt):
            body = int(task.model.jnt_bodyid[joint])
            link = task.model.body(body).name
            expected = [data.xpos[body, 2], *data.xmat[body].reshape(3, 3)[2]]
            assert [found[f"{kind}.{link}"] for kind in ("z", "lean_x", "lean_y", "lean_z")] == pytest.approx(
                expected, abs=1e-5
            )
        assert [*names[-len(plain.metrics) :]] == [*plain.metrics] or not plain.metrics
        for measure, term in {**measures(plain), **plain.metrics}.items():
            assert found[measure] == pytest.approx(float(term(env.view)[world]), rel=1e-5, abs=1e-5)


def test_a_place_is_something_to_like_of_a_robot_that_stands_fast_only() -> None:
    arm, dog = (seen_names(load_task(name)) for name in ("ur10e-reach", "go2-velocity"))
    assert {"x.forearm_link", "y.forearm_link"} <= set(arm)
    assert not [name for name in dog if name.startswith(("x.", "y."))]


@pytest.mark.parametrize(
    ("slider", "pole"),
    [
        ("", "body1"),
        ("l" * 300 + "a", "l" * 300 + "b"),
        ("", ""),
        ("link.π", "link.π#2"),
    ],
)
def test_any_names_of_links_are_told_apart(slider: str, pole: str) -> None:
    """MuJoCo allows none, any length and any character; a layout takes short names that differ."""
    plain = load_task("cartpole-swingup")
    spec = mujoco.MjSpec()
    outer = spec.worldbody.add_body(name=slider)
    inner = outer.add_body(name=pole)
    for body in (outer, inner):
        body.add_geom(size=[0.1, 0.0, 0.0])
        body.add_joint(type=mujoco.mjtJoint.mjJNT_HINGE)
    spec.option.timestep = plain.model.opt.timestep
    names = seen_names(replace(plain, model=spec.compile()))
    assert len(set(names)) == 12 + len(measures(plain))
    size = len(names)
    layout = SegmentLayout(
        task="any", fingerprint="any", step_dt=0.02, steps=1, qpos=2, critic=size, actions=1, terms=("a",), seen=names
    )
    assert layout.named["joint_speed"] == 12


def test_metrics_whose_names_are_taken_are_left_out() -> None:
    def metric(view: WorldView) -> Array:
        return view.joint_pos[:, 0] * 1e6

    plain = load_task("cartpole-swingup")
    task = replace(plain, metrics=dict.fromkeys(("joint_speed", "z.cart", "m" * 129, "place"), metric))
    assert seen_names(task) == (*seen_names(plain), "place")
    env = Environment(with_seen(task), 2, seed=0, training=True)
    found = dict(zip(seen_names(task), env.reset().critic[:, plain.critic_size :].T, strict=True))
    assert found["place"] == pytest.approx(env.view.joint_pos[:, 0] * 1e6)
    assert np.abs(found["joint_speed"]).max() < 1e3


def test_what_the_policy_sees_and_is_paid_for_stays() -> None:
    plain = load_task("ur10e-reach")
    task = with_seen(plain)
    assert (task.contract.fingerprint, task.rewards) == (plain.contract.fingerprint, plain.rewards)
    assert with_seen(task) is task
