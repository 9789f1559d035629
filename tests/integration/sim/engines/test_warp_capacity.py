# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Memory for contacts: lack of it is counted and named, the number named is enough, and a probe finds it beforehand."""

import copy
import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import mujoco
import pytest
from pydantic import ValidationError

from physai.sdk.base.errors import DeviceError, ModelError
from physai.sim.engines.warp import modules
from physai.sim.tasks.registry import load_task

torch = pytest.importorskip("torch")
pytest.importorskip("mujoco_warp")
from benchmarks.gpu.counting import OperationCounter  # noqa: E402

from physai.sim.engines.warp_device import WarpDeviceEngine  # noqa: E402
from physai.sim.envs.device import capacity  # noqa: E402
from physai.sim.envs.device.capacity import Capacities  # noqa: E402
from physai.sim.envs.device.device_environment import DeviceEnvironment  # noqa: E402

# Compiles kernels for this machine, once. Warp starts here, in the user's own folder of kernels.
pytestmark = pytest.mark.slow
modules()

SPHERES = 4
PILE = f"""<mujoco><option timestep="0.002"/><worldbody><geom type="plane" size="9 9 .1"/>
  {"<body><freejoint/><geom size='.1' mass='1'/></body>" * SPHERES}
</worldbody></mujoco>"""


def pile(worlds: int = 3, **options: Any) -> WarpDeviceEngine:
    return WarpDeviceEngine(mujoco.MjSpec.from_string(PILE).compile(), worlds, **options)


