"""Train a policy, export it as one ONNX graph, and let the gates judge it.

python examples/train_and_validate.py FOLDER
"""

import sys
from dataclasses import replace
from pathlib import Path

from physai.gates import ValidationOptions, validate
from physai.sdk import GateResult, Verdict, VerdictOutcome, load_verdict
from physai.sim import OnnxPolicy, load_task, play_episodes
from physai.train import ExportReport, TrainConfig, TrainingOutcome, export, preset_for, train


def main(run: Path) -> None:
    config: TrainConfig = replace(preset_for("cartpole-swingup"), iterations=20, seed=1)
    outcome: TrainingOutcome = train("cartpole-swingup", run, config=config)
    print(f"{outcome.env_steps} steps in {outcome.seconds:.0f} s")

    report: ExportReport = export(run)
    print(
        f"policy.onnx: {report.policy_bytes} bytes; largest difference to torch {max(report.differences.values()):.1e}"
    )

    # The exported file plays in the twin as it will on the robot: without torch, by ONNX Runtime.
    file = Path(report.folder) / "policy.onnx"
    played = play_episodes(OnnxPolicy(file.read_bytes(), source=str(file)), load_task("cartpole-swingup"), episodes=32)
    print(f"{sum(played.succeeded)} of {sum(played.judged)} episodes succeed")

    # No twin is given, so the nominal robot is the twin, and no policy may pass: nobody compared it with a robot.
    verdict: Verdict = validate(run, options=ValidationOptions(jobs=2))
    for gate in verdict.gates:
        result: GateResult = gate
        print(f"  {result.gate:<16} {result.outcome.value:<13} {result.message[:70]}")
    assert verdict.outcome is not VerdictOutcome.PASS
    assert load_verdict(run / "validation").policy_sha256 == report.policy_sha256


# Worker processes import this file again, so what it does must not happen at import.
if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
