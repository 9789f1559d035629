"""MuJoCo's engine: free masses by hand, and the laws every engine owes."""

import math
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sdk.base.errors import ModelError, TaskError
from physai.sim.engines import mujoco as engine_module
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.engines.protocol import Array, Snapshot, Stage
from physai.sim.robots import Robot, home_qpos, load_robot

GO2 = load_robot("go2")


def stand(num_worlds: int, **options: Any) -> MujocoEngine:
    """The Go2 at home in several worlds: contacts, a floating base, servos."""
    engine = MujocoEngine(GO2.model, num_worlds, **options)
    home = np.repeat(home_qpos(GO2.model)[None], num_worlds, axis=0)
    engine.reset(np.ones(num_worlds, bool), home, np.zeros((num_worlds, GO2.model.nv)))
    return engine


def push_around(engine: MujocoEngine, steps: int, seed: int) -> None:
    """Random servo targets around home, the same for every engine with that seed."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        engine.state("ctrl")[:] = home_qpos(GO2.model)[7:] + 0.3 * rng.standard_normal((engine.num_worlds, 12))
        engine.step(4)


def same(a: Snapshot, b: Snapshot) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_a_free_mass_moves_as_newton_says(sliders: Robot) -> None:
    engine = MujocoEngine(sliders.model, 2, num_threads=1)
    engine.state("ctrl")[:] = [[8.0, 6.0], [0.0, 0.0]]
    engine.step(3)
    # Controls are (right, left): 8 N on 4 kg, 6 N on 2 kg. Semi-implicit Euler: v = 3 a h, x = (1 + 2 + 3) a h².
    assert engine.state("qvel") == pytest.approx(np.array([[0.09, 0.06], [0.0, 0.0]]))
    assert engine.state("qpos") == pytest.approx(np.array([[1.8e-3, 1.2e-3], [0.0, 0.0]]))
    assert engine.state("time") == pytest.approx(np.array([0.03, 0.03]))


def test_drive_plays_one_control_per_step(sliders: Robot) -> None:
    engine = MujocoEngine(sliders.model, 1, num_threads=1)
    controls = np.array([[[0.0, 0.0], [0.0, 2.0], [4.0, 2.0]]])
    engine.drive(controls)
    # Left: two steps of 1 m/s²; right: one step of 1 m/s².
    assert engine.state("qvel") == pytest.approx(np.array([[0.02, 0.01]]))
    assert engine.state("ctrl") == pytest.approx(np.array([[4.0, 2.0]]))


def test_drive_equals_single_steps() -> None:
    driven, stepped = (stand(3, num_threads=1, stage=Stage.VELOCITY, derived=("sensordata",)) for _ in range(2))
    controls = home_qpos(GO2.model)[7:] + 0.2 * np.random.default_rng(0).standard_normal((3, 8, 12))
    driven.drive(controls)
    for k in range(8):
        stepped.state("ctrl")[:] = controls[:, k]
        stepped.step(1)
    assert same(driven.snapshot(), stepped.snapshot())
    assert np.array_equal(driven.derived("sensordata")[:, :7], stepped.derived("sensordata")[:, :7])


@pytest.mark.parametrize("threads", [2, 3])
def test_results_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    engines = [stand(5, num_threads=n) for n in (1, threads)]
    for engine in engines:
        push_around(engine, 20, seed=1)
    assert same(engines[0].snapshot(), engines[1].snapshot())


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 5), st.integers(1, 5), st.integers(0, 2**32 - 1), st.sampled_from(Stage))
def test_a_restored_engine_continues_bit_for_bit(before: int, after: int, seed: int, stage: Stage) -> None:
    options = {"num_threads": 1, "stage": stage, "derived": ("sensordata",), "parameters": ("body_mass", "body_ipos")}
    engine = stand(3, **options)
    engine.parameter("body_mass")[:] *= np.array([[0.9], [1.0], [1.2]])
    engine.parameter("body_ipos")[:, 1] += np.array([[-0.01], [0.0], [0.02]])
    engine.parameters_changed(np.ones(3, bool))
    push_around(engine, before, seed)
    saved = engine.snapshot()
    push_around(engine, after, seed + 1)
    finished = engine.snapshot()
    for other in (engine, stand(3, **options)):
        other.restore(saved)
        assert same(other.snapshot(), saved)
        push_around(other, after, seed + 1)
        assert same(other.snapshot(), finished)


def test_a_snapshot_is_a_copy() -> None:
    engine = stand(2, num_threads=1, parameters=("body_mass",))
    saved = engine.snapshot()
    kept = {name: array.copy() for name, array in saved.items()}
    engine.parameter("body_mass")[:] = 1.0
    push_around(engine, 2, seed=0)
    assert same(saved, kept)
    assert set(engine.snapshot(parameters=False)) == {"state"}


def test_a_snapshot_of_another_engine_is_refused() -> None:
    saved = stand(3, num_threads=1).snapshot()
    with pytest.raises(TaskError, match=r"'state' has shape \(3, \d+\) in the snapshot and \(2, \d+\) here"):
        stand(2, num_threads=1).restore(saved)
    with pytest.raises(TaskError, match="no 'state'"):
        stand(2, num_threads=1).restore({})


@settings(max_examples=10, deadline=None)
@given(st.lists(st.booleans(), min_size=4, max_size=4))
def test_a_masked_reset_leaves_the_other_worlds_alone(mask: list[bool]) -> None:
    engine, chosen = stand(4, num_threads=1), np.array(mask)
    push_around(engine, 3, seed=2)
    before = engine.snapshot()["state"]
    home = np.repeat(home_qpos(GO2.model)[None], chosen.sum(), axis=0)
    engine.reset(chosen, home, np.zeros((chosen.sum(), GO2.model.nv)))
    after = engine.snapshot()["state"]
    assert np.array_equal(after[~chosen], before[~chosen])
    assert (engine.state("time")[chosen] == 0.0).all()
    assert np.array_equal(engine.state("qpos")[chosen], home)
    fresh = stand(4, num_threads=1)
    fresh.state("ctrl")[:] = engine.state("ctrl")
    assert np.array_equal(after[chosen], fresh.snapshot()["state"][chosen])


def test_a_reset_keeps_controls_and_refreshes_what_derives_from_them() -> None:
    engine = stand(1, num_threads=1, stage=Stage.ACCELERATION, derived=("qfrc_actuator",))
    home = home_qpos(GO2.model)[None]
    engine.state("ctrl")[:] = home[:, 7:] + 0.1
    engine.reset(np.array([True]), home, np.zeros((1, GO2.model.nv)))
    # Each servo is 0.1 rad from its target: kp · 0.1 of 20, 20 and 40 N·m/rad.
    assert engine.derived("qfrc_actuator")[0, 6:] == pytest.approx(np.tile([2.0, 2.0, 4.0], 4))


def test_derived_fields_follow_the_state(sliders: Robot) -> None:
    engine = MujocoEngine(sliders.model, 2, num_threads=1, stage=Stage.POSITION, derived=("site_xpos",))
    engine.reset(np.array([False, True]), np.array([[0.0, 0.7]]), np.array([[0.0, 1.0]]))
    assert engine.derived("site_xpos")[1, 0] == pytest.approx([0.7, 1.0, 0.5])
    engine.step(5)
    assert engine.derived("site_xpos")[:, 0, 0] == pytest.approx([0.0, 0.75])


def test_the_masses_of_each_world_count(sliders: Robot) -> None:
    engine = MujocoEngine(sliders.model, 3, num_threads=1, parameters=("body_mass",))
    engine.parameter("body_mass")[:, 1] = [1.0, 2.0, 8.0]
    engine.parameters_changed(np.ones(3, bool))
    engine.state("ctrl")[:] = [0.0, 4.0]
    engine.step(1)
    # 4 N for 10 ms on 1, 2 and 8 kg.
    assert engine.state("qvel")[:, 0] == pytest.approx([0.04, 0.02, 0.005])


@pytest.mark.parametrize(("field", "value"), [("body_ipos", (0.0, 0.0, 0.2)), ("geom_pos", (0.0, 0.0, -0.5))])
def test_a_frame_that_the_compiler_found_equal_can_be_moved(field: str, value: tuple[float, ...]) -> None:
    # The ball's inertial frame and its geom's are the body's own, which MuJoCo would take for granted ever after.
    text = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1" pos="0 0 -0.6"/>
        <body name="ball"><joint type="hinge" axis="0 1 0" pos="0 0 1"/>
        <geom type="sphere" size="0.2" mass="1"/></body></worldbody></mujoco>"""
    model = mujoco.MjSpec.from_string(text).compile()
    engine = MujocoEngine(model, 1, num_threads=1, parameters=(field,))
    engine.parameter(field)[0, 1] = value
    engine.parameters_changed(np.ones(1, bool))
    changed = mujoco.MjSpec.from_string(text).compile()
    changed.body_sameframe[:] = 0
    changed.geom_sameframe[:] = 0
    getattr(changed, field)[1] = value
    data = mujoco.MjData(changed)
    mujoco.mj_setConst(changed, data)
    nominal = mujoco.MjData(model)
    for physics, reference in ((changed, data), (model, nominal)):
        mujoco.mj_resetData(physics, reference)
        reference.qvel[0] = 1.0
    engine.state("qvel")[:] = 1.0
    engine.step(20)
    for _ in range(20):
        mujoco.mj_step(changed, data)
        mujoco.mj_step(model, nominal)
    assert engine.state("qvel")[0, 0] == pytest.approx(data.qvel[0], abs=1e-12)
    assert abs(data.qvel[0] - nominal.qvel[0]) > 1e-4


