"""`physai workflow run --ray` on the nodes of a real Ray cluster on this computer: kills of every kind lose nothing."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import workflow_runs
from tests.support.contract_workflows import show, write_contract, write_workflow
from tests.support.patience import until
from tests.support.ray_nodes import RayNodes, processes_of_session, ray_nodes
from tests.support.workflow_runs import PROGRAM, SIX, StartRay, endless, no_process_of, states


def words(file: Path, cluster: RayNodes) -> list[str]:
    command = ["workflow", "run", str(file), "--folder", str(file.parent / "run"), "--ray", cluster.address]
    return [sys.executable, "-c", PROGRAM, *command]


def run(file: Path, cluster: RayNodes, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*words(file, cluster), "--json", *options], capture_output=True, text=True, check=False)


def workers_of(folder: Path) -> dict[int, int]:
    """Processes that work below a folder, each with its parent, which is Ray's."""
    found: dict[int, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_a_killed_worker_node_or_run_loses_nothing(start_ray: StartRay, tmp_path: Path) -> None:
    # A head without processors for stages, as on Kubernetes.
    cluster = start_ray(0, 1, 1)
    write_contract(tmp_path / "a.json")
    stages = {"quick": show({"path": "a.json"}), "endless": endless(inputs={"said": {"from": "quick.said"}})}
    file = write_workflow(tmp_path / "workflow.yaml", stages)
    new = tmp_path / "run" / "new"
    with subprocess.Popen(words(file, cluster), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None

        def await_line(start: str) -> str:
            assert process.stderr is not None
            said = ""
            for line in process.stderr:
                said += line
                if line.startswith(start):
                    return said
            raise AssertionError(said)

        def await_work() -> tuple[int, int]:
            until(lambda: workers_of(new))
            return next(iter(workers_of(new).items()))

        await_line("endless: started\n")
        stage, worker = await_work()
        os.kill(worker, signal.SIGKILL)
        said = await_line("endless: started, attempt 2")
        assert "endless: lost: " in said
        until(lambda: stage not in workers_of(new))

        stage, worker = await_work()
        raylet = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        cluster.kill(next(node for node in cluster.nodes if raylet in processes_of_session(node.process.pid)))
        await_line("endless: started, attempt 3")
        until(lambda: stage not in workers_of(new))

        await_work()
        process.kill()
    # Ray ends what belongs to a run that died.
    until(lambda: no_process_of(tmp_path / "run"))
    stages["endless"] = show({"from": "quick.said"}, exit_codes=[2])
    write_workflow(file, stages)
    assert states(workflow_runs.run(file)) == {"quick": "cached", "endless": "done"}


@pytest.mark.slow
def test_sigterm_stops_the_stages_and_says_so_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    file = write_workflow(tmp_path / "workflow.yaml", {"endless": endless()})
    command = ["workflow", "run", str(file), "--folder", str(tmp_path / "run"), "--ray", "local"]
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *command], stderr=subprocess.PIPE, text=True) as process:
        until(lambda: workers_of(tmp_path / "run" / "new"))
        process.terminate()
        _, said = process.communicate()
    assert said == ("endless: started\nstopped; run it again, which continues with the stages that have no result\n")
    assert process.returncode == 130
    until(lambda: no_process_of(tmp_path / "run"))


@pytest.mark.exhaustive
def test_results_are_those_of_this_computer_and_independent_stages_run_on_several_nodes(
    start_ray: StartRay, tmp_path: Path
) -> None:
    cluster = start_ray(1, 1, 1)
    write_contract(tmp_path / "a.json", "one")
    write_contract(tmp_path / "b.json", "two")
    file = write_workflow(tmp_path / "workflow.yaml", SIX)
    done = run(file, cluster)
    assert states(done) == dict.fromkeys(SIX, "done"), done.stderr
    record = json.loads(done.stdout)
    assert all(stage["host"] for stage in record["stages"])
    assert states(workflow_runs.run(file)) == dict.fromkeys(SIX, "cached")
    # Those that need nothing start before one ends.
    assert [line.endswith("started") for line in done.stderr.splitlines()][:3] == [True] * 3


@pytest.mark.exhaustive
def test_a_head_that_is_stopped_ends_the_run_and_no_stage_is_left(tmp_path: Path) -> None:
    with ray_nodes((0, 1)) as nodes:
        write_contract(tmp_path / "a.json")
        stages = {"quick": show({"path": "a.json"}), "endless": endless(inputs={"said": {"from": "quick.said"}})}
        file = write_workflow(tmp_path / "workflow.yaml", stages)
        with subprocess.Popen(words(file, nodes), stderr=subprocess.PIPE, text=True) as process:
            until(lambda: bool(list((tmp_path / "run" / "new").glob("endless.*"))))
            with nodes.stopped(nodes.nodes[0], whole=False):
                _, said = process.communicate(timeout=90.0)
        assert (process.returncode, "Traceback" in said) == (2, False), said
        assert "then run the workflow again, which continues" in " ".join(said.split())
        until(lambda: no_process_of(tmp_path / "run"))
        assert states(run(file, nodes, "--until", "quick")) == {"quick": "cached"}


@pytest.mark.exhaustive
def test_a_node_without_the_folder_is_named_before_anything_runs(start_ray: StartRay, tmp_path: Path) -> None:
    """A node with another file system in the place of the folder."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("mount namespaces are for root only")
    cluster = start_ray(1)
    (tmp_path / "files").mkdir()
    write_contract(tmp_path / "files" / "a.json")
    file = write_workflow(tmp_path / "files" / "workflow.yaml", {"a": show({"path": "a.json"})})
    ray = shlex.join([sys.executable, "-m", "ray.scripts.scripts", "start", "--address", cluster.address])
    script = f"mount -t tmpfs none {shlex.quote(str(tmp_path / 'files'))} && exec {ray} --num-cpus 1 --block"
    command = ["unshare", "-m", "sh", "-c", script]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def refusal() -> str:
        shutil.rmtree(tmp_path / "files" / "run", ignore_errors=True)
        return run(file, cluster).stderr

    with subprocess.Popen(command, env={**os.environ, "RAY_AUTH_MODE": "token"}, **quiet) as node:
        try:
            # Until it has joined, the head runs the workflow alone.
            until(lambda: "all nodes need the folder of results" in refusal(), step=lambda: None)
        finally:
            node.terminate()
    assert not list((tmp_path / "files" / "run" / "logs").iterdir())
