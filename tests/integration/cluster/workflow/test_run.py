"""`physai workflow run` with real stages: what runs again, what a kill leaves behind, and what a failure says."""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.contract_workflows import compare, show, write_contract, write_workflow
from tests.support.patience import until
from tests.support.workflow_runs import PROGRAM, SIX, endless, no_process_of, run, states

from physai.cluster.workflow.cache.store import ResultStore
from physai.cluster.workflow.executors.local import Here
from physai.cluster.workflow.executors.place import disk_problem
from physai.cluster.workflow.executors.resources import ResourceLimits
from physai.cluster.workflow.runner import WorkflowRun, log_tail
from physai.cluster.workflow.workflow_file import load_workflow
from physai.sdk.cli.main import main
from physai.sdk.contract.contract_schema import schema_text


@pytest.fixture
def six(tmp_path: Path) -> Path:
    write_contract(tmp_path / "a.json", "one")
    write_contract(tmp_path / "b.json", "two")
    return write_workflow(tmp_path / "workflow.yaml", SIX)


def test_a_second_run_takes_everything_from_the_cache_and_starts_no_process(six: Path) -> None:
    first = run(six)
    assert first.returncode == 0, first.stderr
    assert states(first) == dict.fromkeys(states(first), "done")
    assert (six.parent / "run" / "results" / "schema" / "schema.json").read_text() == schema_text()
    logs = {path: path.stat().st_mtime_ns for path in (six.parent / "run" / "logs").iterdir()}
    second = run(six)
    assert states(second) == dict.fromkeys(SIX, "cached")
    # A stage that starts writes its command line to its log.
    assert {path: path.stat().st_mtime_ns for path in (six.parent / "run" / "logs").iterdir()} == logs
    assert {path.stem for path in logs} == set(SIX)


