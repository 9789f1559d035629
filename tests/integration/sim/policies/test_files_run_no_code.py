"""No file chooses what Python runs: a task file and a robot's model are named by the user, or not at all."""

import importlib.util
import json
import os
import py_compile
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from physai.sdk.base.errors import ModelError, TaskError
from physai.sdk.cli.main import main
from physai.sdk.transport.protocol import TransportError
from physai.sdk.transport.registry import open_transport
from physai.service.view.playing.counterexample import recorded_task
from physai.sim.envs.divergence import DUMP_FORMAT
from physai.sim.envs.divergence_replay import replay_diverged
from physai.sim.playback.recordings.recording_reader import Recording
from physai.sim.policies.resolve import TaskSource, choose_task_source
from physai.sim.robots import load_robot
from physai.sim.tasks.registry import load_task
from physai.twin.model.twin import nominal_twin
from physai.twin.model.twin_file import TwinError

POLICY = Path(__file__).parents[3] / "data" / "policies" / "cartpole-00" / "policy.onnx"
"""Of the built-in cart-pole."""

PLANTED = """
from pathlib import Path
Path(__file__).with_name("it-ran").touch()
from physai.sim.tasks.registry import load_task

def make_task():
    return load_task("cartpole-swingup")
"""


class Planted:
    """A folder with a task file that tells when it has been run, and a policy that names it."""

    def __init__(self, folder: Path) -> None:
        self.task, self.policy, self.run = folder / "mine.py", folder / "policy.onnx", folder / "run"
        self.robot = folder / "robot.xml"
        self.task.write_text(PLANTED)
        self.robot.write_text("<mujoco>not a robot")

    @property
    def ran(self) -> bool:
        return self.task.with_name("it-ran").exists()

    def write_policy(self, **said: str) -> Path:
        model = onnx.load_from_string(POLICY.read_bytes())
        entries = {entry.key: entry.value for entry in model.metadata_props}
        helper.set_model_props(model, entries | {f"physai.provenance.{key}": value for key, value in said.items()})
        self.policy.write_bytes(model.SerializeToString())
        return self.policy

    def write_run(self, **said: str) -> Path:
        """A run folder: what `physai train` has written, but for the source."""
        from physai.train.runners.checkpoint import save_checkpoint
        from physai.train.runners.runner import Trainer
        from physai.train.runs.run_config import RunTaskSource, save_config
        from physai.train.settings.config import TrainConfig

        config = TrainConfig(num_envs=8, horizon=4, minibatches=2, hidden=(8,), num_threads=1, iterations=1)
        trainer = Trainer(load_task("cartpole-swingup"), config)
        save_config(self.run, RunTaskSource(task="cartpole-swingup"), config, trainer.task.contract)
        save_checkpoint(trainer, self.run)
        file = self.run / "config.json"
        document = json.loads(file.read_text())
        document["source"].update(said)
        file.write_text(json.dumps(document))
        return self.run


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


