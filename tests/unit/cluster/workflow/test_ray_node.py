"""What a node of a cluster checks before it runs a stage, here without a cluster."""

import dataclasses
from importlib.metadata import version
from pathlib import Path

import pytest

from physai.cluster.workflow.cache.content import content_hash
from physai.cluster.workflow.executors.place import Given
from physai.cluster.workflow.executors.ray_node import QUESTION, StageAttempt, attempt_stage, look
from physai.cluster.workflow.executors.resources import this_platform
from physai.cluster.workflow.model import WorkflowStage
from physai.cluster.workflow.workflow_file import WorkflowError


def test_a_node_that_shares_the_folder_answers_in_it(tmp_path: Path) -> None:
    (tmp_path / QUESTION).write_text("1")
    seen = look(tmp_path, "1", "node")
    assert (seen.problem, seen.platform, seen.version) == ("", this_platform(), version("physai-sdk"))
    assert (tmp_path / "node").read_text() == "1"


def test_a_node_that_does_not_says_why(tmp_path: Path) -> None:
    assert (
        look(tmp_path / "other", "1", "node").problem == f"{tmp_path / 'other' / QUESTION}: no such file or directory"
    )
    (tmp_path / QUESTION).write_text("2")
    assert look(tmp_path, "1", "node").problem == f"has another {tmp_path / QUESTION}"
    assert not (tmp_path / "node").exists()


@pytest.fixture
def order(tmp_path: Path) -> StageAttempt:
    (tmp_path / "fresh").mkdir()
    (tmp_path / "log.csv").write_text("t,q1\n")
    return StageAttempt(
        name="check",
        stage=WorkflowStage.model_validate({"command": ["logs", "check", "${inputs.log}"]}),
        inputs={
            "log": Given(
                path=tmp_path / "log.csv", hash=content_hash(tmp_path / "log.csv"), shown=tmp_path / "shown" / "log.csv"
            )
        },
        fresh=tmp_path / "fresh",
        log=tmp_path / "check.log",
        first=True,
        secrets={},
        version=version("physai-sdk"),
    )


def test_another_version_of_physai_runs_nothing(order: StageAttempt) -> None:
    with pytest.raises(WorkflowError, match=r"has physai .*, the run 0\.0\.1; install the same version on all nodes"):
        attempt_stage(dataclasses.replace(order, version="0.0.1"))
    assert not order.log.exists()


def test_files_that_are_not_those_of_the_run_are_not_used(order: StageAttempt) -> None:
    with pytest.raises(WorkflowError, match=r"does not see .*/elsewhere; all nodes need the folder of results"):
        attempt_stage(dataclasses.replace(order, fresh=order.fresh.with_name("elsewhere")))
    order.inputs["log"].path.write_text("t,q2\n")
    with pytest.raises(WorkflowError, match=r"has another .*/log\.csv \(input log\) than the run; all nodes need"):
        attempt_stage(order)
    order.inputs["log"].path.unlink()
    with pytest.raises(WorkflowError, match=r": .*/log\.csv: cannot be read: no such file .*; all nodes need"):
        attempt_stage(order)
    assert not order.log.exists()
