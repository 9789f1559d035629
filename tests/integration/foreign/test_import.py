"""`physai import`: a policy from elsewhere becomes a run folder that sees, commands and is refused as it should."""

import datetime
import hashlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from tests.support.foreign_reference import observed, wanted

from physai.foreign import ForeignPolicyError, OpenQuestionsError, import_policy
from physai.sdk.base.errors import PhysaiError, TaskError
from physai.sdk.cli.main import main
from physai.sdk.contract.io import load_contract
from physai.sim import PolicyEvaluation, evaluate, load_robot
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import find_origin
from physai.twin.virtual_robot.transport import simulated_robot

pytestmark = pytest.mark.slow

# Legs in another order than the robot has them.
LEGS = ("RR", "RL", "FR", "FL")
JOINTS = [f"{leg}_{part}_joint" for leg in LEGS for part in ("hip", "thigh", "calf")]
CLOCK = {"period_s": 0.5, "phases": [0.0, 3.0], "gate": 0.1, "standing_phase": 3.0}
DESCRIPTION: dict[str, Any] = {
    "network": "network.onnx",
    "joints": JOINTS,
    "default_pos": [0.1, 0.8, -1.5] * 4,
    "stiffness": [20.0, 25.0, 30.0] * 4,
    "damping": [0.5, 0.6, 0.7] * 4,
    "action_scale": [0.125, 0.25, 0.25] * 4,
    "control_dt": 0.02,
    "output_limit": 5.0,
    "command": [[-1.0, -0.5, -1.0], [1.0, 0.5, 1.0]],
    "observation": [
        {"of": "last_action"},
        {"of": "ang_vel", "scale": 0.25},
        {"of": "command", "elements": [2, 0], "scale": 2.0},
        {"of": "clock", "clock": {**CLOCK, "wave": "sin"}},
        {"of": "gravity"},
        {"of": "joint_pos"},
        {"of": "joint_vel", "scale": 0.05, "clip": 10.0},
        {"of": "clock", "clock": {**CLOCK, "wave": "cos"}},
    ],
}
SIZE = 12 + 3 + 2 + 2 + 3 + 12 + 12 + 2