def physai(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


VERBS: dict[str, tuple[str, ...]] = {
    "eval": ("eval", "POLICY", "--episodes", "1"),
    "validate": ("sim", "validate", "POLICY"),
    "play": ("play", "POLICY", "--record", "OUT/a.mcap"),
    "quantize": ("policy", "quantize", "POLICY", "--out", "OUT", "--skip-tensorrt"),
    "export": ("export", "RUN", "--states", "20"),
    "resume": ("train", "--resume", "RUN"),
}


def words(verb: str, planted: Planted, **said: str) -> list[str]:
    names = {"POLICY": planted.write_policy, "RUN": planted.write_run}
    return [
        str(names[word](**said)) if word in names else word.replace("OUT", str(planted.policy.parent))
        for word in VERBS[verb]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_task_file_that_a_file_names_is_not_run(verb: str, planted: Planted) -> None:
    answered = physai(*words(verb, planted, task=str(planted.task)))
    assert not planted.ran
    assert answered.returncode == 2
    assert answered.stderr.count("\n") == 1
    assert str(planted.task) in answered.stderr
    ways = f"name it: physai train TASK --resume {planted.run}" if verb == "resume" else "name it with --task PATH"
    assert ways in answered.stderr


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_robots_model_that_a_file_names_is_not_opened(verb: str, planted: Planted) -> None:
    answered = physai(*words(verb, planted, robot=str(planted.robot)))
    assert answered.returncode == 2
    assert "well-formed" not in answered.stderr
    assert str(planted.robot) in answered.stderr
    assert "name it with --model PATH" in answered.stderr


@pytest.mark.parametrize("module", ["json", "numpy", "physai"])
def test_no_module_of_the_working_folder_is_imported(module: str, planted: Planted) -> None:
    """`cd RUN; physai eval .` starts Python processes, which import from the working folder unless told not to."""
    planted.task.with_name(f"{module}.py").write_text(PLANTED)
    planted.write_policy(task="cartpole-swingup")
    program = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", program, "eval", planted.policy.name, "--episodes", "1"]
    folder = planted.policy.parent
    answered = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=folder)
    assert not planted.ran
    assert "crashed" not in answered.stderr
    assert "in the policy, 2 in the task cartpole-swingup" in answered.stderr  # computed, then compared with the task


def test_the_command_lets_no_python_import_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of processes that others start, such as multiprocessing, too."""
    (tmp_path / "planted.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert main(["--version"]) == 0
    for words in (["-c", "import planted"], ["-m", "planted"]):
        answered = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        assert "No module named" in answered.stderr


def test_of_a_task_file_the_text_is_run_and_nothing_cached_next_to_it(planted: Planted) -> None:
    """A .pyc that is not checked against its source would run in place of what the user has read."""
    other = planted.task.with_name("other.py")
    other.write_text(PLANTED)
    planted.task.write_text(PLANTED.replace('Path(__file__).with_name("it-ran").touch()', ""))
    cached = Path(importlib.util.cache_from_source(str(planted.task)))
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), str(cached), str(planted.task), invalidation_mode=unchecked)
    assert load_task(str(planted.task)).name == "cartpole-swingup"
    assert not planted.ran
    cached.unlink()
    load_task(str(planted.task))
    assert not cached.exists()


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_task_file_that_the_user_names_is_run(verb: str, planted: Planted) -> None:
    given = words(verb, planted, task=str(planted.task))
    named = [str(planted.task)] if verb == "resume" else ["--task", str(planted.task)]
    answered = physai(*given, *named)
    assert planted.ran, answered.stderr


def test_what_was_named_and_what_was_said() -> None:
    """A user's task takes the file's robot and variant along only where the file means the same task."""
    said = {"task": "runs/mine.py", "robot": "cartpole", "preset": "wide"}
    assert choose_task_source(said, source="it", task="here/mine.py") == TaskSource(
        task="here/mine.py", robot="cartpole", preset="wide"
    )
    assert choose_task_source(said, source="it", task="ur10e-reach") == TaskSource(task="ur10e-reach")
    said["robot"] = "../robot.xml"
    assert choose_task_source(said, source="it", task="mine.py", robot="robot.xml").robot == "robot.xml"
    with pytest.raises(TaskError, match=r"it says it is for the robot '\.\./robot\.xml', which is not built in"):
        choose_task_source(said, source="it", task="mine.py")
    with pytest.raises(TaskError, match="it does not say which task"):
        choose_task_source({}, source="it")


@pytest.mark.parametrize("options", [{}, {"over": "udp"}])
def test_the_twin_as_a_transport_runs_no_task_file_of_the_contracts(
    options: dict[str, str], planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(planted.task.parent)
    contract = load_task("cartpole-swingup").contract.model_copy(update={"task": planted.task.name})
    with pytest.raises(TransportError, match=r"which is not built in.*--set task=PATH"):
        open_transport("sim", options).open(contract)
    assert not planted.ran


def test_a_recording_runs_no_task_file(planted: Planted) -> None:
    contract = load_task("cartpole-swingup").contract
    recording = Recording(contract=contract, metadata={"task": str(planted.task)}, episodes=())
    with pytest.raises(TaskError, match="which is not built in"):
        recorded_task(recording, task=None, robot=None)
    assert not planted.ran
    assert recorded_task(recording, task=str(planted.task), robot=None).name == "cartpole-swingup"
    assert planted.ran


def test_a_recording_of_a_variant_is_played_in_that_variant() -> None:
    contract = load_task("pendubot-swingup", preset="realaigym-v2").contract
    said = {"task": "pendubot-swingup", "preset": "realaigym-v2"}
    recording = Recording(contract=contract, metadata=said, episodes=())
    assert recorded_task(recording, task=None, robot=None).contract == contract
    assert contract != load_task("pendubot-swingup").contract


def test_a_dump_runs_no_task_file(planted: Planted) -> None:
    about = np.frombuffer(json.dumps({"format": DUMP_FORMAT, "task": str(planted.task)}).encode(), np.uint8)
    file = planted.task.with_name("broken.npz")
    np.savez(file, about=about, targets=np.zeros((1, 1)))
    with pytest.raises(TaskError, match="which is not built in"):
        replay_diverged(file)
    assert not planted.ran


def test_a_twin_opens_no_pipe_and_uses_no_other_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.xml")
    twin = replace(nominal_twin(load_robot("cartpole")), robot="pipe.xml", folder=str(tmp_path))
    with pytest.raises(TwinError, match="not a regular file"):
        twin.nominal()
    (tmp_path / "other.xml").write_bytes(load_robot("double_pendulum").path.read_bytes())
    with pytest.raises(TwinError, match="has changed since this twin was fitted"):
        replace(twin, robot="other.xml").nominal()


def test_a_model_loads_no_library(tmp_path: Path) -> None:
    """MuJoCo takes plugins that are registered in this process, by name; a model cannot bring one along."""
    (tmp_path / "evil.so").write_bytes(b"\x7fELF")
    file = tmp_path / "robot.xml"
    file.write_text(
        f'<mujoco><extension><plugin plugin="{tmp_path}/evil.so"/></extension><worldbody><body>'
        '<joint name="j" range="-1 1"/><geom size="0.1" mass="1"/></body></worldbody></mujoco>'
    )
    with pytest.raises(ModelError, match=r"evil\.so not found"):
        load_robot(file)
