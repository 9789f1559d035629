"""Extensions of other packages: the example package is built as a wheel, and found by its entry points."""

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from physai.gates import Context, Gate, GateError, GateSettings, Play, load_gates
from physai.gates.runner import (
    ProgressLine,
    _RunningGate,  # pyright: ignore[reportPrivateUsage]
    all_gates,
)
from physai.sdk import ContractError, ObservationTerm, VerdictOutcome
from physai.sdk.base.errors import ModelError, UnknownNameError
from physai.sdk.base.plugins import PluginError
from physai.sim import import_robot, load_robot, load_task
from physai.train.models.observation_functions import ObservationFunctionError
from physai.train.models.policy_graph import ObservationTerms
from physai.twin import read_log
from physai.twin.logs import LogError

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "plugins"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what pip would install from the example."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=EXAMPLE, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("physai_plugins-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def plugins(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The site folder, on the path of one test."""
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    yield site
    for name in [name for name in sys.modules if name.partition(".")[0] == "plugins"]:
        del sys.modules[name]


def save(path: Path, columns: Mapping[str, Any]) -> None:
    write: Any = np.savez
    write(path, **columns)


def contribute(folder: Path, group: str, *entries: str) -> None:
    """Writes an installed distribution with entry points."""
    info = folder / f"other{folder.name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: other{folder.name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *entries]) + "\n")


def test_a_log_in_ones_own_format_is_read_like_the_same_csv(plugins: Path, tmp_path: Path) -> None:
    time = np.arange(200) / 100.0
    columns = {
        "time": time,
        "slider_pos": 0.1 * np.sin(time),
        "pole_pos": np.cos(time),
        "slider_effort": np.sin(2 * time),
    }
    save(tmp_path / "run.npz", columns)
    rows = "\n".join(",".join(repr(float(value)) for value in row) for row in zip(*columns.values(), strict=True))
    (tmp_path / "run.csv").write_text(",".join(columns) + "\n" + rows + "\n")
    joints = {"slider": {"joint_pos": "slider_pos", "joint_effort": "slider_effort"}, "pole": {"joint_pos": "pole_pos"}}
    column_map = {"time": {"column": "time", "unit": "s"}, "joints": joints}
    (tmp_path / "columns.yaml").write_text(json.dumps(column_map))
    robot = load_robot("cartpole").spec
    mine, csv = (read_log(tmp_path / f"run.{suffix}", robot) for suffix in ("npz", "csv"))
    assert mine.name == "run"
    assert np.array_equal(mine.time, csv.time)
    assert np.array_equal(mine.joint_pos, csv.joint_pos)
    assert mine.joint_effort is not None
    assert csv.joint_effort is not None
    assert np.array_equal(mine.joint_effort, csv.joint_effort, equal_nan=True)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"time": np.arange(3.0), "slider_pos": np.arange(2.0)}, r"columns of lengths \[2, 3\]; give one length"),
        ({"time": np.ones((3, 2))}, r"column 'time' has shape \(3, 2\); give one number per sample"),
        ({"time": np.array(["a", "b"])}, "the reader 'npz' fails: ValueError"),
        ({"time": np.arange(1.0)}, "1 rows, at least 2 are needed"),
        ({}, r"columns of lengths \[\]; give one length"),
    ],
)
def test_a_log_that_is_no_table_is_refused(plugins: Path, tmp_path: Path, columns: Any, message: str) -> None:
    save(tmp_path / "run.npz", columns)
    with pytest.raises(LogError, match=message):
        read_log(tmp_path / "run.npz", load_robot("cartpole").spec)


def test_a_file_that_the_reader_cannot_read(plugins: Path, tmp_path: Path) -> None:
    (tmp_path / "run.npz").write_text("no archive")
    with pytest.raises(LogError, match="the reader 'npz' fails: "):
        read_log(tmp_path / "run.npz", load_robot("cartpole").spec)


def test_without_the_package_the_format_is_unknown(tmp_path: Path) -> None:
    np.savez(tmp_path / "run.npz", time=np.arange(3.0))
    with pytest.raises(LogError, match="unknown format"):
        read_log(tmp_path / "run.npz", load_robot("cartpole").spec)


def test_a_robot_in_ones_own_format_has_the_masses_of_its_file(plugins: Path, tmp_path: Path) -> None:
    (tmp_path / "arm.chain").write_text("upper 0.4 1.5 20\nlower 0.3 0.5 10\n")
    imported = import_robot(tmp_path / "arm.chain", tmp_path / "arm")
    mj: Any = mujoco
    model: Any = mj.MjModel.from_xml_path(str(next((tmp_path / "arm").glob("*.xml"))))
    assert [model.body(name).mass[0] for name in ("upper", "lower")] == [1.5, 0.5]
    assert imported.robot.spec.joint_names == ("joint_upper", "joint_lower")
    assert [joint.effort_limit for joint in imported.robot.spec.joints] == [20.0, 10.0]
    assert "plugins.chain_robot:to_urdf" in (imported.folder / "decisions.json").read_text()
    (tmp_path / "bad.chain").write_text("upper 0.4\n")
    with pytest.raises(ModelError, match=r"bad.chain:1: 'upper 0.4' is no NAME LENGTH_M"):
        import_robot(tmp_path / "bad.chain", tmp_path / "bad")


def energetic(**changes: Any) -> Any:
    """The contract of the cart-pole with a term of the example's function."""
    contract = load_task("cartpole-swingup").contract
    fields: dict[str, Any] = {
        "name": "energy",
        "kind": "function",
        "function": "energy",
        "source": "joint_vel",
        "size": 3,
    } | changes
    terms = (*contract.observation.terms, ObservationTerm(**fields))
    document = contract.model_dump() | {"format_version": 2, "observation": {"terms": [t.model_dump() for t in terms]}}
    return type(contract).model_validate_json(json.dumps(document))


def test_an_observation_function_is_part_of_the_graph(plugins: Path) -> None:
    contract = energetic()
    graph = ObservationTerms(contract)
    assert graph.size == contract.observation_size
    sensors = {sensor.name: torch.zeros(1, sensor.size) for sensor in contract.robot.sensors}
    sensors["joint_vel"] = torch.tensor([[2.0, -3.0]])
    state = {"previous_action": torch.zeros(1, contract.action.size), "started": torch.zeros(1, 1)}
    values, _ = graph(sensors, {}, state)
    assert values[0, contract.observation_slices["energy"]].tolist() == [4.0, 9.0, 13.0]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"size": 4}, ObservationFunctionError, r"returns shape \(2, 3\) .*'energy' says \(2, 4\)"),
        ({"function": "enrgy"}, UnknownNameError, "no observation function named 'enrgy'; did you mean energy"),
        ({"size": None}, ContractError, "a term of kind function needs function and size"),
        ({"source": "joint_acc"}, ContractError, "no sensor or command named 'joint_acc'"),
        ({"kind": "sensor"}, ContractError, "a term of kind sensor has no function and no size, got 'energy' and 3"),
    ],
)
def test_a_function_that_does_not_fit_is_refused(
    plugins: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises((error, ValueError), match=message):
        ObservationTerms(energetic(**changes))


def test_plugins_that_return_something_else_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong_plugins.py").write_text("def nothing(*words):\n    return None\n")
    for number, (group, name) in enumerate(
        [
            ("physai.log_readers", "lg"),
            ("physai.importers", "rb"),
            ("physai.observation_functions", "energy"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        contribute(folder, group, f"{name} = wrong_plugins:nothing")
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "a.lg").write_text("x")
    (tmp_path / "a.rb").write_text("x")
    with pytest.raises(LogError, match="the reader 'lg' returns NoneType, not columns by name"):
        read_log(tmp_path / "a.lg", load_robot("cartpole").spec)
    with pytest.raises(ModelError, match="the importer 'rb' returns NoneType, not the text of a file"):
        import_robot(tmp_path / "a.rb", tmp_path / "robot")
    with pytest.raises(ObservationFunctionError, match="'energy' returns NoneType, not a tensor"):
        ObservationTerms(energetic())


class QuietGate(Gate):
    """A gate without texts."""

    name = "quiet"
    question = "?"

    def method(self, context: Context) -> str:
        return ""

    def threshold(self, context: Context) -> str:
        return ""

    def most_episodes(self, context: Context) -> int:
        return 8


class FailingGate(QuietGate):
    """Raises in the middle."""

    name = "failing"

    def play(self, context: Context) -> Play:
        played = yield [context.batch(0, context.conditions["calibrated"], count=8)]
        raise ValueError(f"{played} is not enough")


class SilentGate(QuietGate):
    """Forgets its finding."""

    name = "silent"

    def play(self, context: Context) -> Any:
        yield [context.batch(0, context.conditions["calibrated"], count=8)]


@pytest.mark.parametrize(
    ("gate", "message"),
    [(FailingGate, "fails: ValueError: .* is not enough"), (SilentGate, "returns None, not a GateFinding")],
)
def test_a_gate_that_fails_is_named(
    gate: type[Gate], message: str, bench: Any, write_policy: Callable[..., Path], find: Callable[..., Any]
) -> None:
    running = _RunningGate(ProgressLine(gate(), 8), gate().play(bench.context(write_policy())))
    running.send(None)
    with pytest.raises(GateError, match=message):
        running.send([])


def test_a_gate_of_ones_own_judges(
    plugins: Path, bench: Any, write_policy: Callable[..., Path], find: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "gates.yaml").write_text("further: [duration]\n")
    settings = load_gates(tmp_path / "gates.yaml")
    assert settings.sha256 != GateSettings().sha256
    gate = all_gates(None, settings.further)["duration"]
    context = bench.context(write_policy())
    finding = find(gate, replace(context, settings=context.settings.model_copy(update={"further": ("duration",)})))
    assert finding.outcome is VerdictOutcome.PASS
    assert [one.name for one in finding.measured] == ["share_of_time"]


def test_gates_that_cannot_be_used(plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="no gate named 'durations'; did you mean duration"):
        all_gates(None, ["durations"])
    with pytest.raises(GateError, match="the gate 'twin' is built in"):
        all_gates(None, ["twin"])
    contribute(tmp_path, "physai.gates", "number = math:pi", "duration = math:tau", "gone = no_such_module:Gate")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(GateError, match=r"3\.14.*; give a subclass of Gate"):
        all_gates(None, ["number"])
    with pytest.raises(
        GateError, match=r"'duration' is in math:tau and in plugins\.duration_gate:DurationGate; uninst"
    ):
        all_gates(None, ["duration"])
    with pytest.raises(PluginError, match="cannot be imported from no_such_module:Gate"):
        all_gates(None, ["gone"])


@pytest.mark.parametrize("page", ["gate", "log-reader", "importer", "observation-function"])
def test_the_guide_shows_the_example(page: str) -> None:
    """Each code block with a title is a file of the example, word for word."""
    text = (ROOT / "docs" / "how-to" / f"write-{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r'^```\w+ title="([\w./]+)"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    assert blocks
    for name, block in blocks:
        source = (EXAMPLE / name).read_text(encoding="utf-8")
        assert block.strip() in source, name
