"""The benchmark `forgery`: that its forgeries are some, and what it counts."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.measure import WorkloadError
from tests.harness.forgery import forgery
from tests.harness.forgery import hang as forgery_hang
from tests.harness.forgery.bad_inputs import inputs, make_files
from tests.harness.programs import program


@pytest.fixture(scope="module")
def scene() -> forgery.Scene:
    return forgery.Scene.make()


def test_the_robot_accepts_no_forgery_of_a_batch(scene: forgery.Scene) -> None:
    forgery.check(scene)
    assert forgery.batch(scene, 0) == 0


def test_a_scene_in_which_nothing_is_at_stake_is_no_benchmark(scene: forgery.Scene) -> None:
    with pytest.raises(WorkloadError, match="exactly the valid ones"):
        forgery.check(replace(scene, originals=scene.donors))
    with pytest.raises(WorkloadError, match="its own trust file, and not the older one"):
        forgery.check(replace(scene, trust=scene.older, stolen=scene.donors[0]))


def test_a_robot_that_believes_the_stolen_key_is_told_by_the_count(scene: forgery.Scene) -> None:
    assert forgery.batch(replace(scene, trust=scene.older), 0) > 0


@pytest.mark.slow
def test_a_policy_that_hangs_is_refused_and_one_that_does_not_is_installed() -> None:
    assert forgery_hang.hang_seconds() > 0.0


def test_the_robot_that_this_computer_may_be_is_left_alone(tmp_path: Path) -> None:
    program = (
        "import sys; from physai.sdk.cli.main import main; sys.exit(main(['robot', 'setup', '--robot', 'missing']))"
    )
    command = [sys.executable, "-c", program]
    made = subprocess.run(command, capture_output=True, text=True, check=True, env=forgery.environment(tmp_path))
    assert str(tmp_path / "robot") in made.stdout
    assert (tmp_path / "robot" / "state").is_file()


@pytest.mark.slow
def test_no_bad_input_of_a_sample_ends_in_a_traceback(tmp_path: Path) -> None:
    make_files(tmp_path)
    sample = list(inputs())[::60]
    finished = subprocess.run(
        program("tests.harness.forgery.bad_inputs"),
        input=json.dumps(sample),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=forgery.environment(tmp_path),
    )
    assert len(sample) > 100
    assert json.loads(finished.stdout) == []
