"""`physai tasks warmup` compiles a task's kernels once per machine, and the folder that keeps them is the user's."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.cli.main import main

pytest.importorskip("torch")
pytest.importorskip("mujoco_warp")
from physai.sim.engines.warp import modules
from physai.sim.engines.warp_kernels import NOTICE, LoadedModule, SlowCompileNotice, listening
from physai.sim.envs.device.capacity import Capacities, store, stored
from physai.sim.tasks.registry import load_task

# Compiles kernels for this machine, once. Warp starts here, in the user's own folder of kernels.
pytestmark = pytest.mark.slow
KERNELS = Path(modules()[0].config.kernel_cache_dir).parent
START = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"

OWN_KERNEL = """
import json
import warp
from physai.sim.engines.warp import modules
from physai.sim.engines.warp_kernels import listening

@warp.kernel
def double(values: warp.array(dtype=float)):
    values[warp.tid()] *= 2.0

modules()
loaded = []
with listening(loaded.append):
    values = warp.ones(3, dtype=float, device="cpu")
    warp.launch(double, dim=3, inputs=[values], device="cpu")
own = [module for module in loaded if module.name == "__main__" or "double" in module.name]
print(json.dumps([values.numpy().tolist(), [module.compiled for module in own], warp.config.kernel_cache_dir]))
"""

ENVIRONMENT = """
import json, sys, torch
from physai.sim.engines.warp_kernels import listening
from physai.sim.envs.device.capacity import build_engine
from physai.sim.envs.device.device_environment import DeviceEnvironment
from physai.sim.tasks.registry import load_task

task = load_task("cartpole-swingup")
compiled, loaded = [], []
with listening(lambda module: (loaded.append(module.name), module.compiled and compiled.append(module.name))):
    for worlds in (5, 300):
        environment = DeviceEnvironment(task, build_engine(task, worlds), training=True)
        environment.reset()
        for _ in range(3):
            environment.step({term.target_name: torch.zeros(worlds, 1) for term in task.contract.action.terms})
        environment.snapshot()
print(json.dumps([len(loaded), compiled]))
"""


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with the words as arguments."""
    known = {name: value for name, value in os.environ.items() if name != "WARP_CACHE_PATH"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env={**known, **variables})


