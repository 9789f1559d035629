"""Drift in a fleet: e-values of the monitor's own bets, reports signed and not, and files that are none."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physai.drift import DriftError, fleet_drift
from physai.drift.monitor.detector import Detectors
from physai.sdk.base.errors import PhysaiError
from physai.sdk.stats.e_values import e_benjamini_hochberg

BLOCKS = 90


def report(folder: Path, unit: str | None, log_e: float | None, **changes: Any) -> Path:
    found: dict[str, Any] = {"outcome": "HOLDS", "reason": "no change", "named": [], "unit": unit, "usable_s": 250.0}
    path = folder / f"{(unit or 'report').replace('/', '-')}.json"
    path.write_text(json.dumps({**found, "log_e_value": log_e, **changes}))
    return path


def monitored(rng: np.random.Generator, shift: float) -> float:
    """Log e-value of a robot with four watched changes, one of them shifted; the noise has heavy tails."""
    detectors = Detectors(4, 1e300)
    margin, step, known = np.full(4, 0.1), np.full(4, 0.1), np.ones(4, bool)
    noise = 0.1 * rng.standard_t(3.0, size=(BLOCKS, 4))
    # Unchanged robots stand at the edge of what their twin allows, the worst that is no change.
    noise += 0.1
    noise[BLOCKS // 3 :, 0] += shift
    for row in noise:
        detectors.bet(row, margin, step, known)
    return detectors.log_e(BLOCKS)


def test_five_changed_robots_of_a_hundred_are_found_and_few_others() -> None:
    rng = np.random.default_rng(8)
    same = [monitored(rng, 0.0) for _ in range(60)]
    changed = [monitored(rng, 0.15) for _ in range(15)]
    found, false = list[int](), list[float]()
    for _ in range(300):
        values = [*rng.choice(changed, 5).tolist(), *rng.choice(same, 95).tolist()]
        named = e_benjamini_hochberg(values, 0.10)
        found.append(sum(number < 5 for number in named))
        false.append(sum(number >= 5 for number in named) / max(1, len(named)))
    assert np.mean(np.array(found) >= 4) >= 0.95
    assert np.mean(false) <= 0.10


def test_the_e_value_of_an_unchanged_robot_is_one_on_average_at_most() -> None:
    rng = np.random.default_rng(1)
    # A fair coin at each block: the mean over all of them is exactly 1, by hand for two blocks with bets of ±½.
    by_hand = np.mean([((1 + a) * (1 + b) + (1 + b)) / 2 for a in (-0.5, 0.5) for b in (-0.5, 0.5)])
    assert by_hand == pytest.approx(1.0)
    sizes: list[float] = []
    for _ in range(200):
        detectors = Detectors(1, 1e300)
        for sign in rng.choice([-1.0, 1.0], 8):
            detectors.bet(np.array([sign * 9.0]), np.zeros(1), np.ones(1), np.ones(1, bool))
        sizes.append(math.exp(detectors.log_e(8)))
    assert np.mean(sizes) == pytest.approx(1.0, abs=4.0 * float(np.std(sizes)) / 14.0)


def test_robots_that_changed_come_first_with_what_explains_them(tmp_path: Path) -> None:
    files = [report(tmp_path, f"ur10e/cell-{k}", math.log(0.5)) for k in range(4)]
    files.append(
        report(tmp_path, "ur10e/cell-9", math.log(60.0), outcome="DRIFTED", named=["forearm_link.mass"], reason="mass")
    )
    found = fleet_drift(files)
    assert [one.robot for one in found.changed] == ["ur10e/cell-9"]
    assert found.robots[0].parameters == ("forearm_link.mass",)
    assert len(found.robots) == 5
    # Five robots at 1 %: one alone needs an e-value of 500.
    assert fleet_drift(files, false_share=0.01).changed == ()


def test_a_robot_without_a_usable_block_counts_as_unchanged(tmp_path: Path) -> None:
    found = fleet_drift([report(tmp_path, "a/b", None, outcome="NO EVIDENCE", usable_s=0.0)])
    assert found.robots[0].log_e_value == -math.inf
    assert not found.changed


def test_two_reports_of_one_robot_are_refused(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    files = [report(tmp_path, "a/b", 0.0), report(tmp_path / "again", "a/b", 0.0)]
    with pytest.raises(DriftError, match=r"are both of a/b; give one report per robot"):
        fleet_drift(files)


def test_copies_of_a_report_that_names_no_unit_are_refused(tmp_path: Path) -> None:
    """Forty robots that have changed, which are one, would lower the bar for all others."""
    first = report(tmp_path, None, math.log(1e6))
    copy = tmp_path / "copy.json"
    copy.write_bytes(first.read_bytes())
    with pytest.raises(
        DriftError, match=r"copy\.json and .*report\.json are the same bytes; give one report per robot"
    ):
        fleet_drift([first, copy])


def test_robots_without_a_unit_are_named_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    files = [report(tmp_path / "a", None, 2.0), report(tmp_path / "b", None, 1.0)]
    assert [one.robot for one in fleet_drift(files).robots] == [str(file) for file in files]


@pytest.mark.parametrize("unit", ["ur10e/cell-3 ", "", "a b", "a/\nb", 5, "a" * 129])
def test_a_name_that_no_robot_can_have_is_refused(tmp_path: Path, unit: Any) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps({"outcome": "HOLDS", "reason": "", "named": [], "unit": unit, "log_e_value": 0.0}))
    with pytest.raises(DriftError, match="is no name of a robot, MODEL/UNIT"):
        fleet_drift([file])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no report of `physai drift --json`"),
        ('{"outcome": "FINE", "reason": "", "named": []}', "no report of `physai drift --json`"),
        ('{"outcome": "HOLDS", "reason": "", "named": [1]}', "no report of `physai drift --json`"),
        ('{"outcome": "HOLDS", "reason": "", "named": [], "log_e_value": NaN}', "nan, not a finite number"),
        ('{"outcome": "HOLDS", "reason": "", "named": [], "log_e_value": true}', "True, not a finite number"),
        (f'{{"outcome": "HOLDS", "reason": "", "named": [], "log_e_value": 1{"0" * 400}}}', "not a finite number"),
        ('{"outcome": "HOLDS", "reason": "", "named": [], "usable_s": 9}', "a report of an older version"),
        ('{"outcome": "HOLDS", "reason": "", "named": [], "usable_s": NaN}', "a report of an older version"),
        ('{"outcome": "HOLDS", "reason": "", "named": [], "usable_s": -Infinity}', "a report of an older version"),
        ('{"outcome": "DRIFTED", "reason": "", "named": [], "usable_s": 0}', "a report of an older version"),
    ],
)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(DriftError, match=message):
        fleet_drift([tmp_path / "x.json"])


def test_a_share_out_of_range_and_no_report_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PhysaiError, match="`false_share` must lie in"):
        fleet_drift([report(tmp_path, "a/b", 0.0)], false_share=0.9)
    with pytest.raises(DriftError, match="0 reports given; give 1 to 10000"):
        fleet_drift([])
