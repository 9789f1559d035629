"""Logs of policies with histories: another order of samples and another first fill are named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.foreign.test_audit import ROWS, sensors
from tests.integration.foreign.test_import import DESCRIPTION, JOINTS, network, write

from physai.foreign import ForeignPolicyError, audit, import_policy
from physai.sdk.contract.io import load_contract

Arrays = dict[str, Any]
HISTORY = 3
DEFAULT = np.array(DESCRIPTION["default_pos"])
TERMS = [{"of": "joint_pos", "history": HISTORY}, {"of": "joint_vel", "history": HISTORY, "scale": 0.05}]
PAST_ZERO = "zeros before the first sample, the contract has copies of the first sample"
PAST_COPIES = "copies of the first sample before the first sample, the contract has zeros"


def imported(folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    fields: Arrays = {"observation": TERMS, **changes}
    path = write(folder / "policy", **fields)
    network(folder / "policy" / "network.onnx", inputs=24 * HISTORY)
    return import_policy(path, model="go2", out=folder / "run").folder


def samples(run: Path) -> tuple[Arrays, list[Any]]:
    """Sensors, and what each term makes of them in each row."""
    robot = list(load_contract(run / "task" / "contract.json").robot.joint_names)
    log = sensors(robot, np.random.default_rng(5))
    columns = [robot.index(name) for name in JOINTS]
    return log, [log["joint_pos"][:, columns] - DEFAULT, 0.05 * log["joint_vel"][:, columns]]


def observation(terms: list[Any], *, layout: str = "term", newest: str = "last", fill: str = "repeat") -> Any:
    rows: list[Any] = []
    for row in range(ROWS):
        past = [
            [term[row - age] if age <= row else (term[0] if fill == "repeat" else 0.0 * term[0]) for term in terms]
            for age in range(HISTORY)
        ]
        ages = past if newest == "first" else past[::-1]
        ordered = ages if layout == "time" else [list(term) for term in zip(*ages, strict=True)]
        rows.append(np.concatenate([np.concatenate(one) for one in ordered]))
    return np.array(rows)


def audited(run: Path, log: Arrays, tmp_path: Path, first: int = 0) -> dict[str, tuple[str, str]]:
    path = tmp_path / "log.npz"
    np.savez(path, **{name: value[first:] for name, value in log.items()})
    found = {finding.part: (finding.outcome, finding.text) for finding in audit(path, run).findings}
    return {part: finding for part, finding in found.items() if finding[0] != "absent"}


SPECS = [
    {"layout": layout, "newest": newest, "fill": fill}
    for layout in ("term", "time")
    for newest in ("last", "first")
    for fill in ("repeat", "zero")
]


@pytest.mark.slow
@pytest.mark.parametrize("spec", [SPECS[0], SPECS[3], SPECS[5], SPECS[6]], ids=lambda spec: "-".join(spec.values()))
def test_each_order_and_fill_is_told_from_the_others(spec: dict[str, str], tmp_path: Path) -> None:
    run = imported(tmp_path, layout=spec["layout"], newest=spec["newest"], first_fill=spec["fill"])
    log, terms = samples(run)
    for other in SPECS:
        found = audited(run, {**log, "observation": observation(terms, **other)}, tmp_path)
        differs = {part: text for part, (outcome, text) in found.items() if outcome == "differs"}
        if other == spec:
            assert found == dict.fromkeys(("joint_pos", "joint_vel", "first_fill"), ("agrees", ""))
        elif other["layout"] != spec["layout"]:
            words = {"term": "all samples of a term", "time": "all terms of a sample"}[other["layout"]]
            assert words in differs["observation"]
            assert differs["observation"].endswith(f"the newest sample {other['newest']}")
        elif other["newest"] != spec["newest"]:
            assert differs == dict.fromkeys(("joint_pos", "joint_vel"), f"the newest sample {other['newest']}")
        else:
            assert differs == {"first_fill": PAST_ZERO if other["fill"] == "zero" else PAST_COPIES}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Imported policies by their first fill."""
    folder = tmp_path_factory.mktemp("runs")
    return {fill: imported(folder / fill, first_fill=fill) for fill in ("repeat", "zero")}


@pytest.mark.parametrize("fill", ["repeat", "zero"])
@pytest.mark.parametrize("first", [1, 2, 40])
def test_a_log_may_begin_in_the_middle(fill: str, first: int, runs: dict[str, Path], tmp_path: Path) -> None:
    log, terms = samples(runs[fill])
    found = audited(runs[fill], {**log, "observation": observation(terms, fill=fill)}, tmp_path, first)
    assert found["first_fill"] == (
        "undetermined",
        "the log begins after the policy's first period, so that the first samples are not tested",
    )
    assert found["joint_pos"] == found["joint_vel"] == ("agrees", "")


@pytest.mark.parametrize("fill", ["repeat", "zero"])
def test_a_robot_that_rests_before_the_log_is_no_alarm(fill: str, runs: dict[str, Path], tmp_path: Path) -> None:
    log, _ = samples(runs[fill])
    resting = {name: np.vstack([np.repeat(value[:1], 20, axis=0), value[:-20]]) for name, value in log.items()}
    robot = list(load_contract(runs[fill] / "task" / "contract.json").robot.joint_names)
    columns = [robot.index(name) for name in JOINTS]
    terms = [resting["joint_pos"][:, columns] - DEFAULT, 0.05 * resting["joint_vel"][:, columns]]
    made = {**resting, "observation": observation(terms, fill=fill)}
    assert not [part for part, (outcome, _) in audited(runs[fill], made, tmp_path, 5).items() if outcome == "differs"]


def test_another_defect_of_a_term_does_not_hide_the_first_fill(runs: dict[str, Path], tmp_path: Path) -> None:
    log, (positions, speeds) = samples(runs["repeat"])
    made = observation([positions, 2.0 * speeds], fill="zero")
    found = audited(runs["repeat"], {**log, "observation": made}, tmp_path)
    assert found["joint_vel"] == ("differs", "scaled by 2")
    assert found["first_fill"] == ("differs", PAST_ZERO)
    # Each term's samples in another order: no term is left to tell.
    found = audited(runs["repeat"], {**log, "observation": observation([positions, speeds], newest="first")}, tmp_path)
    assert found["first_fill"][0] == "undetermined"


def test_a_log_has_rows_after_its_first_history(runs: dict[str, Path], tmp_path: Path) -> None:
    log, terms = samples(runs["repeat"])
    made = {**log, "observation": observation(terms)}
    found = audited(runs["repeat"], {name: value[:22] for name, value in made.items()}, tmp_path)
    assert {outcome for outcome, _ in found.values()} == {"agrees"}
    with pytest.raises(ForeignPolicyError, match="has 21 rows, at least 22 are needed for histories of 3 samples"):
        audited(runs["repeat"], {name: value[:21] for name, value in made.items()}, tmp_path)
