"""`physai sim renew`: a cart gets heavier, and one command judges the same bytes again."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import pytest

from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.cli.main import main
from physai.sdk.signing.sign import read_claims
from physai.sdk.signing.status.status_document import parse_status
from physai.sim.robots import Robot
from physai.sim.tasks.task import Task
from physai.twin.calibration.stand_in.synthetic_robot import StandIn, excite, write_columns, write_recording
from physai.twin.model.twin import load_twin, nominal_twin, save_twin
from physai.twin.model.twin_file import SensorNoise
from physai.twin.parameters.models import calibration_model

pytestmark = pytest.mark.slow

TASK = str(Path(__file__).parents[2] / "support" / "pusher_task.py")
GATES = "engine: {episodes: 8}\nfalsification: {generations: 2, population: 8, seeds: 2, confirmations: 16}\n"
SECONDS, RECORDINGS, HEAVIER = 20.0, 5, 1.25
Writer = Callable[..., Path]
Physai = Callable[..., tuple[int, dict[str, Any], str]]


def record(robot: Robot, folder: Path, name: str, mass: float, seed: int) -> Path:
    """A recording of a cart whose mass is not the model's, on a robot by its mark."""
    model = calibration_model(robot)
    cart = model.body("cart").id
    model.body_inertia[cart] *= mass
    model.body_mass[cart] *= mass
    mujoco.mj_setConst(model, mujoco.MjData(model))
    real = StandIn(robot=robot, model=model, hidden={}, delay_s=0.0, seed=3)
    path = folder / f"{name}.csv"
    write_recording(excite(real, duration_s=SECONDS, rate_hz=100, seed=seed, steps=0.2), robot, path)
    path.write_text(path.read_text().replace("stand-in pusher", "robot pusher/cell-3"))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("renewal")


@pytest.fixture
def recordings(folder: Path, task: Task) -> list[str]:
    """Recordings of the cart as its twin describes it, and of one that is heavier."""
    if not (folder / "twin.json").exists():
        write_columns(task.robot, folder)
        record(task.robot, folder, "a", 1.0, 1)
        for number in range(RECORDINGS):
            record(task.robot, folder, f"b{number}", HEAVIER, 10 + number)
        twin = replace(nominal_twin(task.robot), noise=SensorNoise(joint_pos_std=(1e-4,)))
        save_twin(twin, folder / "twin.json")
        shutil.copy(Path(TASK).with_name("pusher.xml"), folder)
    return [str(path) for path in sorted(folder.glob("*.csv"))]


@pytest.fixture
def physai(folder: Path, capsys: pytest.CaptureFixture[str], evidence: Any, bench: Any, tmp_path: Path) -> Physai:
    """Renews a policy from recordings, into `tmp_path/renewed`."""

    def run(policy: Path, *words: str, bundle: bool = True) -> tuple[int, dict[str, Any], str]:
        (tmp_path / "gates.yaml").write_text(GATES)
        (tmp_path / "ticks.json").write_text(evidence(bench.subject(policy), [0.001] * 10_000))
        given = tmp_path / "cart.physai" if bundle else policy
        if bundle and not given.exists():
            assert main(["bundle", "pack", str(policy), "-o", str(given)]) == 0
        options = ["--twin", str(folder / "twin.json"), "--policy", str(given), "--report", str(tmp_path / "renewed")]
        options += ["--task", TASK, "--gates", str(tmp_path / "gates.yaml"), "--latency", str(tmp_path / "ticks.json")]
        capsys.readouterr()
        code = main(["sim", "renew", *words, *options, "--budget-steps", "300000", "--replay", "1", "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else {}, err

    return run


def test_a_policy_that_still_passes_gets_a_new_verdict_in_its_bundle(
    write_policy: Writer, physai: Physai, recordings: list[str], tmp_path: Path
) -> None:
    pytest.importorskip("mujoco_warp")
    policy = write_policy()
    code, found, err = physai(policy, *recordings, "--settings", str(_settings(tmp_path)))
    assert code == 0, (err, found)
    assert found["outcome"] == "PASS"
    assert found["reason"].startswith("mass at cart +0.")
    twin = load_twin(found["twin"])
    # On a rail, mass and armature are one: 2 kg and 0.5 kg more.
    inert = sum(p.value for p in twin.parameters if p.name in ("cart.mass", "rail.armature"))
    assert inert == pytest.approx(2.5, rel=0.05)
    # The recording before the change is not what the new twin was fitted to.
    assert {log.name for log in (*twin.logs.train, *twin.logs.held_out)} == {f"b{k}" for k in range(RECORDINGS)}
    before, after = read_bundle(tmp_path / "cart.physai"), read_bundle(Path(found["bundle"]))
    assert before.id == after.id
    signed = read_claims(after).verdict
    assert signed is not None
    assert (signed.robot, signed.verdict.twin_hash) == ("pusher/cell-3", twin.hash)
    # Again: nothing is repeated.
    code, again, err = physai(policy, *recordings, "--settings", str(_settings(tmp_path)))
    assert (code, again["bundle"]) == (0, found["bundle"])
    assert err.count("done before") == 3
    assert again["command"] == ""
    # A bundle that was signed for other requirements is not handed out as done.
    (tmp_path / "strict.json").write_text(json.dumps({"format_version": 1, "gate_settings": ["0" * 64]}))
    code, _, err = physai(policy, *recordings, "--settings", str(tmp_path / "strict.json"))
    assert code == 2
    assert err.count("done before") == 3
    assert "settings" in err.splitlines()[-1]
    # A status document that revoked the same bytes stands in the way: the new verdict needs another word.
    word = str(tmp_path / "renewed" / "status.json")
    revoke = ["bundle", "revoke", str(tmp_path / "cart.physai"), "--robot", "pusher/cell-3", "--reason", "drift"]
    assert main([*revoke, "--out", word]) == 0
    _, again, _ = physai(policy, *recordings, "--settings", str(_settings(tmp_path)))
    assert again["command"].startswith("physai bundle revoke ")
    assert again["command"].endswith(f"--robot pusher/cell-3 --out {word} --lift")
    # The new verdict does not rest on the old twin.
    (tmp_path / "cart.physai").write_bytes(Path(found["bundle"]).read_bytes())
    code, _, err = physai(policy, *recordings)
    assert code == 2
    assert f"the verdict rests on the twin {twin.hash[:12]}…, and --twin is" in err


def _settings(tmp_path: Path) -> Path:
    from physai.gates.settings import load_gates

    (tmp_path / "gates.yaml").write_text(GATES)
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"format_version": 1, "gate_settings": [load_gates(tmp_path / "gates.yaml").sha256]}))
    return path


