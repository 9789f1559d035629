"""`physai eval`: evaluates an exported policy in simulation."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.compute.cli.options import add_device_argument, progress_bar, require_range
from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.command import CliCommand
from physai.sim.cli.team_verb import evaluate_team

if TYPE_CHECKING:
    from physai.sdk.onnx.device import PolicyDevice
    from physai.sim.policies.evaluate import Episodes
    from physai.sim.policies.onnx import OnnxPolicy
    from physai.sim.tasks.task import Task

MAX_EPISODES = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai eval`."""
    parser.add_argument("policy", type=Path, help="run folder, of a robot or a team, or exported policy.onnx")
    parser.add_argument(
        "--task", help="task name, Python file, or run folder whose copy is to be run, if the task is not built in"
    )
    parser.add_argument(
        "--robot", help="MJCF or URDF file that the policy was trained with, if its run folder does not keep it"
    )
    parser.add_argument("--episodes", type=int, default=256, metavar="N", help="number of episodes (default: 256)")
    parser.add_argument("--nominal", action="store_true", help="no randomised parameters, noise, delays or pushes")
    parser.add_argument("--preset", help=argparse.SUPPRESS)
    parser.add_argument(
        "--engine",
        choices=("mujoco", "warp"),
        default="mujoco",
        help="physics engine: mujoco on the CPU, or warp where the policy is computed (default: mujoco)",
    )
    add_device_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Evaluates the policy with onnxruntime; on the CPU it does not need torch."""
    from physai.sdk.policy.team_record import holds_team
    from physai.sim.policies.devices import choose_policy_device, make_policy
    from physai.sim.policies.onnx import read_policy
    from physai.sim.policies.resolve import find_policy

    if arguments.preset:
        raise PhysaiError(
            f"physai eval has no --preset {arguments.preset} any more; the leaderboards' trial is in physai's sources: "
            f"python examples/leaderboard_trial.py {arguments.policy}"
        )
    if holds_team(arguments.policy):
        return evaluate_team(arguments, max_episodes=MAX_EPISODES)
    device = choose_policy_device(arguments.device)
    path = find_policy(arguments.policy)
    if arguments.engine == "warp":
        return _on_device(path, arguments, device)
    policy = make_policy(read_policy(path), source=str(path), device=device)
    result = _episodes(policy, path, arguments)
    return _print(path, policy, device, result, arguments)


def _print(
    path: Path, policy: "OnnxPolicy", device: "PolicyDevice", result: dict[str, Any], arguments: argparse.Namespace
) -> int:
    if arguments.json:
        identity = {"policy": str(path), "fingerprint": policy.fingerprint, "device": str(device)}
        print(json.dumps({**identity, "engine": arguments.engine, **result}))
    else:
        print(_text(result) if device.kind == "cpu" else f"{_text(result)}\n  computed on {device}")
    return 0


def _on_device(path: Path, arguments: argparse.Namespace, device: "PolicyDevice") -> int:
    from physai.sim.envs.device.capacity import build_engine
    from physai.sim.envs.device.device_environment import DeviceEnvironment
    from physai.sim.policies.device_evaluate import play_on_device
    from physai.sim.policies.device_policy import DevicePolicy
    from physai.sim.policies.evaluate import EVALUATION_SEED
    from physai.sim.policies.onnx import read_policy
    from physai.sim.policies.resolve import find_origin

    require_range("--episodes", arguments.episodes, 1, MAX_EPISODES)
    task = find_origin(path, task=arguments.task, robot=arguments.robot).load()
    policy = DevicePolicy(read_policy(path), source=str(path), device=device)
    engine = build_engine(task, arguments.episodes, device=device.memory)
    environment = DeviceEnvironment(task, engine, seed=EVALUATION_SEED, randomise=not arguments.nominal)
    with progress_bar() as bar:
        line = bar.add_task(f"playing {arguments.episodes} episodes", total=1.0)
        played = play_on_device(policy, environment, progress=lambda share: bar.update(line, completed=share))
    return _print(path, policy, device, _summary(task, played), arguments)


def _episodes(policy: "OnnxPolicy", path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    from physai.sim.policies.evaluate import play_episodes
    from physai.sim.policies.resolve import find_origin

    require_range("--episodes", arguments.episodes, 1, MAX_EPISODES)
    task = find_origin(path, task=arguments.task, robot=arguments.robot).load()
    with progress_bar() as bar:
        line = bar.add_task(f"playing {arguments.episodes} episodes", total=1.0)
        played = play_episodes(
            policy,
            task,
            episodes=arguments.episodes,
            randomise=not arguments.nominal,
            progress=lambda share: bar.update(line, completed=share),
        )
    return _summary(task, played)


def _summary(task: "Task", played: "Episodes") -> dict[str, Any]:
    lower, upper = played.success_interval()
    return {
        "task": task.name,
        "criterion": task.success.text,
        "judged": sum(played.judged),
        "succeeded": sum(played.succeeded),
        "success": played.success,
        "success_interval_95": [lower, upper],
        "metrics": played.metrics,
        "diverged_episodes": len(played.diverged),
    }


def _text(result: dict[str, Any]) -> str:
    lower, upper = result["success_interval_95"]
    diverged = result["diverged_episodes"]
    ended = f"\n  {diverged} ended because a command was not finite or the physics diverged" if diverged else ""
    metrics = "".join(f"\n  mean {key} {value:.4g}" for key, value in result["metrics"].items())
    return (
        f"{result['task']}: {result['succeeded']} of {result['judged']} succeeded, {result['success']:.1%} "
        f"(95 % interval {lower:.1%} to {upper:.1%}; {result['criterion']}){ended}{metrics}"
    )


command = CliCommand(summary="evaluate an exported policy in simulation", add_arguments=add_arguments, run=run)