@pytest.mark.parametrize(
    ("name", "value"),
    [("ctrl", math.nan), *((name, value) for name in ("qpos", "qvel") for value in (math.nan, -math.inf, 1e12))],
)
def test_a_world_that_diverges_is_reported_alone(name: str, value: float) -> None:
    engine, sound = stand(4, num_threads=2), stand(4, num_threads=1)
    engine.state(name)[2, -1] = value
    for twin in (engine, sound):
        twin.drive(np.repeat(twin.state("ctrl")[:, None], 4, axis=1))
    assert engine.diverged().tolist() == [False, False, True, False]
    assert not sound.diverged().any()
    others = [0, 1, 3]
    assert np.array_equal(engine.snapshot()["state"][others], sound.snapshot()["state"][others])
    engine.state("ctrl")[2] = 0.0
    engine.reset(np.arange(4) == 2, home_qpos(GO2.model)[None], np.zeros((1, GO2.model.nv)))
    engine.step(4)
    assert not engine.diverged().any()


def test_a_diverging_world_prints_nothing_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = stand(2, num_threads=1)
    engine.state("qvel")[0, 0] = math.nan
    engine.step(4)
    assert engine.diverged()[0]
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_restored_engine_is_sound_again() -> None:
    engine = stand(1, num_threads=1)
    saved = engine.snapshot()
    engine.state("qvel")[0, 0] = math.nan
    engine.step(1)
    assert engine.diverged()[0]
    engine.restore(saved)
    assert not engine.diverged()[0]