def result(*words: str, **variables: str) -> Any:
    """What a run prints as JSON."""
    finished = run(*words, **variables)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def files_of(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    program = tmp_path / "environment.py"
    program.write_text(ENVIRONMENT)
    variables = {"WARP_CACHE_PATH": str(KERNELS), "PHYSAI_CACHE": str(tmp_path)}
    (warmed,) = result("-c", START, "tasks", "warmup", "cartpole-swingup", "--json", "--device", "cpu", **variables)
    assert warmed["modules"] > 20
    assert warmed["task"] == "cartpole-swingup"
    # An environment as a trainer builds it, of fewer and of more worlds than were warmed up.
    loaded, compiled = result(str(program), **variables)
    assert loaded > 20
    assert compiled == []
    (again,) = result("-c", START, "tasks", "warmup", "cartpole-swingup", "--json", "--device", "cpu", **variables)
    assert (again["modules"] > 20, again["compiled"]) == (True, 0)


def test_kernels_are_kept_in_the_folder_of_the_user_and_compiles_are_counted(tmp_path: Path) -> None:
    """Which folder that is, tests/unit/sdk/base/test_user_cache.py says."""
    program = tmp_path / "own.py"
    program.write_text(OWN_KERNEL)
    expected = tmp_path / "cache" / "physai" / "warp"
    folders = {"PHYSAI_CACHE": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    values, compiled, folder = result(str(program), **folders)
    assert (values, compiled, Path(folder).parent) == ([2.0, 2.0, 2.0], [True], expected)
    before = files_of(expected)
    assert any(name.endswith(".o") for name in before)
    assert result(str(program), **folders)[1] == [False]
    assert files_of(expected) == before
    # Who chose a folder of Warp's own keeps it.
    chosen = tmp_path / "chosen"
    assert Path(result(str(program), **folders, WARP_CACHE_PATH=str(chosen))[2]).parent == chosen


def test_slow_compiles_are_announced_once(capfd: pytest.CaptureFixture[str]) -> None:
    warp = modules()[0]
    with listening(SlowCompileNotice()):
        for seconds, how in ((1.5, "compiled"), (9.0, "cached"), (0.4, "compiled")):
            warp.get_logger().info(f"Module a 1234567 load on device 'cpu' took {1e3 * seconds:.2f} ms  ({how})")
            assert capfd.readouterr().err == ""
        for _ in range(3):
            warp.get_logger().info("Module b 1234567 load on device 'cuda:0' took 600.00 ms  (compiled)")
        assert capfd.readouterr().err == NOTICE + "\n"
    told: list[LoadedModule] = []
    with listening(told.append):
        warp.get_logger().info("Module b 1234567 load on device 'cuda:0' took 600.00 ms  (compiled)")
    assert told == [LoadedModule(name="b", device="cuda:0", seconds=0.6, compiled=True)]


def test_numbers_are_set_by_hand_and_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHYSAI_CACHE", str(tmp_path))
    task = load_task("cartpole-swingup")
    assert (
        main(["tasks", "warmup", task.name, "--max-contacts", "5", "--max-constraints", "17", "--device", "cpu"]) == 0
    )
    assert "memory for 5 contacts and 17 constraints per world (set by hand)" in capsys.readouterr().out
    assert stored(task) == Capacities(max_contacts=5, max_constraints=17, by_hand=True)
    assert main(["tasks", "warmup", task.name, "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["max_constraints"] == 17
    assert main(["tasks", "warmup", task.name, "--measure", "--device", "cpu"]) == 0
    assert "(measured)" in capsys.readouterr().out
    assert stored(task) == Capacities(max_contacts=8, max_constraints=32)


def test_where_nothing_can_be_stored_the_numbers_are_used_all_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PHYSAI_CACHE", str(tmp_path / "file" / "cache"))
    for words, memory in (
        (["--max-contacts", "5", "--max-constraints", "17"], "memory for 5 contacts and 17 constraints"),
        (["--measure"], "memory for 8 contacts and 32 constraints"),
        ([], "memory for 8 contacts and 32 constraints"),
    ):
        assert main(["tasks", "warmup", "cartpole-swingup", *words, "--device", "cpu"]) == 0
        assert memory in capsys.readouterr().out
        assert "cannot be stored for later runs" in caplog.text
        caplog.clear()


def test_a_run_that_lacks_memory_stops_and_the_command_it_names_lets_it_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHYSAI_CACHE", str(tmp_path))
    task = load_task("go2-velocity")
    store(task, Capacities(max_contacts=1, max_constraints=4, by_hand=True))
    train = ["train", task.name, "--engine", "warp", "--device", "cpu", "--num-envs", "8", "--iterations", "2"]
    train += ["--set", "horizon=8", "--set", "minibatches=2", "--out"]
    assert main([*train, str(tmp_path / "stopped")]) == 2
    named = re.search(r"physai (tasks warmup TASK --max-contacts \d+ --max-constraints \d+)", capsys.readouterr().err)
    assert named is not None
    words = named[1].replace("TASK", task.name).split()
    assert main([*words, "--device", "cpu"]) == 0
    assert main([*train, str(tmp_path / "whole")]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "cuda:99"], "--device cuda:99: "),
        (["--device", "gpu"], "--device gpu: expected auto, cpu, cuda or cuda:N"),
        (["nope"], "no task named 'nope'"),
        (["--model", "ur10e"], "--model: name the one TASK that it is for; got 0"),
        (["ur10e-reach", "cartpole-swingup", "--preset", "a", "--twin", "b"], "--twin and --preset: name the one TASK"),
        (["ur10e-reach", "--twin", "missing.json"], "missing.json"),
        (["--max-contacts", "3"], "give both numbers, for one TASK"),
        (["--max-contacts", "3", "--max-constraints", "3"], "got 2 of 2 for 0 tasks"),
        (["cartpole-swingup", "--max-contacts", "0", "--max-constraints", "3"], "--max-contacts must lie in 1 …"),
        (["cartpole-swingup", "--max-contacts", "1", "--max-constraints", "1", "--measure"], "without --measure"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "warmup", *words]) == 2
    written = capsys.readouterr()
    assert message in written.err
    assert written.err.count("\n") == 1
    assert written.out == ""