def test_a_changed_input_runs_the_stages_after_it(six: Path) -> None:
    run(six)
    before = (six.parent / "b.json").stat()
    write_contract(six.parent / "b.json", "six")
    # Of the same size and time, as a copy with times or a clock that goes back make it.
    os.utime(six.parent / "b.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (six.parent / "b.json").stat().st_size == before.st_size
    assert {name for name, state in states(run(six)).items() if state == "done"} == {"b", "both", "all"}
    assert json.loads((six.parent / "run/results/b/said.json").read_text())["contract"]["task"] == "six"
    # The old input's results are still there.
    write_contract(six.parent / "b.json", "two")
    assert set(states(run(six)).values()) == {"cached"}


def test_until_runs_a_stage_and_those_it_needs(six: Path) -> None:
    assert states(run(six, "--until", "left")) == {"both": "done", "left": "done"}


@pytest.mark.slow
def test_a_stage_runs_again_when_asked_for_and_what_follows_only_if_it_differs(six: Path) -> None:
    run(six)
    assert {name for name, state in states(run(six, "--rerun", "both")).items() if state == "done"} == {"both"}
    assert run(six, "--rerun", "bot").returncode == 2


def test_what_a_single_stage_needs_may_have_been_made_on_a_larger_computer(tmp_path: Path) -> None:
    write_contract(tmp_path / "a.json")
    stages = {
        "large": compare({"path": "a.json"}, {"path": "a.json"}, resources={"cpus": 3}),
        "small": show({"from": "large.contract"}),
    }
    file = write_workflow(tmp_path / "workflow.yaml", stages)
    alone = run(file, "--until", "small", "--cpus", "1")
    assert states(alone) == {"large": "failed", "small": "skipped"}
    assert "large: failed: stage large asks for 3 CPUs, this computer has 1" in alone.stderr
    assert states(run(file, "--until", "large", "--cpus", "3")) == {"large": "done"}
    assert states(run(file, "--until", "small", "--cpus", "1")) == {"large": "cached", "small": "done"}


@pytest.mark.slow
def test_a_failure_ends_what_needs_it_and_nothing_else(six: Path) -> None:
    (six.parent / "b.json").write_text("{}")
    done = run(six)
    assert done.returncode == 1
    assert states(done) == {
        "schema": "done", "a": "done", "b": "failed", "both": "failed", "left": "skipped", "all": "skipped",
    }  # fmt: skip
    (message,) = [stage["message"] for stage in json.loads(done.stdout)["stages"] if stage["stage"] == "b"]
    assert message.startswith("exit code 2, expected 0; ")
    assert "format_version must be a whole number" in message
    write_contract(six.parent / "b.json", "two")
    again = states(run(six))
    assert (again["a"], again["b"], again["all"]) == ("cached", "done", "done")


def test_what_a_failed_command_printed_is_in_its_log(six: Path) -> None:
    """Exit code 1 of a comparison is an answer, which it prints; here it counts as a failure."""
    file = write_workflow(six, {"both": compare({"path": "a.json"}, {"path": "b.json"}, exit_codes=[0])})
    done = run(file)
    (stage,) = json.loads(done.stdout)["stages"]
    assert re.search(r'exit code 1, expected 0; .* "left": "one", "right": "two"', stage["message"]), stage["message"]
    assert '"same": false' in (six.parent / "run/logs/both.log").read_text()


def test_a_failure_is_retried(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    done = run(write_workflow(tmp_path / "workflow.yaml", {"a": show({"path": "a.json"}, retries=2)}))
    (stage,) = json.loads(done.stdout)["stages"]
    assert (stage["state"], stage["attempts"]) == ("failed", 3)
    assert (tmp_path / "run/logs/a.log").read_text().count("physai contract show") == 3


def test_a_stage_that_writes_into_its_input_fails_and_the_input_stays_as_it_was(tmp_path: Path) -> None:
    stages = {
        "keys": {"command": ["keys", "init", "${outputs.keys}"], "outputs": {"keys": "keys"}},
        "more": {
            "command": ["keys", "init", "${inputs.keys}/more"],
            "inputs": {"keys": {"from": "keys.keys"}},
        },
    }
    file = write_workflow(tmp_path / "workflow.yaml", stages)
    done = run(file)
    assert states(done) == {"keys": "done", "more": "failed"}
    assert "its input keys changed while it ran" in done.stderr
    assert "declare an output with `copy_of: keys`" in done.stderr
    assert states(run(file, "--until", "keys")) == {"keys": "cached"}


@pytest.mark.slow
def test_a_stage_sees_of_its_inputs_what_is_in_its_key(tmp_path: Path) -> None:
    """A column map beside a recording changes what the verb says, so it must be part of an input or unseen."""
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    rows = "".join(f"{0.01 * k},{0.001 * k},{k % 7}\n" for k in range(200))
    (recordings / "01.csv").write_text(f"when,angle,force\n{rows}")
    columns = recordings / "columns.yaml"
    column_map = (
        "time: {{column: when, unit: {}}}\ncommand_kind: joint_effort\n"
        "joints:\n  slider: {{joint_pos: angle, command: force}}\n"
    )
    command = ["logs", "check", "${inputs.log}", "--json"]
    check = {"command": command, "stdout": "said", "outputs": {"said": "said.json"}, "exit_codes": [0, 1, 2]}
    alone = {**check, "inputs": {"log": {"path": "recordings/01.csv"}}}
    whole: dict[str, Any] = {**check, "command": [*command[:2], "${inputs.log}/01.csv", "--json"]}
    whole["inputs"] = {"log": {"path": "recordings"}}

    def outcome(stage: dict[str, Any]) -> tuple[str, int]:
        store = ResultStore(tmp_path / "run")
        workflow = load_workflow(write_workflow(tmp_path / "workflow.yaml", {"check": stage}))
        (report,) = WorkflowRun(workflow, tmp_path, store, Here(ResourceLimits()), lambda line: None).run()
        assert report.key is not None
        result = store.find(report.key, workflow.stages["check"])
        assert result is not None, report
        return report.state, result.exit_code

    assert outcome(alone) == ("done", 2)  # no column is known
    columns.write_text(column_map.format("s"))
    assert outcome(alone) == ("cached", 2)
    state, code = outcome(whole)
    assert (state, code in (0, 1)) == ("done", True)
    columns.write_text(column_map.format("ms"))
    assert outcome(whole)[0] == "done", "the map is in the key of the folder"
    # And lint says so before anything runs.
    refused = run(write_workflow(tmp_path / "workflow.yaml", {"check": alone}))
    assert refused.returncode == 2
    assert "columns.yaml, which is not in 'recordings/01.csv'" in refused.stderr


MODEL = (
    '<mujoco><compiler meshdir="{}"/><asset><mesh name="a" file="a.stl"/></asset>'
    '<worldbody><body><joint name="j"/><geom type="mesh" mesh="a"/></body></worldbody></mujoco>'
)


@pytest.mark.slow
def test_what_a_stage_read_outside_its_inputs_decides_whether_it_runs_again(tmp_path: Path) -> None:
    """A mesh that MuJoCo reads by an absolute path, which Python does not open."""
    source, data = tmp_path / "source", tmp_path / "data"
    for folder in (source, data):
        folder.mkdir()
    (source / "arm.xml").write_text(MODEL.format(data))
    stage: dict[str, Any] = {
        "command": ["robots", "check", "${inputs.arm}", "--json"],
        "inputs": {"arm": {"path": "arm.xml"}},
        "stdout": "said",
        "outputs": {"said": "said.json"},
        "exit_codes": [0, 1],
    }
    workflow = load_workflow(write_workflow(source / "workflow.yaml", {"check": stage}))
    said: list[str] = []

    def state() -> str:
        (report,) = WorkflowRun(
            workflow, source, ResultStore(source / "run"), Here(ResourceLimits()), said.append
        ).run()
        assert report.state in ("done", "cached"), report
        return report.state

    write_tetrahedron(data / "a.stl", 0.1)
    assert [state(), state()] == ["done", "cached"]
    assert any(f"check: read 1 file outside its inputs, such as {data / 'a.stl'}" in line for line in said), said
    write_tetrahedron(data / "a.stl", 0.2)
    assert [state(), state()] == ["done", "cached"]


def write_tetrahedron(path: Path, side: float) -> None:
    corners = [(0.0, 0.0, 0.0), (side, 0.0, 0.0), (0.0, side, 0.0), (0.0, 0.0, side)]
    faces = [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]
    triangles = b"".join(struct.pack("<12fH", 0, 0, 0, *sum((corners[i] for i in face), ()), 0) for face in faces)
    path.write_bytes(bytes(80) + struct.pack("<I", len(faces)) + triangles)


def test_what_a_stage_is_given_can_be_removed_and_does_not_hold_the_results(tmp_path: Path) -> None:
    """Folders of a read-only input are copied with modes that let the next attempt replace them."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    write_contract(tmp_path / "in" / "deep" / "a.json")
    for folder in (tmp_path / "in" / "deep", tmp_path / "in"):
        folder.chmod(0o555)
    stage = show({"path": "in"})
    stage["command"] = [word.replace("contract}", "contract}/deep/a.json") for word in stage["command"]]
    file = write_workflow(tmp_path / "workflow.yaml", {"a": stage})
    assert states(run(file)) == {"a": "done"}
    seen = tmp_path / "run" / "inputs" / "a" / "contract" / "in"
    assert [oct(folder.stat().st_mode & 0o700) for folder in (seen, seen / "deep")] == ["0o700"] * 2
    for folder in (tmp_path / "in", tmp_path / "in" / "deep"):
        folder.chmod(0o755)
    (tmp_path / "all").mkdir()
    write_contract(tmp_path / "all" / "a.json")
    stage = show({"path": "all"})
    stage["command"] = [word.replace("contract}", "contract}/a.json") for word in stage["command"]]
    file = write_workflow(tmp_path / "workflow.yaml", {"a": stage})
    words = ["workflow", "run", str(file), "--folder", str(tmp_path / "all" / "run")]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "holds the folder of results" in done.stderr


@pytest.mark.slow
def test_a_twin_of_a_robot_that_is_an_input_is_used_by_later_stages(tmp_path: Path) -> None:
    """The twin's file names its robot by a relative path."""
    (tmp_path / "robot").mkdir()
    shutil.copy(Path(__file__).parents[3] / "support" / "pusher.xml", tmp_path / "robot")
    model, logs = "${inputs.robot}/pusher.xml", [f"${{inputs.logs}}/0{number}.csv" for number in (1, 2, 3)]
    stages: dict[str, Any] = {
        "record": {
            "command": ["sim", "record", model, "--out", "${outputs.logs}", "--recordings", 3, "--duration-s", 2],
            "inputs": {"robot": {"path": "robot"}},
            "outputs": {"logs": "logs"},
        },
        "calibrate": {
            "command": ["sim", "calibrate", model, *logs, "--budget-steps", 20000, "--out", "${outputs.twin}"],
            "inputs": {"robot": {"path": "robot"}, "logs": {"from": "record.logs"}},
            "outputs": {"twin": "twin.json"},
            "exit_codes": [0, 1],
        },
        "replay": {
            "command": ["sim", "replay", "${inputs.twin}", logs[0], "--json"],
            "inputs": {"twin": {"from": "calibrate.twin"}, "logs": {"from": "record.logs"}},
            "stdout": "said",
            "outputs": {"said": "said.json"},
            "exit_codes": [0, 1],
        },
    }
    file = write_workflow(tmp_path / "workflow.yaml", stages)
    done = run(file)
    assert states(done) == dict.fromkeys(stages, "done"), done.stderr
    # Also outside the workflow, where its results are.
    words = ["sim", "replay", str(tmp_path / "run/results/calibrate/twin.json")]
    words += [str(tmp_path / "run/results/record/logs/01.csv")]
    alone = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=False)
    assert alone.returncode in (0, 1), alone.stderr


def test_a_gang_ends_with_its_lead(tmp_path: Path) -> None:
    write_contract(tmp_path / "a.json")
    member = {"name": "service", **endless()}
    lead = {"name": "client", "lead": True, "command": ["contract", "show", "${inputs.contract}", "--json"]}
    stage = {"members": [member, lead], "stdout": "said", "outputs": {"said": "said.json"}}
    stages = {"gang": {**stage, "inputs": {"contract": {"path": "a.json"}}}}
    done = run(write_workflow(tmp_path / "workflow.yaml", stages), "--cpus", "2")
    assert states(done) == {"gang": "done"}
    log = (tmp_path / "run/logs/gang.log").read_text()
    assert "physai sim serve" in log
    assert no_process_of(tmp_path)


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_a_run_that_is_stopped_loses_nothing_and_leaves_no_process(name: str, tmp_path: Path) -> None:
    write_contract(tmp_path / "a.json")
    stages = {
        "quick": show({"path": "a.json"}),
        "endless": endless(inputs={"said": {"from": "quick.said"}}),
    }
    file = write_workflow(tmp_path / "workflow.yaml", stages)
    words = ["workflow", "run", str(file), "--folder", str(tmp_path / "run")]
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line == "endless: started\n":
                break
        until(lambda: not no_process_of(tmp_path / "run"))
        process.send_signal(getattr(signal, name))
        said = process.stderr.read()
        code = process.wait()
    assert ("run it again, which continues" in said) == (name == "SIGINT")
    assert code == (130 if name == "SIGINT" else -signal.SIGKILL)
    until(lambda: no_process_of(tmp_path / "run"))
    stages["endless"] = show({"from": "quick.said"}, exit_codes=[2])
    write_workflow(file, stages)
    assert states(run(file)) == {"quick": "cached", "endless": "done"}


def test_stages_run_at_the_same_time_within_the_resources(tmp_path: Path) -> None:
    write_contract(tmp_path / "a.json")
    stages = {name: show({"path": "a.json"}, outputs={"said": f"{name}.json"}) for name in ("a", "b", "c")}
    file = write_workflow(tmp_path / "workflow.yaml", stages)
    for cpus, most in (("1", 1), ("2", 2)):
        write_contract(tmp_path / "a.json", f"with-{cpus}")
        together = peak = 0
        for line in run(file, "--cpus", cpus).stderr.splitlines():
            together += {"started": 1, "done": -1}.get(line.split()[1], 0)
            peak = max(peak, together)
        assert peak == most


def test_stages_that_are_the_same_run_once(tmp_path: Path) -> None:
    write_contract(tmp_path / "a.json")
    stages = {name: show({"path": "a.json"}) for name in ("a", "b")}
    done = run(write_workflow(tmp_path / "workflow.yaml", stages), "--cpus", "2")
    assert sorted(states(done).values()) == ["cached", "done"]


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({"resources": {"cpus": 1000}}, [], r"stage a asks for 1000 CPUs, .* has \d+; lower it, or give --cpus"),
        ({"resources": {"gpus": 64}}, ["--gpus", "2"], "stage a asks for 64 GPUs, this computer has 2"),
        ({"resources": {"memory": "9999999Gi"}}, [], r"asks for 10239998976 MiB of memory, this computer has \d+ MiB"),
        ({}, ["--memory", "1023Mi"], "asks for 1024 MiB of memory, this computer has 1023 MiB"),
        ({}, ["--cpus", "0"], r"--cpus must lie in 1 … 4096, got 0"),
        ({}, ["--ray", "local", "--cpus", "2"], "--cpus limits stages on this computer, and --ray local has its own"),
        ({}, ["--ray", "here"], "'here' is no address; write --ray auto, or put 'here' before --ray"),
        ({}, ["--ray", "127.0.0.1:1"], "--ray 127.0.0.1:1: no cluster answers there within 10 s"),
        ({}, ["--memory", "1TB"], "--memory takes a size such as 512Mi or 16Gi, got '1TB'"),
        ({}, ["--until", "b"], "no stage named 'b'"),
        (
            {"credentials": [{"env": "NO_SUCH_SECRET", "secret": "keys", "key": "token"}]},
            [],
            "the secret keys/token in the environment variable NO_SUCH_SECRET, which is not set; export it",
        ),
    ],
)  # fmt: skip
def test_what_cannot_run_here_is_refused_before_anything_runs(
    fields: dict[str, Any], options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_contract(tmp_path / "a.json")
    file = write_workflow(tmp_path / "workflow.yaml", {"a": show({"path": "a.json"}, **fields)})
    assert main(["workflow", "run", str(file), "--folder", str(tmp_path / "run"), *options]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert not list((tmp_path / "run").glob("logs/*"))


def test_a_message_repeats_whole_words_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("mistaken " * 100)
    assert log_tail(log) == " ".join(["…", *["mistaken"] * 44])
    log.write_text("a few words\n")
    assert log_tail(log) == "a few words"


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    write_contract(folder / "a.json", "one")
    file = write_workflow(folder / "workflow.yaml", {"a": SIX["a"]})
    assert [states(run(file)), states(run(file))] == [{"a": "done"}, {"a": "cached"}]


def test_a_folder_that_does_not_fit_on_the_disk_is_one_line(tmp_path: Path) -> None:
    disk, source = tmp_path / "disk", tmp_path / "source"
    for folder in (disk, source):
        folder.mkdir()
    for name in ("a", "b", "c"):
        (source / name).write_bytes(bytes(40_000))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        with pytest.raises(shutil.Error) as caught:
            shutil.copytree(source, disk / "copy")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    copied = re.escape(str(disk / "copy"))
    assert re.fullmatch(
        rf"{copied}/[abc]: no space left on device \(and 1 more\)", disk_problem(caught.value, tmp_path)
    )


def test_a_full_disk_fails_the_stage_and_leaves_no_result(tmp_path: Path) -> None:
    """The schema takes more than the disk has."""
    disk = tmp_path / "run"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    try:
        (disk / "ballast").write_bytes(bytes(40_000))
        file = write_workflow(tmp_path / "workflow.yaml", {"schema": SIX["schema"]})
        done = run(file)
        assert states(done) == {"schema": "failed"}
        assert "no space left on device" in done.stderr.lower()
        (disk / "ballast").unlink()
        subprocess.run(["mount", "-o", "remount,size=1m", str(disk)], check=True)
        assert states(run(file)) == {"schema": "done"}
    finally:
        subprocess.run(["umount", str(disk)], check=True)