def test_a_model_without_memory_for_its_contacts_is_refused() -> None:
    balls = "".join(
        f'<body pos="{0.1 * i} 0 0"><freejoint/><geom type="sphere" size="0.2" mass="1"/></body>' for i in range(30)
    )
    text = f'<mujoco><size memory="30K"/><worldbody>{balls}</worldbody></mujoco>'
    engine = MujocoEngine(mujoco.MjSpec.from_string(text).compile(), 1, num_threads=1)
    with pytest.raises(ModelError, match=r'world 0 has more contacts .* \(30720 bytes\).*<size memory="61K"/>'):
        _step_and_ask(engine)


def _step_and_ask(engine: MujocoEngine) -> Array:
    engine.step(1)
    return engine.diverged()


def test_the_given_model_is_left_as_it_was() -> None:
    flags = int(GO2.model.opt.disableflags)
    engine = MujocoEngine(GO2.model, 1, num_threads=1, parameters=("body_ipos",))
    engine.parameter("body_ipos")[:] = 1.0
    assert int(GO2.model.opt.disableflags) == flags
    assert int(engine.model.opt.disableflags) != flags
    assert GO2.model.body_sameframe.any()
    assert not (GO2.model.body_ipos == 1.0).any()


def test_what_mujoco_does_not_have_is_refused() -> None:
    with pytest.raises(ModelError, match="did you mean 'body_mass'"):
        MujocoEngine(GO2.model, 1, parameters=("bodymass",))
    with pytest.raises(ModelError, match="site_xps"):
        MujocoEngine(GO2.model, 1, derived=("site_xps",))
    with pytest.raises(ModelError, match="at least one world, got 0"):
        MujocoEngine(GO2.model, 0)


def test_more_worlds_than_fit_into_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise ValueError("std::bad_alloc")  # as MuJoCo's binding says it

    monkeypatch.setattr(engine_module, "Batch", full)
    with pytest.raises(ModelError, match="MuJoCo cannot make 7 worlds of this model: std::bad_alloc; use fewer"):
        MujocoEngine(load_robot("cartpole").model, 7)