def place(engine: WarpDeviceEngine, *, spacing: float, height: float, worlds: tuple[int, ...]) -> None:
    """Puts the spheres side by side: as a heap in which all touch where the spacing is small."""
    mask = torch.zeros(engine.num_worlds, dtype=torch.bool)
    mask[list(worlds)] = True
    one = [[spacing * (i % 2), spacing * (i // 2), height, 1.0, 0.0, 0.0, 0.0] for i in range(SPHERES)]
    qpos = torch.tensor(one).reshape(1, -1).expand(engine.num_worlds, -1)
    engine.reset_where(mask, qpos, torch.zeros(engine.num_worlds, 6 * SPHERES))


def fall(engine: WarpDeviceEngine, steps: int = 50) -> Any:
    engine.drive(torch.zeros(engine.num_worlds, steps, 0))
    return engine.state("qpos").clone()


def test_the_number_named_is_enough(capfd: pytest.CaptureFixture[str]) -> None:
    everywhere = (0, 1, 2)
    small = pile(max_contacts=2, max_constraints=8)
    place(small, spacing=0.1, height=0.09, worlds=everywhere)
    fall(small)
    # 4 spheres touch the ground and each other: 4 + 6 contacts in each of 3 worlds, where 2 per world fit.
    assert small.most()[0] == 30
    with pytest.raises(ModelError, match="needed 30 contacts and have 6") as refused:
        small.require_capacity()
    named = re.search(r"max_contacts=(\d+) and max_constraints=(\d+)", str(refused.value))
    assert named is not None
    enough = pile(max_contacts=int(named[1]), max_constraints=int(named[2]))
    ample = pile(max_contacts=100, max_constraints=400)
    for engine in (enough, ample):
        place(engine, spacing=0.1, height=0.09, worlds=everywhere)
    assert torch.allclose(fall(enough), fall(ample), atol=1e-4)
    enough.require_capacity()
    # Kernels print a line per step that lacks memory, unless they are told not to.
    assert capfd.readouterr().out == ""


def test_only_the_world_that_lacked_constraints_is_marked_and_stays_marked() -> None:
    engine = pile(max_contacts=50, max_constraints=12)
    place(engine, spacing=1.0, height=1.0, worlds=(0, 2))
    place(engine, spacing=0.1, height=0.09, worlds=(1,))
    engine.drive(torch.zeros(3, 1, 0))
    assert engine.contacts().tolist() == [0, 10, 0]
    assert engine.overflowed().tolist() == [False, True, False]
    # A contact with condim 3 has 4 constraints in MuJoCo's pyramid.
    assert engine.most()[1] == 40
    place(engine, spacing=1.0, height=1.0, worlds=(1,))
    engine.drive(torch.zeros(3, 1, 0))
    assert engine.contacts().tolist() == [0, 0, 0]
    assert engine.overflowed().tolist() == [False, True, False]
    with pytest.raises(ModelError, match=r"1 of 3 worlds .* one world needed 40 constraints and has 12"):
        engine.require_capacity()
    assert engine.enough() == (50, 80)


def test_more_than_the_device_has_is_refused() -> None:
    with pytest.raises(ModelError, match=r"cannot simulate 3 worlds of this model with 1000000000 contacts .* on cpu"):
        pile(max_contacts=1_000_000_000, max_constraints=8)


def test_counting_waits_for_nothing() -> None:
    engine = pile()
    place(engine, spacing=0.1, height=0.09, worlds=(0, 1, 2))
    with OperationCounter() as counter:
        engine.drive(torch.zeros(3, 4, 0))
        assert engine.overflowed().shape == engine.contacts().shape == (3,)
    assert counter.waits == []
    assert engine.most() == (30, 40)


def test_constants_of_other_worlds_keep_every_bit() -> None:
    task = load_task("ur10e-reach")
    engine = WarpDeviceEngine(task.model, 3, parameters=("body_mass", "dof_armature"))
    names = ("body_subtreemass", "body_invweight0", "dof_invweight0", "actuator_acc0")
    before = {name: engine.parameter(name).clone() for name in names}
    engine.parameter("body_mass")[1:] *= 1.3
    engine.parameters_changed(torch.tensor([False, True, False]))
    for name, values in before.items():
        found = engine.parameter(name)
        assert torch.equal(found[[0, 2]], values[[0, 2]]), name
        assert not torch.allclose(found[1], values[1]), name


def test_no_such_device() -> None:
    with pytest.raises(DeviceError, match="no device 'cuda:99'; this machine has cpu"):
        pile(device="cuda:99")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PHYSAI_CACHE", str(tmp_path))
    return tmp_path / "capacities"


def test_a_probe_that_lacks_memory_itself_begins_again_with_more() -> None:
    task = load_task("cartpole-swingup")
    spec = mujoco.MjSpec.from_file(str(files("physai.sim.robots") / "cartpole.xml"))
    rows = 200
    for _ in range(rows):
        held = spec.add_equality(type=mujoco.mjtEq.mjEQ_JOINT, objtype=mujoco.mjtObj.mjOBJ_JOINT)
        held.name1 = spec.joints[0].name
    task = replace(task, model=spec.compile())
    # mujoco_warp keeps memory for fewer than these; the joints' friction and limits have constraints, too.
    assert 2 * rows <= capacity.measure(task).max_constraints <= 2 * (rows + 4)


def test_the_memory_of_a_task_is_measured_once(folder: Path) -> None:
    task = load_task("go2-velocity")
    found = capacity.capacities_of(task)
    # It stands on four feet, each contact with three constraints in the elliptic cone; twice of both.
    assert found.max_contacts == 8
    assert found.max_constraints >= 24
    (file,) = folder.iterdir()
    known = found.model_copy(update={"max_contacts": 77})
    file.write_text(known.model_dump_json())
    assert capacity.capacities_of(task) == known
    engine = capacity.build_engine(task, 100)
    assert engine.enough() == (77, found.max_constraints)
    # Of another model, or of a task with other rules, nothing is known.
    other = copy.copy(task.model)
    other.geom_friction[:] *= 0.5
    assert capacity.stored(replace(task, model=other)) is None
    assert capacity.stored(replace(task, randomisation=())) is None


def test_a_measured_memory_is_enough_for_few_worlds_and_for_many(folder: Path) -> None:
    task = load_task("go2-velocity")
    for worlds in (1, 70):
        environment = DeviceEnvironment(task, capacity.build_engine(task, worlds), seed=5)
        environment.reset()
        rest = {t.target_name: torch.tensor(t.offset).repeat(worlds, 1) for t in task.contract.action.terms}
        for _ in range(20):
            environment.step(rest)
        environment.engine.require_capacity()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\x00",
        b"[" * 9_000,
        b'{"max_contacts": 8}',
        b'{"max_contacts": 0, "max_constraints": 32}',
        b'{"max_contacts": 8, "max_constraints": 1e6}',
        b'{"max_contacts": 8, "max_constraints": 1000001}',
        b'{"max_contacts": 8, "max_constraints": NaN}',
        b'{"max_contacts": 8, "max_constraints": 32, "by_hand": 1}',
        b'{"max_contacts": 8, "max_constraints": 32, "more": 1}',
        b'{"max_contacts": 8, "max_constraints": 32}' + b" " * 5_000,
    ],
)
def test_a_damaged_file_is_none(folder: Path, content: bytes) -> None:
    task = load_task("cartpole-swingup")
    path = capacity.store(task, Capacities(max_contacts=9, max_constraints=33))
    assert capacity.stored(task) == Capacities(max_contacts=9, max_constraints=33)
    path.write_bytes(content)
    assert capacity.stored(task) is None


def test_a_damaged_file_is_measured_again_and_replaced(folder: Path) -> None:
    task = load_task("cartpole-swingup")
    path = capacity.store(task, Capacities(max_contacts=9, max_constraints=33))
    path.write_bytes(b"{")
    assert capacity.capacities_of(task) == Capacities(max_contacts=8, max_constraints=32)
    assert json.loads(path.read_bytes())["max_contacts"] == 8


def test_numbers_set_by_hand_stay_as_they_are(folder: Path) -> None:
    task = load_task("cartpole-swingup")
    chosen = Capacities(max_contacts=3, max_constraints=11, by_hand=True)
    capacity.store(task, chosen)
    assert capacity.build_engine(task, 2).enough() == (3, 11)
    # Measured ones are for 64 worlds, which fewer share.
    measured = Capacities(max_contacts=3, max_constraints=11)
    assert capacity.build_engine(task, 2, capacities=measured).enough() == (96, 11)
    with pytest.raises(ValidationError):
        Capacities(max_contacts=0, max_constraints=1)


def test_contacts_that_a_height_field_loses_stop_the_run() -> None:
    """A box of 2 m over cells of 7 cm touches more of them than Warp collides; more memory would not help."""
    text = """<mujoco><asset><hfield name="h" nrow="60" ncol="60" size="2 2 0.2 0.5"/></asset><worldbody>
      <geom type="hfield" hfield="h"/><body pos="0 0 0.18"><freejoint/><geom type="box" size="1 1 .1"/></body>
    </worldbody></mujoco>"""
    model = mujoco.MjSpec.from_string(text).compile()
    model.hfield_data[:] = [number * 37 % 101 / 101.0 for number in range(model.nhfielddata)]
    engine = WarpDeviceEngine(model, 1, max_contacts=2000, max_constraints=4000)
    engine.drive(torch.zeros(1, 1, 0))
    with pytest.raises(ModelError, match="1 of 1 worlds lost contacts with a height field"):
        engine.require_capacity()
