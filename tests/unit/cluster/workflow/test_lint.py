"""What `physai workflow lint` finds, and that it finds nothing in a sound file."""

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.support.contract_workflows import write_workflow

from physai.cluster.workflow import model_files
from physai.cluster.workflow.lint import lint, require_sound
from physai.cluster.workflow.workflow_file import WorkflowError, load_workflow
from physai.sim.robots.files.urdf import MESH_SUFFIXES
from physai.sim.robots.loader import load_robot
from physai.twin.model.twin import moved_twin, nominal_twin, save_twin

IMAGES = {
    "train": {"name": "registry.example.org/train:1", "platforms": ["linux/amd64"]},
    "robot": {"name": "registry.example.org/robot:1-arm64", "platforms": ["linux/arm64"]},
}
SOUND: dict[str, Any] = {
    "calibrate": {
        "command": ["sim", "calibrate", "ur10e", "${inputs.log}", "--out", "${outputs.twin}"],
        "inputs": {"log": {"path": "log.csv"}},
        "outputs": {"twin": "twin.json"},
        "image": "train",
        "resources": {"platform": "linux/amd64"},
    },
    "train": {
        "command": ["train", "ur10e-reach", "--twin", "${inputs.twin}", "--out", "${outputs.run}", "--seed", 3],
        "inputs": {"twin": {"from": "calibrate.twin"}},
        "outputs": {"run": "run"},
        "image": "train",
    },
    "export": {
        "command": ["export", "${outputs.run}"],
        "inputs": {"run": {"from": "train.run"}},
        "outputs": {"run": {"path": "run", "copy_of": "run"}},
        "image": "train",
    },
    "learn-elsewhere": {
        "members": [
            {"name": "twin", "command": ["sim", "serve", "--host", "127.0.0.1"]},
            {"name": "learner", "lead": True, "command": ["eval", "${inputs.run}", "--json"]},
        ],
        "inputs": {"run": {"from": "export.run"}},
        "stdout": "scores",
        "outputs": {"scores": "scores.json"},
    },
    "push": {
        "command": ["bundle", "push", "${inputs.bundle}", "--server", "https://twins.example.org"],
        "inputs": {"bundle": {"path": "log.csv"}},
        "credentials": [{"env": "PHYSAI_TOKEN", "secret": "physai", "key": "token"}],
    },
}


def findings(tmp_path: Path, stages: dict[str, Any], images: dict[str, Any] = IMAGES) -> list[tuple[str, str, str]]:
    (tmp_path / "log.csv").write_text("t,q1\n")
    workflow = load_workflow(write_workflow(tmp_path / "workflow.yaml", stages, images=images))
    return [(found.stage, found.rule, found.message) for found in lint(workflow, tmp_path)]


def test_a_sound_workflow_has_no_findings(tmp_path: Path) -> None:
    assert findings(tmp_path, SOUND) == []