def test_a_policy_that_fails_now_is_revoked_and_an_interruption_costs_no_step(
    write_policy: Writer, physai: Physai, recordings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from physai.gates.report import validation

    policy = write_policy(stiffness=-12.0)
    validate = validation.validate

    def interrupted(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(validation, "validate", interrupted)
    code, found, err = physai(policy, *recordings)
    assert (code, found) == (130, {})
    assert not (tmp_path / "renewed" / "status.json").exists()
    monkeypatch.setattr(validation, "validate", validate)
    code, found, err = physai(policy, *recordings)
    assert (code, found["outcome"]) == (1, "FAIL"), err
    assert err.count("done before") == 2
    # Without a signature of the key, a verdict in the folder is no reason to revoke: everything is done again.
    steps = tmp_path / "renewed" / "renewal.json"
    kept = json.loads(steps.read_text())
    steps.write_text(json.dumps({**kept, "signature": ""}))
    monkeypatch.setattr(validation, "validate", interrupted)
    code, _, err = physai(policy, *recordings)
    assert (code, err.count("done before")) == (130, 0)
    word = parse_status(Path(found["status"]).read_bytes())
    bundle = read_bundle(tmp_path / "cart.physai")
    assert word.robot == "pusher/cell-3"
    assert [(one.bundle, one.reason.startswith("drift: mass at cart")) for one in word.revoked] == [(bundle.id, True)]


def test_without_a_drift_nothing_is_written(
    write_policy: Writer, physai: Physai, recordings: list[str], tmp_path: Path
) -> None:
    code, found, _ = physai(write_policy(), recordings[0])
    assert (code, found["outcome"], found["folder"]) == (2, "NO EVIDENCE", None)
    assert not (tmp_path / "renewed").exists()


def test_too_few_recordings_since_the_change_are_told_before_a_calibration(
    write_policy: Writer, physai: Physai, recordings: list[str], tmp_path: Path
) -> None:
    code, _, err = physai(write_policy(), *recordings[1:5])
    assert code == 2
    assert "4 of 4 recordings were begun since then; a new twin needs at least 5: record the robot as it is now" in err
    assert not (tmp_path / "renewed" / "twin.json").exists()
    # Under other names the drift that was found is the same, and with another column map it is not.
    names = [str(Path(shutil.copy(path, tmp_path / f"c-{Path(path).name}"))) for path in recordings[1:5]]
    shutil.copy(Path(recordings[0]).with_name("columns.yaml"), tmp_path)
    code, _, err = physai(write_policy(), *names)
    assert (code, err.count("done before")) == (2, 1)
    assert "4 of 4 recordings were begun since then" in err
    columns = tmp_path / "columns.yaml"
    columns.write_text(columns.read_text() + "notes: {payload: 1.5}\n")
    code, _, err = physai(write_policy(), *names)
    assert (code, err.count("done before")) == (2, 0)
    assert "4 of 4 recordings were begun since then" in err


def test_a_policy_of_another_task_is_not_revoked(
    write_policy: Writer, physai: Physai, recordings: list[str], tmp_path: Path
) -> None:
    policy = write_policy()
    code, found, _ = physai(policy, *recordings, "--task", "cartpole-swingup")
    assert (code, found) == (2, {})
    assert not (tmp_path / "renewed" / "status.json").exists()