class Plain(yaml.SafeDumper):
    """Without aliases, which descriptions may not have."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def network(path: Path, inputs: int = SIZE, outputs: int = 12, gain: float = 1.0) -> None:
    """An ONNX file as other frameworks write them: one row, an old operator set, documentation."""
    helper: Any = onnx.helper
    random = np.random.default_rng(3)
    shapes = {"w0": (inputs, 32), "b0": (32,), "w1": (32, outputs), "b1": (outputs,)}
    made = {name: random.uniform(-0.2, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    made["w1"] *= np.float32(gain)
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["obs", "w0", "b0"], ["hidden"], doc_string="actor.py, line 7"),
            helper.make_node("Elu", ["hidden"], ["bent"]),
            helper.make_node("Gemm", ["bent", "w1", "b1"], ["actions"]),
        ],
        "actor",
        [helper.make_tensor_value_info("obs", 1, [1, inputs])],
        [helper.make_tensor_value_info("actions", 1, [1, outputs])],
        [onnx.numpy_helper.from_array(value, name) for name, value in made.items()],
        doc_string="from another framework",
    )
    library: Any = onnx
    library.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), str(path))


def write(folder: Path, gain: float = 1.0, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    network(folder / "network.onnx", gain=gain)
    path = folder / "physai.yaml"
    kept = {name: value for name, value in {**DESCRIPTION, **changes}.items() if value is not None}
    path.write_text(yaml.dump(kept, Dumper=Plain), encoding="utf-8")
    return path


def refusal(tmp_path: Path, settings: dict[str, Any] | None = None, **changes: Any) -> str:
    path = write(tmp_path / "policy", **changes)
    with pytest.raises(ForeignPolicyError) as caught:
        import_policy(path, model="go2", out=tmp_path / "run", settings=settings or {})
    assert not (tmp_path / "run").exists()
    return str(caught.value)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign")
    # The gain brings some outputs beyond their limit and some targets beyond the joints' ranges.
    import_policy(write(folder / "policy", gain=8.0), model="go2", out=folder / "run")
    return folder / "run"


def test_observations_and_targets_are_those_of_its_own_program(run: Path) -> None:
    described = json.loads((run / "import.json").read_text())["description"]
    contract = load_contract(run / "task" / "contract.json")
    golden = dict(np.load(run / "export" / "golden.npz"))
    inputs = {name: np.asarray(value, np.float64) for name, value in golden.items() if name != "fingerprint"}
    seen = observed(described, list(contract.robot.joint_names), inputs)
    assert seen.shape == (256, SIZE)
    targets = wanted(described, run.parent / "policy" / "network.onnx", seen)
    action = contract.action.terms[0]
    bounded = np.clip(targets, action.lower, action.upper)
    assert (bounded != targets).any()
    np.testing.assert_allclose(golden["joint_pos_target"], bounded, atol=1e-5)
    outputs = (targets - described["default_pos"]) / described["action_scale"]
    assert np.abs(outputs).max() == pytest.approx(5.0)
    # What it remembers as its last action is the output within its own limit, though the target was clipped.
    np.testing.assert_allclose(golden["next.previous_action"], outputs, atol=1e-4)


def test_the_robot_has_the_policys_gains_and_pose(run: Path) -> None:
    contract, own = load_contract(run / "task" / "contract.json"), load_robot("go2").spec
    assert contract.format_version == 3
    assert contract.robot.joint_names == own.joint_names
    for joint, before in zip(contract.robot.joints, own.joints, strict=True):
        index = JOINTS.index(joint.name)
        assert (joint.stiffness, joint.damping) == (DESCRIPTION["stiffness"][index], DESCRIPTION["damping"][index])
        assert joint.default_pos == pytest.approx(DESCRIPTION["default_pos"][index])
        assert joint.effort_limit == before.effort_limit
        assert (joint.position_lower, joint.position_upper) == (before.position_lower, before.position_upper)
    model = find_origin(run / "export" / "policy.onnx").load().model
    for index, name in enumerate(JOINTS):
        servo = model.actuator(name)
        stiffness, damping = DESCRIPTION["stiffness"][index], DESCRIPTION["damping"][index]
        assert servo.gainprm[0] == stiffness
        assert servo.biasprm[:3].tolist() == [0.0, -stiffness, -damping]


def test_the_run_folder_goes_the_way_of_a_trained_one(run: Path, tmp_path: Path) -> None:
    """Nothing but the folder is needed: it is evaluated and judged from elsewhere."""
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for path in run.rglob("*"):
        if path.is_file():
            target = moved / path.relative_to(run)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    found = evaluate(moved, episodes=2)
    assert isinstance(found, PolicyEvaluation)
    assert found.fingerprint == OnnxPolicy.load(run).fingerprint
    # A network of random weights does not walk.
    assert not any(found.episodes.succeeded)
    assert main(["contract", "show", str(moved / "export" / "policy.onnx")]) == 0


def test_another_task_has_its_own_contract(run: Path) -> None:
    policy = run / "export" / "policy.onnx"
    assert find_origin(policy).load().contract == load_contract(run / "task" / "contract.json")
    other = find_origin(policy, task="go2-velocity")
    assert other.contract is None
    assert other.load().contract.format_version == 2


def test_the_page_names_each_source(run: Path) -> None:
    page = (run / "import.md").read_text(encoding="utf-8")
    for name in DESCRIPTION:
        if name != "network":
            assert f"| {name} |" in page
            assert f"physai.yaml: {name}" in page
    for phrase in ("operator set 13 became 18", "No file states", "frame of the angular velocity", "clipped to it"):
        assert phrase in page
    record = json.loads((run / "import.json").read_text())
    for name in ("network.onnx", "physai.yaml"):
        data = (run.parent / "policy" / name).read_bytes()
        assert record["files"][name] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", ["joints", "default_pos", "stiffness", "control_dt", "command", "observation"])
def test_what_no_file_states_is_asked_for_and_taken(tmp_path: Path, name: str) -> None:
    message = refusal(tmp_path, **{name: None})
    assert f"\n  {name}: " in message
    assert message.count("\n") == 1
    assert f"`settings` {name}=VALUE" in message


def test_the_command_line_asks_and_takes_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "policy", control_dt=None)
    words = ["import", str(path), "--model", "go2", "-o", str(tmp_path / "run")]
    assert main(words) == 2
    assert "no file states these, and none of them is guessed" in capsys.readouterr().err
    assert main([*words, "--set", "control_dt=0.02", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["sources"]["control_dt"] == "user"
    assert record["parity"]["greatest"] <= 1e-5
    assert main(words) == 2
    assert "not an empty folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"stiffness": [20.0] * 11}, "stiffness has 11 numbers, joints has 12 names"),
        ({"joints": [*JOINTS[:11], JOINTS[0]]}, "joints has RR_hip_joint twice"),
        ({"joints": [*JOINTS[:11], "tail"]}, "no joint named 'tail'"),
        ({"action_scale": [0.0] * 12}, "scales are above 0"),
        ({"control_dt": 0.0}, "control_dt"),
        ({"stiffness": [float("nan")] * 12}, "stiffness has nan"),
        ({"observation": [{"of": "base_lin_vel"}]}, "which no sensor of a robot measures"),
        ({"observation": [{"of": "joint_pos"}]}, "the network reads 48 numbers, the observation terms have 12"),
        ({"observation": [{"of": "gravity", "joints": JOINTS}]}, "has joints, which it does not consist of"),
        ({"joints": JOINTS[:9], "default_pos": [0.1, 0.8, -1.5] * 3}, "stiffness has 12 numbers, joints has 9 names"),
        ({"default_pos": [9.0] * 12}, "lies outside"),
        ({"joints": [f"j{n}" for n in range(20_000)]}, "joints has 20000 names, a robot has at most 64"),
        ({"control_dt": datetime.date(2020, 1, 1)}, "control_dt has a date"),
        ({"licence": b"hello"}, "licence has a bytes"),
        ({"control_dt": 1e300}, "control_dt has a number too large"),
        ({"held": {JOINTS[0]: {"position": 0.0, "stiffness": 1.0, "damping": 0.1}}}, "held has RR_hip_joint, which"),
        ({"action_scale": -1.0}, "action_scale has -1, scales are above 0"),
        ({"gait": 1.0}, "no key named 'gait'"),
        ({"network": "../network.onnx"}, "outside its folder"),
        ({"network": "missing.onnx"}, "missing.onnx"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, changes: dict[str, Any], phrase: str) -> None:
    path = write(tmp_path / "policy", **changes)
    with pytest.raises(PhysaiError, match=phrase.replace("(", r"\(")):
        import_policy(path, model="go2", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", ["[" * 900 + "]" * 900, "[" * 100_000])
def test_brackets_without_end_are_refused(tmp_path: Path, setting: str) -> None:
    path = write(tmp_path / "policy", control_dt=None)
    with pytest.raises(PhysaiError, match=r"brackets|control_dt"):
        import_policy(path, model="go2", out=tmp_path / "run", settings={"control_dt": setting})


def test_names_that_are_no_text_are_written_all_the_same(tmp_path: Path) -> None:
    odd = os.fsdecode(b"r\xff\xfe")
    path = write(tmp_path / "policy")
    named = path.rename(path.with_name(f"{odd}.yaml"))
    import_policy(named, model="go2", out=tmp_path / odd)
    assert sorted(one.name for one in (tmp_path / odd).iterdir()) == [
        "contract.json",
        "export",
        "import.json",
        "import.md",
        "task",
    ]


def test_an_import_that_ends_in_the_middle_leaves_nothing_that_looks_right(tmp_path: Path) -> None:
    path, out = write(tmp_path / "policy"), tmp_path / "run"
    script = (
        "import os\nfrom physai.foreign import import_policy\n"
        "from physai.foreign.conversion import assembly\n"
        "def end(*a, **k): os._exit(9)\n"
        "assembly.keep_task = end\n"
        f"import_policy({str(path)!r}, model='go2', out={str(out)!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, timeout=120)
    assert done.returncode == 9, done.stderr
    assert not out.exists()
    assert import_policy(path, model="go2", out=out).folder == out


def test_a_robot_that_is_not_there_is_no_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(PhysaiError, match=r"absent.xml") as caught:
        import_policy(write(tmp_path / "policy"), model=tmp_path / "absent.xml", out=tmp_path / "run")
    assert "cannot write" not in str(caught.value)
    assert [one.name for one in tmp_path.iterdir()] == ["policy"]


def test_a_place_that_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told: list[float] = []
    with pytest.raises(ForeignPolicyError, match="cannot write"):
        import_policy(write(tmp_path / "policy"), model="go2", out=tmp_path / "file" / "run", progress=told.append)
    assert told == [0.05]


def test_a_folder_of_a_robot_whose_record_is_no_text_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "decisions.json").write_bytes(b"\xff\xfe")
    with pytest.raises(PhysaiError, match="has no MJCF file"):
        import_policy(write(tmp_path / "policy"), model=folder, out=tmp_path / "run")


def test_a_statement_that_contradicts_a_file_is_refused_with_both(tmp_path: Path) -> None:
    message = refusal(tmp_path, {"control_dt": 0.01})
    assert "control_dt is 0.02 (physai.yaml: control_dt) and 0.01 (user)" in message


def test_joints_that_are_neither_commanded_nor_held_are_asked_for(tmp_path: Path) -> None:
    half: dict[str, Any] = {
        name: DESCRIPTION[name][:6] for name in ("joints", "default_pos", "stiffness", "damping", "action_scale")
    }
    folder = tmp_path / "policy"
    path = write(folder, **half)
    network(folder / "network.onnx", inputs=SIZE - 18, outputs=6)
    with pytest.raises(ForeignPolicyError, match="does not command FL_hip_joint"):
        import_policy(path, model="go2", out=tmp_path / "run")
    held = {name: {"position": 0.2, "stiffness": 50.0, "damping": 2.0} for name in JOINTS[6:] if "hip" in name}
    held |= {name: {"position": 0.9, "stiffness": 50.0, "damping": 2.0} for name in JOINTS[6:] if "thigh" in name}
    held |= {name: {"position": -1.6, "stiffness": 50.0, "damping": 2.0} for name in JOINTS[6:] if "calf" in name}
    found = import_policy(path, model="go2", out=tmp_path / "run", settings={"held": held})
    joints = {joint.name: joint for joint in found.contract.robot.joints}
    assert joints["FL_calf_joint"].default_pos == -1.6
    assert joints["FL_calf_joint"].stiffness == 50.0
    assert len(found.contract.action.terms[0].joints) == 6


@pytest.mark.parametrize("made", ["rotor inertia 0.1 kg·m² added", "speed limits"])
def test_a_robot_with_gains_of_ours_is_refused(tmp_path: Path, made: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "decisions.json").write_text(json.dumps({"text": made}), encoding="utf-8")
    with pytest.raises(ForeignPolicyError, match="name the file that the robot was imported from"):
        import_policy(write(tmp_path / "policy"), model=folder, out=tmp_path / "run")


def test_a_changed_contract_in_the_folder_is_refused(run: Path, tmp_path: Path) -> None:
    moved = tmp_path / "run"
    for path in run.rglob("*"):
        if path.is_file():
            target = moved / path.relative_to(run)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    path = moved / "task" / "contract.json"
    path.write_bytes(path.read_bytes().replace(b'"stiffness":20', b'"stiffness":40'))
    with pytest.raises(PhysaiError, match=r"contract.json was changed after the run began"):
        evaluate(moved, episodes=1)


def test_the_virtual_robot_follows_its_contract(run: Path) -> None:
    """By the run folder, and by the contract of an installed bundle with the robot of the run."""
    contract = load_contract(run / "task" / "contract.json")
    for task, robot in (
        simulated_robot(None, {"task": str(run)}, seed=0),
        simulated_robot(contract, {"robot": str(run / "task" / "robot.zip")}, seed=0),
    ):
        assert task.contract == robot.contract == contract
    with pytest.raises(TaskError, match="differ in the robot: its joints, gains, limits or sensors"):
        simulated_robot(contract, {}, seed=0)


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        (["0.02", "[[-1, -0.5, -1], [1, 0.5, 1]]"], ["control_dt", "command"]),
        ([" 0.02 ", ""], ["control_dt", "command"]),
        ([""], ["control_dt"]),
    ],
    ids=["all are answered", "the second is not", "none is"],
)
def test_what_no_file_states_is_asked_for_one_after_the_other(
    tmp_path: Path, answers: list[str], asked: list[str]
) -> None:
    file = write(tmp_path / "policy")
    described = yaml.safe_load(file.read_text(encoding="utf-8"))
    left = {name: value for name, value in described.items() if name not in ("control_dt", "command")}
    file.write_text(yaml.dump(left, Dumper=Plain), encoding="utf-8")
    names: list[str] = []

    def ask(name: str, meaning: str) -> str:
        assert meaning
        names.append(name)
        return answers[len(names) - 1]

    if all(answer.strip() for answer in answers):
        found = import_policy(file, model="go2", out=tmp_path / "run", ask=ask)
        assert found.sources["control_dt"] == "user"
        assert found.contract.timing.control_dt == pytest.approx(0.02)
    else:
        with pytest.raises(OpenQuestionsError) as raised:
            import_policy(file, model="go2", out=tmp_path / "run", ask=ask)
        assert raised.value.names[0] == asked[-1]
    assert names == asked


def test_on_a_terminal_it_asks_and_goes_on(tmp_path: Path) -> None:
    file = write(tmp_path / "policy")
    described = yaml.safe_load(file.read_text(encoding="utf-8"))
    del described["control_dt"]
    file.write_text(yaml.dump(described, Dumper=Plain), encoding="utf-8")
    ours, theirs = pty.openpty()
    program = "import sys; from physai.sdk.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "import", str(file), "--model", "go2", "-o", "run"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(theirs)
        os.write(ours, b"0.02\n")
        out, err = process.communicate(timeout=120)
    os.close(ours)
    assert process.returncode == 0, err
    assert "no file states control_dt: period of the policy [s]" in err
    assert "imported from physai" in out


def test_a_folder_with_a_description_is_imported(tmp_path: Path) -> None:
    file = write(tmp_path / "policy")
    found = import_policy(file.parent, model="go2", out=tmp_path / "run")
    assert found.contract == load_contract(tmp_path / "run" / "contract.json")


def test_what_the_policy_has_beyond_the_robots_file_is_said(tmp_path: Path) -> None:
    import_policy(write(tmp_path / "policy", effort=[500.0] * 12), model="go2", out=tmp_path / "run")
    page = (tmp_path / "run" / "import.md").read_text(encoding="utf-8")
    assert "effort: the policy's limits exceed those of the robot's file: RR_hip_joint 500 for 23.7" in page


@pytest.mark.parametrize(
    ("command", "source"),
    [
        ([[-0.5, -0.5, -1.0], [0.5, 0.2, 1.0]], "user, within physai.yaml: command"),
        ([[-2.0, -0.5, -1.0], [0.5, 0.2, 1.0]], None),
        ([[-0.5, -0.5], [0.5, 0.2]], None),
        ("fast", None),
    ],
    ids=["narrower", "wider", "two numbers", "a word"],
)
def test_the_command_may_be_narrowed_and_nothing_else(tmp_path: Path, command: Any, source: str | None) -> None:
    file = write(tmp_path / "policy")
    if source is None:
        with pytest.raises(ForeignPolicyError, match="contradicts itself"):
            import_policy(file, model="go2", out=tmp_path / "run", settings={"command": command})
        return
    found = import_policy(file, model="go2", out=tmp_path / "run", settings={"command": command})
    assert found.sources["command"] == source
    assert [list(found.contract.command.fields[0].lower), list(found.contract.command.fields[0].upper)] == command
