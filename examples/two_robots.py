"""A team of your own: two cart-poles with a spring between their carts, each with its own policy and contract.

python examples/two_robots.py FOLDER [ITERATIONS]
"""

import sys
from pathlib import Path

import mujoco

from physai.sim import OnnxPolicy, Team, TeamEnvironment, load_task, play_team, team_model
from physai.train import TeamTrainer, TrainConfig, export_policy


def spring(spec: mujoco.MjSpec) -> None:
    """A spring of 20 N/m that is at rest while its ends are as far apart as the rails."""
    tendon = spec.add_tendon(name="spring", stiffness=20.0, springlength=[0.8, 0.8], width=0.01)
    for member in ("left", "right"):
        # Everything of a robot has its member's name before its own.
        spec.body(f"{member}_cart").add_site(name=f"{member}_hook")
        tendon.wrap_site(f"{member}_hook")


def sprung_cartpoles() -> Team:
    """Two robots with unchanged tasks: each may be trained, validated and flashed alone as well."""
    members = {"left": load_task("cartpole-swingup"), "right": load_task("cartpole-swingup")}
    places = {"left": (0.0, 0.4, 0.0), "right": (0.0, -0.4, 0.0)}
    model = team_model(members, places, couple=spring)
    return Team(name="cartpoles-sprung", summary="two cart-poles on one spring", members=members, model=model)


def main(folder: Path, iterations: int) -> None:
    team = sprung_cartpoles()
    worlds = TeamEnvironment(team, 16)
    seen = worlds.reset()["left"]
    print(f"each robot senses its own joints: {', '.join(sorted(seen.sensors))}")

    config = TrainConfig(num_envs=256, horizon=48, epochs=4, activation="tanh", discount_s=1.5, max_learning_rate=3e-3)
    trainer = TeamTrainer(team, config)
    for _ in range(iterations):
        stats = trainer.train_iteration()
        rewards = ", ".join(f"{name} {one.reward_per_s:.3f}" for name, one in stats.items())
        print(f"{trainer.env_steps} steps, reward per second: {rewards}")

    # One file per robot, with the contract of its own task.
    policies: dict[str, OnnxPolicy] = {}
    for name, graph in trainer.graphs.items():
        report = export_policy(graph, team.members[name], folder / name, provenance={"team": team.name})
        policies[name] = OnnxPolicy.load(Path(report.folder) / "policy.onnx")
        print(f"{name}: {report.operators} operators, contract {report.fingerprint[:12]}")
    played = play_team(policies, team, episodes=64)
    for name, episodes in played.members.items():
        print(f"{name} succeeds in {sum(episodes.succeeded)} of 64 episodes")
    print(f"both succeed in {sum(played.together)} of 64 episodes")


if __name__ == "__main__":
    if len(sys.argv) < 2 or not all(number.isdecimal() for number in sys.argv[2:]):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200)
