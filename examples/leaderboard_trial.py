"""Score an exported policy of the double pendulum by the rules of the RealAIGym leaderboards (v2).

python examples/leaderboard_trial.py FOLDER_OR_POLICY.onnx [--json]
"""

import dataclasses
import json
import sys
from pathlib import Path

from realaigym.trial import PRESET, PUBLISHED, board_name, play_trial

from physai.sdk import PhysaiError
from physai.sim import OnnxPolicy


def policy_file(path: Path) -> Path:
    """The policy at a path: the file itself, or the export in a run folder or in a folder that `wrap` wrote."""
    candidates = (path / "export" / "policy.onnx", path / "policy.onnx")
    return next((file for file in candidates if file.is_file()), path)


def main(path: Path, *, as_json: bool) -> None:
    """Play the trial and print score, criteria and published scores."""
    policy = OnnxPolicy.load(policy_file(path))
    board = board_name(policy.contract)
    result = play_trial(policy, policy.contract)
    criteria, published = dataclasses.asdict(result.criteria), PUBLISHED[board]
    if as_json:
        found = {"preset": PRESET, "board": board, "score": result.value, "success": result.success}
        origin = {"policy": str(path), "fingerprint": policy.fingerprint}
        print(json.dumps({**origin, **found, "criteria": criteria, "published": published}))
        return
    better = sum(result.value > value for value in published.values())
    print(f"RealAIGym {board}: score {result.value:.4f}, above {better} of {len(published)} published")
    for name, value in criteria.items():
        print(f"  {name:<18} {value:.4f}")
    print("published:")
    for name, value in published.items():
        print(f"  {name:<18} {value:.3f}")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--json"]
    if len(words) != 1:
        sys.exit(__doc__)
    try:
        main(Path(words[0]), as_json="--json" in sys.argv)
    except PhysaiError as error:
        sys.exit(str(error))
