"""Your own arm: import its URDF, check it, train it to reach, and play what was exported.

python examples/urdf_arm.py ARM.urdf FOLDER [ITERATIONS]
"""

import sys
from dataclasses import replace
from pathlib import Path

from physai.sim import OnnxPolicy, check_robot, import_robot, load_task, play_episodes
from physai.train import export, preset_for, train


def main(urdf: Path, folder: Path, iterations: int | None) -> None:
    imported = import_robot(urdf, folder / "robot")
    # What the URDF leaves open, each with the option of `physai robots import` that decides otherwise.
    print("\n".join(imported.decisions.lines()))
    check = check_robot(imported.robot)
    for finding in check.findings:
        print(f"{finding.about}: {finding.text}")
    assert check.stable

    robot = str(folder / "robot")
    config = preset_for("reach")
    outcome = train(
        "reach", folder / "run", model=robot, config=replace(config, iterations=iterations or config.iterations)
    )
    report = export(folder / "run")
    file = Path(report.folder) / "policy.onnx"
    task = load_task("reach", robot=robot)
    played = play_episodes(OnnxPolicy(file.read_bytes(), source=str(file)), task, episodes=64)
    print(f"{sum(played.succeeded)} of {sum(played.judged)} poses reached after {outcome.seconds:.0f} s of training")


if __name__ == "__main__":
    if len(sys.argv) < 3 or not all(number.isdecimal() for number in sys.argv[3:]):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
