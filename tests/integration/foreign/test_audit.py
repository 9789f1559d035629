"""`physai policy audit`: wrong conventions, injected into a right log, are named; a right log raises no alarm."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.foreign.test_import import DESCRIPTION, JOINTS, write
from tests.support.foreign_reference import gravity, observed

from physai.foreign import ForeignPolicyError, audit, import_policy
from physai.sdk.base.errors import UnknownNameError
from physai.sdk.cli.main import main
from physai.sdk.contract.io import load_contract
from physai.sim.policies.onnx import OnnxPolicy

Arrays = dict[str, Any]
ROWS, PERIOD = 300, 0.02
SIZES = (12, 3, 2, 2, 3, 12, 12, 2)
NAMES = ("last_action", "ang_vel", "command", "clock", "gravity", "joint_pos", "joint_vel", "clock_2")
ENDS = np.cumsum(SIZES)
PARTS = {name: slice(end - size, end) for name, size, end in zip(NAMES, SIZES, ENDS, strict=True)}


def sensors(robot: list[str], random: np.random.Generator, pose: list[float] = DESCRIPTION["default_pos"]) -> Arrays:
    """Joints, a base and commands that all move, each in its own way."""
    time = np.arange(ROWS)[:, None] * PERIOD

    def waves(size: int, amplitude: float) -> tuple[Any, Any]:
        speed, phase = random.uniform(3.0, 9.0, size), random.uniform(0.0, 6.0, size)
        return amplitude * np.sin(speed * time + phase), amplitude * speed * np.cos(speed * time + phase)

    position, velocity = waves(12, 0.2)
    default = dict(zip(JOINTS, pose, strict=True))
    roll, pitch, yaw = (value.T for value in (waves(1, 0.3)[0], waves(1, 0.2)[0], 2.0 + 0.5 * time))
    half = [np.array([np.cos(angle[0] / 2), np.sin(angle[0] / 2)]) for angle in (roll, pitch, yaw)]
    (cr, sr), (cp, sp), (cy, sy) = half
    quat = np.stack(
        [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ],
        axis=1,
    )
    return {
        "joint_pos": position + np.array([default[name] for name in robot]),
        "joint_vel": velocity,
        "imu_quat": quat,
        "imu_ang_vel_b": waves(3, 0.5)[0],
        "velocity_command": waves(3, 0.4)[0],
    }


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Arrays]:
    """An imported policy, and a log as its own program would write it."""
    return logged(tmp_path_factory.mktemp("audit"), DESCRIPTION["default_pos"])


def logged(folder: Path, pose: list[float]) -> tuple[Path, Arrays]:
    source = write(folder / "policy", gain=4.0, default_pos=pose)
    run = import_policy(source, model="go2", out=folder / "run").folder
    described = json.loads((run / "import.json").read_text(encoding="utf-8"))["description"]
    contract = load_contract(run / "task" / "contract.json")
    robot = list(contract.robot.joint_names)
    log = sensors(robot, np.random.default_rng(5), pose)
    policy = OnnxPolicy.load(run)
    policy.reset(1)
    rows: list[Arrays] = []
    for row in range(ROWS):
        fields = {name: value[row : row + 1] for name, value in log.items()}
        state = {f"state.{name}": value.astype(np.float64) for name, value in policy.state.items()}
        seen = observed(described, robot, {**fields, **state})[0]
        target = policy(fields, fields)["joint_pos_target"][0]
        rows.append({"observation": seen, "target": target, "action": policy.state["previous_action"][0]})
    log |= {name: np.array([row[name] for row in rows]) for name in rows[0]}
    columns = [robot.index(name) for name in JOINTS]
    efforts = np.zeros((ROWS, 12))
    lead = log["target"] - log["joint_pos"][:, columns]
    gains = np.array(DESCRIPTION["stiffness"]), np.array(DESCRIPTION["damping"])
    efforts[:, columns] = gains[0] * lead - gains[1] * log["joint_vel"][:, columns]
    return run, {**log, "joint_effort": efforts, "time": np.arange(ROWS) * PERIOD}


def audited(run: Path, log: Arrays, tmp_path: Path) -> dict[str, tuple[str, str]]:
    path = tmp_path / "log.npz"
    np.savez(path, **log)
    return {finding.part: (finding.outcome, finding.text) for finding in audit(path, run).findings}


def test_a_right_log_raises_no_alarm(right: tuple[Path, Arrays], tmp_path: Path) -> None:
    found = audited(*right, tmp_path)
    assert found == dict.fromkeys((*NAMES, "target", "period"), ("agrees", "")) | {"gains": ("agrees", "of 12 joints")}


def test_six_digits_are_enough(right: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = right
    rounded = {
        name: np.array([f"{x:.6g}" for x in np.ravel(value)], float).reshape(np.shape(value))
        for name, value in log.items()
    }
    assert {outcome for outcome, _ in audited(run, rounded, tmp_path).values()} == {"agrees"}


@pytest.mark.parametrize("first", [1, 30, 57])
def test_a_log_may_begin_in_the_middle(first: int, right: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = right
    found = audited(run, {name: value[first:] for name, value in log.items()}, tmp_path)
    assert {outcome for outcome, _ in found.values()} == {"agrees"}
    assert found["clock"][1] == found["clock_2"][1] == "from another phase at the beginning"


def test_without_actions_the_last_one_is_absent(right: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = right
    found = audited(run, {name: value for name, value in log.items() if name != "action"}, tmp_path)
    assert found["last_action"] == ("absent", "the log has no action, of which it is made")
    assert {outcome for outcome, _ in found.values()} == {"agrees", "absent"}


def test_half_precision_and_jitter_are_no_alarm(right: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = right
    half = {name: np.float16(value) if name == "observation" else value for name, value in log.items()}
    random = np.random.default_rng(0)
    half["time"] = log["time"] + random.uniform(0.0, 0.004, ROWS)
    assert {outcome for outcome, _ in audited(run, half, tmp_path).values()} == {"agrees"}


def part(name: str, change: Callable[[Any, Arrays], Any]) -> Callable[[Arrays], None]:
    def inject(log: Arrays) -> None:
        log["observation"] = log["observation"].copy()
        log["observation"][:, PARTS[name]] = change(log["observation"][:, PARTS[name]], log)

    return inject


def whole(name: str, change: Callable[[Any], Any]) -> Callable[[Arrays], None]:
    def inject(log: Arrays) -> None:
        log[name] = change(np.array(log[name]))

    return inject


def exchange(one: str, other: str) -> Callable[[Arrays], None]:
    def inject(log: Arrays) -> None:
        before = log["observation"]
        log["observation"] = before.copy()
        log["observation"][:, PARTS[one]], log["observation"][:, PARTS[other]] = (
            before[:, PARTS[other]],
            before[:, PARTS[one]],
        )

    return inject


def late(value: Any) -> Any:
    return np.vstack([value[:1], value[:-1]])


SIDES = [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8]
SCALES = np.array(DESCRIPTION["action_scale"])
DEFAULT = np.array(DESCRIPTION["default_pos"])


def world(log: Arrays) -> Any:
    w, x, y, z = log["imu_quat"].T
    u, v = np.stack([x, y, z], axis=1), log["imu_ang_vel_b"]
    t = 2.0 * np.cross(u, v)
    return 0.25 * (v + w[:, None] * t + np.cross(u, t))


DEFECTS: dict[str, tuple[Callable[[Arrays], None], str, str]] = {
    "sides exchanged": (part("joint_pos", lambda b, _: b[:, SIDES]), "joint_pos", "in another order: RL_hip_joint"),
    "order of speeds": (part("joint_vel", lambda b, _: b[:, ::-1]), "joint_vel", "in another order: FL_calf_joint"),
    "order of actions seen": (part("last_action", lambda b, _: b[:, SIDES]), "last_action", "in another order"),
    "a sign": (part("joint_pos", lambda b, _: b * np.array([-1] + [1] * 11)), "joint_pos", "the sign of RR_hip_joint"),
    "order of terms": (exchange("ang_vel", "gravity"), "ang_vel", "holds what the contract has as gravity"),
    "sine and cosine": (exchange("clock", "clock_2"), "clock", "holds what the contract has as clock_2"),
    "quaternion xyzw": (
        part("gravity", lambda _, log: gravity(np.roll(log["imu_quat"], 1, axis=1))),
        "gravity",
        "read as wxyz",
    ),
    "gravity up": (part("gravity", lambda b, _: -b), "gravity", "with the opposite sign"),
    "gravity not inverse": (
        part("gravity", lambda _, log: gravity(log["imu_quat"] * [1, -1, -1, -1])),
        "gravity",
        "not by its inverse",
    ),
    "degrees": (part("joint_vel", lambda b, _: np.degrees(b)), "joint_vel", "in degrees"),
    "no default pose": (part("joint_pos", lambda b, _: b + DEFAULT), "joint_pos", "without the default pose"),
    "scale of speeds": (part("joint_vel", lambda b, _: 2 * b), "joint_vel", "scaled by 2"),
    "scale of one joint": (
        part("joint_vel", lambda b, _: b * np.array([3.0] + [1.0] * 11)),
        "joint_vel",
        "RR_hip_joint scaled by 3",
    ),
    "scale of the angular velocity": (part("ang_vel", lambda b, _: 4 * b), "ang_vel", "scaled by 4"),
    "angular velocity in the world": (part("ang_vel", lambda _, log: world(log)), "ang_vel", "in the world's frame"),
    "last action after its scale": (
        part("last_action", lambda b, _: b * SCALES),
        "last_action",
        "after the action's scale",
    ),
    "last action clipped": (part("last_action", lambda b, _: np.clip(b, -1, 1)), "last_action", "clipped to ±1"),
    "last action is the target": (
        part("last_action", lambda b, _: DEFAULT + SCALES * b),
        "last_action",
        "the target and not the action",
    ),
    "last action late": (part("last_action", lambda b, _: late(b)), "last_action", "1 period late"),
    "order of the command": (part("command", lambda b, _: b[:, ::-1]), "command", "in another order: command[1]"),
    "command not scaled": (part("command", lambda b, _: b / 2), "command", "scaled by 0.5"),
    "positions late": (part("joint_pos", lambda b, _: late(late(b))), "joint_pos", "2 periods late"),
    "a scale of half a per cent": (part("joint_vel", lambda b, _: 1.005 * b), "joint_vel", "scaled by 1.005"),
    "a joint that is dead": (
        part("joint_pos", lambda b, _: b * np.array([1.0] * 11 + [0.0])),
        "joint_pos",
        "FL_calf_joint scaled by 0",
    ),
    "every third period late": (
        whole("time", lambda t: np.cumsum(np.where(np.arange(ROWS) % 3 == 0, 0.08, 0.02))),
        "period",
        "39.87 ms, the contract",
    ),
    "speed clipped": (part("joint_vel", lambda b, _: np.clip(b, -0.03, 0.03)), "joint_vel", "clipped to ±0.03"),
    "an offset": (part("gravity", lambda b, _: b + np.array([0.0, 0.1, 0.0])), "gravity", "gravity[1] offset by 0.1"),
    "scale of the action": (whole("target", lambda t: DEFAULT + 2 * (t - DEFAULT)), "target", "scaled by 2"),
    "targets without the pose": (whole("target", lambda t: t - DEFAULT), "target", "without the default pose"),
    "order of targets": (whole("target", lambda t: DEFAULT + (t - DEFAULT)[:, SIDES]), "target", "in another order"),
    "targets late": (whole("target", late), "target", "1 period late"),
    "gains doubled": (whole("joint_effort", lambda e: 2 * e), "gains", "RR_hip_joint kp 40 for 20"),
    "period": (whole("time", lambda t: 2 * t), "period", "40 ms, the contract says 20 ms"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_wrong_convention_is_named(name: str, right: tuple[Path, Arrays], tmp_path: Path) -> None:
    inject, where, phrase = DEFECTS[name]
    run, log = right
    changed = dict(log)
    inject(changed)
    if where == "target":
        # The motors of such a robot follow the targets that were sent.
        del changed["joint_effort"]
    found = audited(run, changed, tmp_path)
    assert found[where][0] == "differs"
    assert phrase in found[where][1]
    exchanged = {"order of terms": {"gravity"}, "sine and cosine": {"clock_2"}}.get(name, set())
    assert {part for part, (outcome, _) in found.items() if outcome == "differs"} == {where} | exchanged


def test_what_does_not_move_is_undetermined(right: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = right
    still = {name: np.repeat(np.asarray(value)[:1], ROWS, axis=0) for name, value in log.items() if name != "time"}
    found = audited(run, {"time": log["time"], **still}, tmp_path)
    assert found["joint_vel"][0] == "undetermined"
    assert "does not move in this log" in found["joint_vel"][1]
    assert found["gains"][0] == "undetermined"


def test_parts_that_the_log_lacks_are_absent(right: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = right
    kept = {name: value for name, value in log.items() if name not in ("time", "joint_effort", "target")}
    found = audited(run, kept, tmp_path)
    assert {part for part, (outcome, _) in found.items() if outcome == "absent"} == {"target", "gains", "period"}


def test_a_name_that_a_log_does_not_have_here_is_refused(right: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = right
    np.savez(tmp_path / "log.npz", **log)
    with pytest.raises(UnknownNameError, match="no part of a log named 'foo'"):
        audit(tmp_path / "log.npz", run, names={"foo": "action"})


def test_a_csv_with_names_of_joints_is_read(
    right: tuple[Path, Arrays], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, log = right
    robot = load_contract(run / "task" / "contract.json").robot.joint_names
    table: Arrays = {"time": log["time"]}
    for name, suffix in (("joint_pos", "pos"), ("joint_vel", "vel"), ("joint_effort", "effort")):
        table |= {f"{joint}_{suffix}": log[name][:, index] for index, joint in enumerate(robot)}
    for name, label in (
        ("observation", "obs"),
        ("action", "action"),
        ("target", "target"),
        ("imu_quat", "imu_quat"),
        ("imu_ang_vel_b", "imu_ang_vel_b"),
        ("velocity_command", "velocity_command"),
    ):
        table |= {f"{label}_{index}": column for index, column in enumerate(log[name].T)}
    path = tmp_path / "log.csv"
    rows = [",".join(table), *(",".join(f"{value:.9g}" for value in row) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert main(["policy", "audit", str(path), str(run), "--names", "observation=obs"]) == 0
    shown = capsys.readouterr().out
    assert "clock_2" in shown
    assert "DIFFERS" not in shown
    assert main(["policy", "audit", str(path), str(run), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert not record["agrees"]
    assert [one["outcome"] for one in record["findings"]] == ["absent", "agrees", "agrees", "agrees"]
    text = "the log has no observation; not read: obs; if one of them is it: --names observation=obs"
    assert record["findings"][0]["text"] == text


def test_arrays_as_wide_as_the_observation_are_named_first(right: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = right
    kept = {name: value for name, value in log.items() if name != "observation"}
    kept |= {"state": log["observation"], "a": np.zeros((ROWS, 7)), "step": np.arange(ROWS)}
    hint = "; not read: state, a; if one of them is it: --names observation=state"
    assert audited(run, kept, tmp_path)["observation"] == ("absent", f"the log has no observation{hint}")
    del kept["target"]
    with pytest.raises(ForeignPolicyError, match=f"observation nor target, one of which is compared{hint}"):
        audited(run, kept, tmp_path)


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"observation": None, "target": None}, "has neither observation nor target"),
        ({"imu_quat": None}, "the log lacks imu_quat"),
        ({"observation": np.zeros((ROWS, 5))}, r"observation has the shape \(300, 5\), expected \(rows, 48\)"),
        ({"action": np.zeros((7, 12))}, "arrays of different lengths"),
        ({"joint_pos": np.full((ROWS, 12), np.nan)}, "joint_pos holds numbers that are not finite"),
        ({"observation": np.float64(3.0)}, r"observation has the shape \(\), expected"),
        ({"observation": np.zeros(0)}, r"observation has the shape \(0, 1\), expected"),
        ({"imu_quat": np.zeros((ROWS, 4))}, "a quaternion whose length is not 1"),
        ({"time": -np.arange(ROWS)}, "time does not ascend"),
        ({"action": np.zeros((ROWS, 12), complex)}, "action is of type complex128"),
    ],
)
def test_a_log_that_cannot_be_compared_is_refused(
    change: Arrays, phrase: str, right: tuple[Path, Arrays], tmp_path: Path
) -> None:
    run, log = right
    with pytest.raises(ForeignPolicyError, match=phrase):
        audited(run, {name: value for name, value in {**log, **change}.items() if value is not None}, tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04K\x01."])
def test_a_damaged_log_is_refused(content: bytes, right: tuple[Path, Arrays], tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    path.write_bytes(content)
    with pytest.raises(ForeignPolicyError, match="not an NPZ file of numbers"):
        audit(path, right[0])


def test_a_log_of_sensors_alone_is_no_audit(right: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = right
    kept = {name: value for name, value in log.items() if name in ("joint_pos", "joint_vel", "imu_quat", "target")}
    np.savez(tmp_path / "log.npz", **kept)
    with pytest.raises(ForeignPolicyError, match="neither an observation nor an action with its target"):
        audit(tmp_path / "log.npz", run)
