"""From recordings to a judged policy in Python: each verb of `physai` is one function with the same options.

physai train cartpole-swingup --out run --iterations 3 && physai export run
python examples/from_python.py run folder
"""

import sys
from pathlib import Path

from physai.gates import ScoreComparison, ValidationOptions, rank
from physai.service import Playback, play, validate
from physai.sim import (
    PolicyEvaluation,
    RobotImport,
    draw_robot,
    evaluate,
    import_robot,
    new_task,
)
from physai.twin import (
    Calibration,
    DesignedCommands,
    LogsCheck,
    ReplayComparison,
    StandInRecordings,
    calibrate,
    check_logs,
    excite,
    record,
    replay,
)


def twin_of(robot: str, folder: Path) -> Path:
    """A twin of a stand-in for the robot, which recordings of yours replace."""
    made: StandInRecordings = record(robot, out=folder / "recordings", recordings=4, duration_s=6.0, steps=0.2)
    checked: LogsCheck = check_logs(made.files, model=robot)
    print(f"{sum(report.usable for report in checked.reports.values())} of {len(made.files)} recordings are usable")
    twin = folder / "twin.json"
    # Two of them are held out of the fit.
    fitted: Calibration = calibrate(robot, made.files, out=twin, report=folder / "calibration", budget_steps=500_000)
    print(f"twin {fitted.twin.hash[:12]}, report {fitted.report}")
    scored: ReplayComparison = replay(twin, made.files, against=robot)
    assert scored.against is not None
    joints = zip(scored.score.joint_names, scored.score.rmse, strict=True)
    print("replay error in the twin:", ", ".join(f"{name} {error.value:.2g}" for name, error in joints))
    designed: DesignedCommands = excite(twin, out=folder / "excitation.csv", candidates=2, duration_s=4.0)
    print(f"a recording of {designed.file} constrains all parameters: {designed.constrains_all}")
    return twin


def main(run: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    twin = twin_of("cartpole", folder)

    found = evaluate(run, episodes=32)
    assert isinstance(found, PolicyEvaluation)
    print(f"{sum(found.episodes.succeeded)} of {sum(found.episodes.judged)} episodes succeed")
    played: Playback = play(run, video=folder / "play.mp4", duration_s=2.0)
    print(f"{len(played.outcomes)} episodes in play.mp4")

    # `server="https://…"` validates in a service.
    options = ValidationOptions(accept="stand-in,computer", jobs=2)
    verdict = validate(run, twin, report=folder / "validation", options=options)
    print(f"verdict {verdict.outcome.value}")

    # Scores on the robot and in simulation, which other programs write.
    (folder / "real.csv").write_text("policy,success\na,1\na,0\nb,1\nb,1\nc,0\nc,0\n")
    (folder / "sim.csv").write_text("policy,score\na,0.6\nb,0.9\nc,0.2\n")
    agreement: ScoreComparison = rank(folder / "real.csv", folder / "sim.csv")
    print(f"ranks agree: {agreement.validity.spearman.value}")

    imported: RobotImport = import_robot(found.task.robot.path, folder / "cart")
    picture = draw_robot(imported.robot, folder / "cart.png")
    print(f"imported {imported.robot.name}, stable: {imported.check.stable}, drawn in {picture.name}")
    print(f"next: physai train {new_task('my_task', out=folder)}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
