"""Finding tasks: by name, or in a user's file; what is wrong in the file is told with its line."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from physai.sdk.base.errors import TaskError, UnknownNameError
from physai.sim.envs.environment import Environment
from physai.sim.robots import load_robot
from physai.sim.tasks import template
from physai.sim.tasks.registry import load_task

ROOT = Path(__file__).parents[4]
GOOD = """
from dataclasses import replace
from physai.sim.tasks.pendulums.cartpole import cartpole_swingup

def make_task(preset: str = "long", robot=None):
    task = replace(cartpole_swingup(), summary=f"mine, {preset}", episode_length_s=20.0 if preset == "long" else 5.0)
    return task if robot is None else replace(task, robot=robot)
"""

TaskFile = Callable[[str], str]


@pytest.fixture
def task_file(tmp_path: Path) -> TaskFile:
    def write(text: str) -> str:
        path = tmp_path / "mine.py"
        path.write_text(text)
        return str(path)

    return write


def test_a_task_comes_from_a_file(task_file: TaskFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = task_file(GOOD)
    task = load_task(path)
    assert task.summary == "mine, long"
    assert task.episode_length_s == 20.0
    assert load_task(Path(path)).summary == "mine, long"
    assert load_task(path, preset="short").episode_length_s == 5.0
    monkeypatch.chdir(tmp_path)
    assert load_task("mine.py").summary == "mine, long"
    env = Environment(task, 2, num_threads=1)
    env.reset()
    assert np.isfinite(env.step({"joint_effort_target": np.ones((2, 1), np.float32)}).reward).all()


def test_a_task_may_take_another_robot(task_file: TaskFile) -> None:
    path = task_file(GOOD)
    assert load_task(path, robot="ur10e").robot.name == "ur10e"
    file = str(load_robot("cartpole").path)
    assert load_task(path, robot=file).robot.spec == load_robot("cartpole").spec
    reach = load_task("ur10e-reach", robot=str(load_robot("ur10e").path))
    assert reach.contract.fingerprint == load_task("ur10e-reach").contract.fingerprint
    with pytest.raises(UnknownNameError, match="did you mean ur10e"):
        load_task(path, robot="ur10")
    with pytest.raises(TaskError, match="task cartpole-swingup has no robots to choose from; leave --model go2 out"):
        load_task("cartpole-swingup", robot="go2")
    with pytest.raises(TaskError, match="task go2-velocity has no presets to choose from; leave --preset fast out"):
        load_task("go2-velocity", preset="fast")
    with pytest.raises(UnknownNameError, match="realaigym-v2"):
        load_task("pendubot-swingup", preset="realaigym")


BAD: dict[str, tuple[str, str]] = {
    "syntax": ("x = 1\ny = = 2\n", r"mine\.py, line 2: SyntaxError"),
    "import": ("\n\nimport physai.sim.nothing\n", r"mine\.py, line 3: ModuleNotFoundError"),
    "top": ("x = 1\n\ny = 1 / 0\n", r"mine\.py, line 3: ZeroDivisionError: division by zero"),
    "inside": (
        "def helper():\n    return missing\n\ndef make_task():\n    return helper()\n",
        r"mine\.py, line 2: NameError: name 'missing'",
    ),
    "below": (
        "import json\n\ndef make_task():\n    x = 1\n    return json.loads('{')\n",
        r"mine\.py, line 5: JSONDecodeError",
    ),
    "contract": (
        "from physai.sdk.contract.terms import ActionTerm\n\ndef make_task():\n    return ActionTerm(kind='joint_pos',"
        " joints=('a',), scale=(1.0,), offset=(0.0,), lower=(2.0,), upper=(1.0,))\n",
        r"mine\.py, line 4: action joint a: lower 2.0 is not below upper 1.0",
    ),
    "nothing": ("x = 1\n", r"mine\.py defines no function make_task\(\)"),
    "no function": ("make_task = 3\n", r"mine\.py defines no function make_task\(\)"),
    "arguments": (
        "def make_task(seed):\n    pass\n",
        r"mine\.py: TypeError: make_task\(\) missing 1 required .*'seed'",
    ),
    "class": (
        "from functools import partial\nmake_task = partial(int, 'x')\n",
        r"mine\.py: ValueError: no signature found",
    ),
    "coroutine": ("async def make_task():\n    pass\n", r"make_task\(\) returned coroutine, expected a physai Task"),
    "generator": ("def make_task():\n    yield 1\n", r"make_task\(\) returned generator, expected a physai Task"),
    "exit": ("import sys\nsys.exit(0)\n", r"mine\.py, line 2: SystemExit: 0"),
    "exit inside": ("def make_task():\n    raise SystemExit\n", r"mine\.py, line 2: SystemExit"),
    "removed": ("import sys\ndel sys.modules[__name__]\n1 / 0\n", r"mine\.py, line 3: ZeroDivisionError"),
    "NUL": ("x = 1\0\n", r"mine\.py.*: source code string cannot contain null bytes"),
    "digits": ("x = " + "1" * 5000 + "\n", r"mine\.py, line 1: SyntaxError: Exceeds the limit"),
    "deep": ("x = " + "(" * 500 + ")" * 500 + "\n", r"mine\.py, line 1: SyntaxError"),
    "no task": ("def make_task():\n    return 3\n", r"make_task\(\) returned int, expected a physai Task"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_a_bad_task_file_is_refused_with_its_line(task_file: TaskFile, text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load_task(task_file(text))


MISTAKES: dict[str, tuple[str, str, str]] = {
    "a reward per joint": (
        "view.joint_pos[:, CART] ** 2", "view.joint_pos ** 2",
        r"reward off_centre has shape \(3, 2\) for 3 worlds, expected \(3,\); select a column",
    ),
    "a reward that is NaN": ("[:, CART] ** 2", "[:, CART] * float('nan')", "off_centre is not finite at the start"),
    "a success that is a number": ("view.xp.abs(view.joint_pos[:, POLE]) < 0.1", "view.joint_pos[:, POLE]",
        "success returns float64, expected bool",
    ),
    "a critic of another size": ("critic_size=4", "critic_size=5", r"critic has shape \(3, 4\) .* expected \(3, 5\)"),
    "a reset with one joint": ("draw[:, 0:2]", "draw[:, 0:1]", r"qpos of reset has shape \(3, 1\)"),
    "too few draws": ("reset_draws=4", "reset_draws=3", r"qvel of reset has shape \(3, 1\)"),
    "a field that is not derived": ("view.joint_pos[:, CART] ** 2", "view.derived['site_xpos'][:, 0, 0]",
        r"mine\.py, line \d+: KeyError: 'site_xpos'",
    ),
    "a name it lacks": ("view.joint_pos[:, CART] ** 2", "view.position", r"mine\.py, line \d+: AttributeError"),
    "an operation": ('"dof_damping", operation="scale"', '"dof_damping", operation="multiply"',
        "randomisation of dof_damping: no operation named 'multiply'; known: add, scale, set",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_in_a_new_task_are_found_when_it_is_loaded(
    task_file: TaskFile, right: str, wrong: str, message: str
) -> None:
    text = Path(template.__file__).read_text(encoding="utf-8")
    assert right in text
    with pytest.raises(TaskError, match=message):
        load_task(task_file(text.replace(right, wrong)))


def test_commands_of_a_task_file_are_those_of_its_contract(task_file: TaskFile) -> None:
    text = (ROOT / "examples" / "crane_task.py").read_text(encoding="utf-8")
    assert load_task(task_file(text)).command_draws == 1
    with pytest.raises(TaskError, match=r"command draws \['site'\], the contract has \['place'\]"):
        load_task(task_file(text.replace('{"place": 2.0', '{"site": 2.0')))
    with pytest.raises(TaskError, match=r"command place has shape \(3,\) for 3 worlds, expected \(3, 1\)"):
        load_task(task_file(text.replace("2.0 * draw - 1.0}", "draw[:, 0]}")))


@pytest.mark.filterwarnings("error")
def test_an_asynchronous_make_task_is_refused_without_a_warning(task_file: TaskFile) -> None:
    with pytest.raises(TaskError, match="returned coroutine"):
        load_task(task_file("async def make_task():\n    pass\n"))


@pytest.mark.parametrize("name", ["a\0b.py", "a\0b", "\udcff.py", "x" * 5000 + ".py"])
def test_names_that_no_file_can_have_are_refused(name: str) -> None:
    with pytest.raises((TaskError, UnknownNameError)):
        load_task(name)


def test_physais_own_errors_in_a_task_file_speak_for_themselves(task_file: TaskFile) -> None:
    text = "from physai.sim.robots import load_robot\n\ndef make_task():\n    return load_robot('go3')\n"
    with pytest.raises(UnknownNameError, match="no robot named 'go3'; did you mean go2"):
        load_task(task_file(text))


def test_unknown_tasks_are_answered_with_close_names(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no task named 'cartpole-swngup'; did you mean cartpole-swingup"):
        load_task("cartpole-swngup")
    with pytest.raises(UnknownNameError, match="did you mean go2-velocity"):
        load_task("go2-velocty")
    with pytest.raises(TaskError, match="does not exist"):
        load_task(str(tmp_path / "none.py"))