CASES: dict[str, tuple[str, str, Any, str, str]] = {
    "an arm64 stage with an amd64 image": (
        "calibrate", "resources", {"platform": "linux/arm64"}, "platform",
        "it runs on linux/arm64, but its image registry.example.org/train:1 is for linux/amd64",
    ),
    "an unknown image": ("train", "image", "tarin", "platform", "did you mean train?"),
    "an unknown stage": (
        "train", "inputs", {"twin": {"from": "calibrat.twin"}}, "inputs", "did you mean calibrate?",
    ),
    "an unknown output": ("train", "inputs", {"twin": {"from": "calibrate.twins"}}, "inputs", "did you mean twin?"),
    "a missing file": ("calibrate", "inputs", {"log": {"path": "logs.csv"}}, "inputs", "there is no "),
    "an input outside": ("calibrate", "inputs", {"log": {"path": "a/../../log.csv"}}, "inputs", "leads out of"),
    "an output outside": ("calibrate", "outputs", {"twin": "a/../../twin.json"}, "outputs", "leads out of"),
    "an absolute path in a command": (
        "export", "command", ["export", "/runs/one"], "command", "'/runs/one' leads out of",
    ),
    "a path out after an equals sign": (
        "train", "command", ["train", "reach", "--set", "a=../b", "--out", "${outputs.run}"], "command", "leads out of",
    ),
    "a path out in one word with its option": (
        "calibrate", "command", ["sim", "record", "ur10e", "-o/etc/x"], "command", "'/etc/x' leads out of",
    ),
    "a path out after a comma": (
        "train", "command", ["train", "reach", "--set", "a=b,/etc", "--out", "${outputs.run}"], "command",
        "leads out of",
    ),
    "a secret that chooses code": (
        "push", "credentials",
        [{"env": name, "secret": "physai", "key": "token"} for name in ("PHYSAI_TOKEN", "LD_PRELOAD")],
        "credentials", "LD_PRELOAD is no place for a secret",
    ),
    "a name that no file system takes": (
        "train", "outputs", {"run": "a/" + "x" * 256}, "outputs",
        "a name of 256 characters, of which file systems allow 255",
    ),
    "two outputs at one path": (
        "train", "outputs", {"run": "run", "curve": "run/curve.png"}, "outputs", "give each a path of its own",
    ),
    "an output that is never written": ("push", "outputs", {"receipt": "r.json"}, "outputs", "is never written"),
    "a copy of no input": (
        "export", "outputs", {"run": {"path": "run", "copy_of": "rum"}}, "outputs", "did you mean run?",
    ),
    "printing to no output": ("learn-elsewhere", "stdout", "score", "outputs", "did you mean scores?"),
    "an unknown placeholder": (
        "export", "command", ["export", "${outputs.run}", "--out", "${outputs.rum}"], "command", "did you mean run?",
    ),
    "a malformed placeholder": ("export", "command", ["export", "${run}"], "command", "'${run}' is no placeholder"),
    "another program": ("export", "command", ["bash", "-c", "true"], "command", "no stage runs 'bash'"),
    "a verb that drives a robot": ("export", "command", ["robot", "run"], "command", "no stage runs `robot run`"),
    "a run in a run": ("export", "command", ["workflow", "run", "x.yaml"], "command", "no stage runs 'workflow'"),
    "a misspelt option": (
        "export", "command", ["export", "${outputs.run}", "--state", "3"], "command", "did you mean --states",
    ),
    "a task file": ("train", "command", ["train", "mine.py", "--out", "${outputs.run}"], "command", "is Python"),
    "a task file after an equals sign": (
        "export", "command", ["export", "${outputs.run}", "--task=mine.PY"], "command", "is Python",
    ),
    "a run whose task file would run": (
        "export", "command", ["export", "${outputs.run}", "--task", "${inputs.run}"], "command", "is a path,",
    ),
    "a program on the robot": (
        "push", "command", ["flash", "robot", "${inputs.bundle}", "--physai", "sh"], "command", "names a program",
    ),
    "a service without a token": ("push", "credentials", [], "credentials", "takes its token from PHYSAI_TOKEN"),
    "a tracker without a key": (
        "train", "command", ["train", "reach", "--wandb", "p", "--out", "${outputs.run}"], "credentials", "WANDB",
    ),
    "a gang without a lead": (
        "learn-elsewhere", "members",
        [{"name": "a", "command": ["sim", "serve"]}, {"name": "b", "command": ["eval", "${inputs.run}"]}],
        "gang", "2 members (a, b) and 0 leads",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_finding_names_the_stage_the_rule_and_the_way_out(case: str, tmp_path: Path) -> None:
    stage, field, value, rule, message = CASES[case]
    stages = copy.deepcopy(SOUND)
    stages[stage][field] = value
    found = findings(tmp_path, stages)
    assert [text for name, kind, text in found if (name, kind) == (stage, rule) and message in text], found


def test_stages_that_need_each_other(tmp_path: Path) -> None:
    stages = copy.deepcopy(SOUND)
    stages["calibrate"]["inputs"]["run"] = {"from": "export.run"}
    ((stage, rule, message),) = findings(tmp_path, stages)
    assert (stage, rule) == ("", "cycle")
    assert {"calibrate", "train", "export"} <= set(message.replace(":", "").split())


def test_names_that_osmo_does_not_tell_apart(tmp_path: Path) -> None:
    stages = copy.deepcopy(SOUND)
    stages["ex-port"] = copy.deepcopy(stages["export"])
    ((_, rule, message),) = findings(tmp_path, stages)
    assert rule == "names"
    assert message.startswith("export and ex-port are the same name")


def test_an_image_named_for_another_architecture(tmp_path: Path) -> None:
    images = copy.deepcopy(IMAGES)
    images["robot"]["platforms"] = ["linux/amd64"]
    ((_, rule, message),) = findings(tmp_path, SOUND, images)
    assert rule == "images"
    assert "named as one for linux/arm64, but its platforms are linux/amd64" in message


def test_a_link_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "secret.csv").write_text("t\n")
    (folder / "link.csv").symlink_to(tmp_path / "secret.csv")
    stages = copy.deepcopy(SOUND)
    stages["calibrate"]["inputs"]["log"]["path"] = "link.csv"
    ((stage, rule, message),) = findings(folder, stages)
    assert (stage, rule) == ("calibrate", "inputs")
    assert "links out of" in message


@pytest.mark.parametrize("word", ["arm/", "--robot=arm/arm.urdf", "log.csv"])
def test_a_file_that_is_no_input(word: str, tmp_path: Path) -> None:
    (tmp_path / "arm").mkdir()
    (tmp_path / "arm" / "arm.urdf").write_text("<robot/>")
    stages = copy.deepcopy(SOUND)
    stages["train"]["command"].append(word)
    found = [text for name, _, text in findings(tmp_path, stages) if name == "train" and "next to the workflow" in text]
    assert [text.split("'")[1] for text in found] == [word.removeprefix("--robot=")]


URDF = '<robot name="a"><link name="b"><visual><geometry><mesh filename="{}"/></geometry></visual></link></robot>'
MJCF = '<mujoco><compiler meshdir="../meshes"/><asset><mesh file="link.stl"/></asset></mujoco>'


@pytest.mark.parametrize(
    "model", [URDF.format("../meshes/link.stl"), URDF.format("package://arm/meshes/link.stl"), MJCF]
)
@pytest.mark.parametrize(("given", "sound"), [("arm", True), ("arm/models", False), ("arm/models/arm.xml", False)])
def test_a_robot_is_an_input_with_its_meshes(given: str, sound: bool, model: str, tmp_path: Path) -> None:
    """A mesh outside the input is not in the key: if it changed, the stage would not run again."""
    for name in ("models", "meshes"):
        (tmp_path / "arm" / name).mkdir(parents=True)
    (tmp_path / "arm" / "models" / "arm.xml").write_text(model)
    (tmp_path / "arm" / "meshes" / "link.stl").write_bytes(bytes(84))
    stages = copy.deepcopy(SOUND)
    stages["train"]["inputs"]["robot"] = {"path": given}
    found = findings(tmp_path, stages)
    assert found == [] if sound else ("link.stl, which is not in" in found[0][2] and len(found) == 1), found


@pytest.mark.parametrize(
    ("given", "beside", "sound"),
    [
        ("rec/policy.onnx", "policy.int8.onnx", False),
        ("rec/policy.int8.onnx", "policy.onnx", False),
        ("rec/data_measured_x.csv", "data_desired_x.csv", False),
        ("rec/data_measured_x.csv", "data_desired_y.csv", True),
        ("rec/01.parquet", "meta/info.json", False),
        ("rec", "meta/info.json", True),
        ("rec/data", "meta/info.json", False),
        ("rec/01.csv", "columns.yaml", False),
        ("rec/01.csv", "01.columns.yaml", False),
        ("rec/01.csv", "02.columns.yaml", True),
        ("rec", "columns.yaml", True),
        ("rec/policy.onnx", "golden.npz", False),
        ("rec", "golden.npz", True),
    ],
)
def test_what_is_read_beside_an_input_belongs_to_it(given: str, beside: str, sound: bool, tmp_path: Path) -> None:
    """A stage does not see it, and a change of it would not run the stage again."""
    (tmp_path / "rec").mkdir()
    for name in ("01.csv", "policy.onnx", "policy.int8.onnx", given.partition("/")[2], "data/1.parquet", beside):
        (tmp_path / "rec" / name).parent.mkdir(exist_ok=True)
        if name != "data":
            (tmp_path / "rec" / (name or "01.csv")).touch()
    for name in {"policy.onnx", "policy.int8.onnx"} - {Path(given).name, beside}:
        (tmp_path / "rec" / name).unlink()
    stages = copy.deepcopy(SOUND)
    stages["calibrate"]["inputs"]["log"] = {"path": given}
    found = [message for _, _, message in findings(tmp_path, stages)]
    assert found == [] if sound else (f"{beside}, which is not in '{given}'" in found[0] and len(found) == 1), found


INCLUDING = '<mujoco><compiler meshdir="{folder}"/><include file="part.mjcf"/></mujoco>'
PART = '<mujocoinclude><asset><mesh file="link.stl"/></asset></mujocoinclude>'
XACRO = '<robot xmlns:xacro="http://ros.org/wiki/xacro"><xacro:include filename="{}"/></robot>'


@pytest.mark.parametrize(
    ("name", "text", "other"),
    [
        ("arm.xml", INCLUDING, "link.stl"),
        ("arm.xml", '<mujoco><include file="{folder}/other.xml"/></mujoco>', "other.xml"),
        ("arm.xml", '<mujoco><asset><texture fileback="{folder}/sky.png"/></asset></mujoco>', "sky.png"),
        ("arm.urdf.xacro", XACRO.format("{folder}/macros.xacro"), "macros.xacro"),
        ("arm.urdf.xacro", XACRO.format("../outside/macros.xacro"), "macros.xacro"),
        ("arm.urdf.xacro", XACRO.format("$(find outside)/macros.xacro"), "macros.xacro"),
    ],
)
def test_what_a_model_names_elsewhere_is_found(name: str, text: str, other: str, tmp_path: Path) -> None:
    """Also in files that it includes, and by absolute paths."""
    outside = tmp_path / "outside"
    for folder in (outside, tmp_path / "arm"):
        folder.mkdir()
    for file in ("link.stl", "other.xml", "sky.png", "macros.xacro"):
        (outside / file).touch()
    (tmp_path / "arm" / name).write_text(text.replace("{folder}", str(outside)))
    (tmp_path / "arm" / "part.mjcf").write_text(PART)
    stages = copy.deepcopy(SOUND)
    stages["train"]["inputs"]["robot"] = {"path": "arm"}
    ((_, rule, message),) = findings(tmp_path, stages)
    assert rule == "inputs"
    assert f"{tmp_path / 'arm' / name} is read with {outside / other}, which is not in 'arm'" in message


def test_a_twin_is_an_input_with_its_robot(tmp_path: Path) -> None:
    (tmp_path / "arm.xml").write_bytes(load_robot("so101").path.read_bytes())
    (tmp_path / "twins").mkdir()
    save_twin(moved_twin(nominal_twin(load_robot(tmp_path / "arm.xml")), tmp_path / "twins"), tmp_path / "twins/t.json")
    stages = copy.deepcopy(SOUND)
    stages["train"]["inputs"]["twin"] = {"path": "twins"}
    ((_, _, message),) = findings(tmp_path, stages)
    assert f"t.json is read with {tmp_path / 'arm.xml'}, which is not in 'twins'" in message


def test_more_files_than_are_looked_at_are_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "MAX_FILES", 3)
    (tmp_path / "arm").mkdir()
    for number in range(4):
        (tmp_path / "arm" / f"{number}.urdf").write_text(URDF.format("x.stl"))
    stages = copy.deepcopy(SOUND)
    stages["train"]["inputs"]["robot"] = {"path": "arm"}
    ((_, _, message),) = findings(tmp_path, stages)
    assert "'arm' has more than 3 files" in message


