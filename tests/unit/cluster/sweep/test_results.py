"""Sweep folders: what trials report, how points are ordered, and where lines of the picture go."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from physai.cluster.sweep.folder import SweepBase, SweepFolder
from physai.cluster.sweep.plan import Asha, Budget, Distribution, Sweep, SweepError
from physai.cluster.sweep.plot import PLOT_FILE, draw, metric_axis, setting_axis
from physai.cluster.sweep.results import best_trial, ranked, trial_results, write_csv
from physai.cluster.sweep.training import Training, TrialOrder, TrialReport
from physai.compute.ray.cluster import versions

ENDED = (
    '{"format_version": 1, "reason": "all iterations done", "interrupted": %s, "iterations": 4, "env_steps": 8, '
    '"seconds": 4.0, "success": null}'
)


def sweep_folder(folder: Path) -> SweepFolder:
    sweep = Sweep(
        parameters={
            "learning_rate": Distribution(loguniform=(1e-4, 1e-2)),
            "actor": Distribution(choice=("mlp", "gru")),
        },
        trials=2,
        seeds=(0, 1),
        budget=Budget(iterations=4),
        metric="success",
        asha=Asha(grace_period=1, reduction=2),
    )
    return SweepFolder.new(folder, SweepBase(task="cartpole-swingup"), sweep)


def write_run(run: Path, values: list[float], *, interrupted: bool = False) -> None:
    run.mkdir(parents=True)
    (run / "checkpoint.pt").write_bytes(b"")
    rows = [f"{number},{number}.5,{value}" for number, value in enumerate(values, start=1)]
    (run / "progress.csv").write_text("\n".join(["iteration,seconds,success", *rows, ""]))
    (run / "outcome.json").write_text(ENDED % str(interrupted).lower())


def test_points_are_ordered_by_whole_trials_then_by_their_mean(tmp_path: Path) -> None:
    folder = sweep_folder(tmp_path / "sweep")
    names = [trial.name for trial in folder.trials]
    assert names == ["0000-seed-0", "0000-seed-1", "0001-seed-0", "0001-seed-1"]
    assert [folder.state_of(trial) for trial in folder.trials] == ["waiting"] * 4
    write_run(folder.run(folder.trials[0]), [0.1, 0.2, 0.3, 0.4])
    write_run(folder.run(folder.trials[1]), [math.nan, 0.2, 0.3, 0.6])
    # Better, but stopped at its second iteration: what it did later does not count.
    write_run(folder.run(folder.trials[2]), [0.5, 0.9, 1.0], interrupted=True)
    folder.note_stopped(names[2], 2.0)
    write_run(folder.run(folder.trials[3]), [0.7, 0.8, 0.9, 0.9])
    results = trial_results(SweepFolder.open(folder.path))
    assert [(result.state, result.value, result.time) for result in results] == [
        ("ended", 0.4, 4.0),
        ("ended", 0.6, 4.0),
        ("stopped", 0.9, 2.0),
        ("ended", 0.9, 4.0),
    ]
    points = ranked(results)
    assert [(point.number, point.ended, point.mean) for point in points] == [(0, 2, 0.5), (1, 1, 0.9)]
    best = best_trial(points)
    assert best is not None
    assert best.trial.name == "0000-seed-1"
    write_csv(folder, results)
    rows = list(csv.DictReader((folder.path / "results.csv").read_text().splitlines()))
    assert [row["success"] for row in rows] == ["0.4", "0.6", "0.9", "0.9"]
    assert [row["run"] for row in rows] == [f"trials/{name}" for name in names]
    assert {row["learning_rate"] for row in rows} == {point["learning_rate"] for point in folder.record.points}
    assert draw(folder, results) == folder.path / PLOT_FILE
    assert (folder.path / PLOT_FILE).read_bytes().startswith(b"\x89PNG")


def test_a_sweep_without_a_whole_trial_has_no_best(tmp_path: Path) -> None:
    folder = sweep_folder(tmp_path)
    write_run(folder.run(folder.trials[0]), [0.5], interrupted=True)
    assert folder.state_of(folder.trials[0]) == "unfinished"
    folder.note_failed(folder.trials[1].name, "no memory")
    results = trial_results(folder)
    assert [result.state for result in results] == ["unfinished", "failed", "waiting", "waiting"]
    assert results[1].reason == "no memory"
    assert best_trial(ranked(results)) is None
    folder.forget_failures()
    assert SweepFolder.open(tmp_path).state_of(folder.trials[1]) == "waiting"


def test_a_folder_is_begun_once_and_read_strictly(tmp_path: Path) -> None:
    folder = sweep_folder(tmp_path)
    with pytest.raises(SweepError, match="already holds a sweep; continue it with `resume`"):
        sweep_folder(tmp_path)
    assert SweepFolder.open(tmp_path).record == folder.record
    with pytest.raises(SweepError, match=r"it has no sweep\.json"):
        SweepFolder.open(tmp_path / "trials")
    (tmp_path / "sweep.json").write_text('{"format_version": 2}')
    with pytest.raises(SweepError, match="newer"):
        SweepFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({}, "point 1 gives nothing, the sweep varies learning_rate, actor"),
        ({"learning_rate": "0.001", "actor": "mlp", "seed": "1"}, "gives learning_rate, actor, seed"),
        ({"learning_rate": "0.001", "actor": "lstm"}, "actor lstm is no value of"),
        ({"learning_rate": "0.1", "actor": "mlp"}, "learning_rate 0.1 is no value of"),
        ({"learning_rate": "nan", "actor": "mlp"}, "learning_rate nan is no value of"),
        ({"learning_rate": "x", "actor": "mlp"}, "learning_rate x is no value of"),
    ],
)
def test_points_that_the_sweep_cannot_have_drawn_are_refused(point: dict[str, str], words: str, tmp_path: Path) -> None:
    record: dict[str, Any] = json.loads((sweep_folder(tmp_path).path / "sweep.json").read_text())
    record["points"][1] = point
    (tmp_path / "sweep.json").write_text(json.dumps(record))
    with pytest.raises(SweepError) as caught:
        SweepFolder.open(tmp_path)
    assert words in str(caught.value)


def test_rungs_are_reported_exactly_then_the_end(tmp_path: Path) -> None:
    """Rungs at 1 and 2.5 of four rows: the third is the first at or beyond 2.5."""
    write_run(tmp_path / "run", [0.1, 0.2, 0.3, 0.4])
    order = TrialOrder(
        name="0000-seed-0",
        run=str(tmp_path / "run"),
        log=str(tmp_path / "log"),
        begun="{}",
        resumed="{}",
        clock="iteration",
        metric="success",
        rungs=(1.0, 2.5),
        end=4.0,
        versions=versions(["physai-sdk"]),
        until=math.inf,
    )
    training = Training(order)
    assert [training.report(60.0) for _ in range(3)] == [
        TrialReport(1.0, 0.1),
        TrialReport(3.0, 0.3),
        TrialReport(4.0, 0.4, ended=True),
    ]
    # Another version trains nothing: its numbers would be compared with those of the others.
    other = Training(replace(order, versions={"physai-sdk": "9.9"}, until=None))
    report = other.report(60.0)
    assert report.ended
    assert "the computer with the sweep has physai-sdk 9.9, this computer" in report.failure
    assert not (tmp_path / "log").exists()


def test_axes() -> None:
    """√(1e-4 · 1e-2) = 1e-3 lies half-way up, and 3 is half of 1 to 5."""
    assert setting_axis("a", Distribution(loguniform=(1e-4, 1e-2)), ["0.0001", "0.001", "0.01"]).positions == (
        pytest.approx((0.0, 0.5, 1.0))
    )
    whole = setting_axis("b", Distribution(ints=(1, 3)), ["1", "2", "3"])
    assert whole.positions == (0.0, 0.5, 1.0)
    assert whole.ticks == ((0.0, "1"), (0.5, "2"), (1.0, "3"))
    assert setting_axis("c", Distribution(uniform=(1.0, 5.0)), ["3"]).positions == (0.5,)
    choice = setting_axis("d", Distribution(choice=("x", "y", "z")), ["z", "x"])
    assert choice.positions == (1.0, 0.0)
    assert setting_axis("e", Distribution(choice=("x",)), ["x"]).positions == (0.5,)
    assert metric_axis("success", [0.25]).positions == (0.25,)
    assert metric_axis("reward_per_s", [2.0, 4.0, 3.0]).positions == (0.0, 1.0, 0.5)
    assert metric_axis("reward_per_s", [2.0]).positions == (0.0,)
