"""Train with Stable-Baselines3 (`pip install stable-baselines3`), export the agent, and let the gates judge it.

python examples/sb3_agent.py FOLDER [STEPS]
"""

import sys
from pathlib import Path

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize

from physai.gates import ValidationOptions, validate
from physai.sim import OnnxPolicy, load_task, play_episodes
from physai.train import export_policy
from physai.train.adapters.sb3 import TaskVecEnv, graph_from_sb3

CRANE = str(Path(__file__).with_name("crane_task.py"))


def main(folder: Path, steps: int) -> None:
    torch.set_num_threads(1)  # the network is too small to share
    task = load_task(CRANE)
    worlds = VecNormalize(TaskVecEnv(task, 128, seed=0, training=True, action_repeat=2))
    network = {"net_arch": [32, 32], "log_std_init": -0.5}
    agent = PPO(
        "MlpPolicy", worlds, n_steps=64, batch_size=2048, learning_rate=1e-3, gamma=0.97, policy_kwargs=network, seed=0
    )
    agent.learn(steps)  # pyright: ignore[reportUnknownMemberType]

    # The observation, VecNormalize's statistics, the network and the limits of the command become one ONNX graph.
    report = export_policy(graph_from_sb3(agent, task), task, folder, provenance={"learner": "stable-baselines3"})
    file = folder / "policy.onnx"
    played = play_episodes(OnnxPolicy(file.read_bytes(), source=str(file)), task, episodes=64)
    print(f"{report.operators} operators; {sum(played.succeeded)} of {sum(played.judged)} episodes succeed")

    # Without a twin of a real robot no policy passes, and the verdict says what is missing.
    verdict = validate(file, options=ValidationOptions(task=CRANE, jobs=2))
    for gate in verdict.gates:
        print(f"  {gate.gate:<16} {gate.outcome.value:<13} {gate.message[:70]}")


# Worker processes import this file again, so what it does must not happen at import.
if __name__ == "__main__":
    if len(sys.argv) < 2 or not all(number.isdecimal() for number in sys.argv[2:]):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 500_000)