def test_a_model_whose_meshes_are_missing_or_names_no_file_can_have_is_an_input(tmp_path: Path) -> None:
    """A URDF without its meshes gets rods."""
    names = ["../base.dae", *(f"{name}{MESH_SUFFIXES[0]}" for name in ("../no", "package://a/no", "%00", "x" * 5000))]
    (tmp_path / "base.dae").touch()
    (tmp_path / "arm").mkdir()
    for number, name in enumerate(names):
        (tmp_path / "arm" / f"{number}.urdf").write_text(URDF.format(name))
    (tmp_path / "arm" / "broken.xml").write_text("<mujoco>")
    stages = copy.deepcopy(SOUND)
    stages["train"]["inputs"]["robot"] = {"path": "arm"}
    assert findings(tmp_path, stages) == []


def test_an_unsound_workflow_is_refused_with_all_findings(tmp_path: Path) -> None:
    stages = copy.deepcopy(SOUND)
    stages["export"]["command"] = ["bash"]
    stages["push"]["credentials"] = []
    path = write_workflow(tmp_path / "workflow.yaml", stages, images=IMAGES)
    with pytest.raises(WorkflowError) as caught:
        require_sound(load_workflow(path), path, inputs_exist=False)
    heading, *lines = str(caught.value).splitlines()
    assert heading == f"{path}: 2 findings"
    assert [line.split(":")[0].strip() for line in lines] == ["export", "push"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [1]\nb: *a\n", "aliases are not allowed"),
        ("stages: {a: {command: [doctor]}, a: {command: [doctor]}}", "'a' occurs twice"),
        ("x" * (1 << 19), "more than 262144 bytes"),
        ("[]", "valid dictionary"),
        ("format_version: 2\nname: a\nstages: {a: {command: [doctor]}}", "format_version: Input should be 1"),
        ("format_version: 1\nname: a\nstages: {}", "stages: Dictionary should have at least 1 item"),
        ("format_version: 1\nname: a\nstages: {a: {}}", "either `command` or `members`"),
        ("format_version: 1\nname: a\nstages: {a: {command: []}}", "at least 1 item"),
        ("format_version: 1\nname: a\nstages: {a: {command: keys init x}}", "a list of words, [keys, init, x, …]"),
        ("format_version: 1\nname: a\nstages: {a: {command: ['a{#b']}}", "a template of OSMO"),
        ("format_version: 1\nname: a\nstages: " + "- " * 100_000, "not YAML"),
        ("format_version: 1\nname: a\nstages: {a: {command: [doctor], retires: 1}}", "retires: unknown field"),
        ("format_version: 1\nname: a\nstages: {a: {command: ['{{uuid}}']}}", "a template of OSMO"),
        ("format_version: 1\nname: a\nstages: {a: {command: [\"a\\nb\"]}}", "should match pattern"),
        ("format_version: 1\nname: a\nstages: {a: {command: [doctor], inputs: {b: {}}}}", "either `from` or `path`"),
        ("format_version: 1\nname: a\nstages: {a: {command: [doctor], resources: {cpus: 0}}}", "equal to 1"),
        ("format_version: 1\nname: a\nstages: {a: {command: [doctor], resources: {memory: .inf}}}", "valid string"),
        ("format_version: 1\nname: a\nstages: {a: {command: [doctor], outputs: {b: /etc/passwd}}}", "match pattern"),
    ],
)  # fmt: skip
def test_bad_files(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "workflow.yaml"
    path.write_text(text)
    with pytest.raises(WorkflowError) as caught:
        load_workflow(path)
    assert message in str(caught.value)
