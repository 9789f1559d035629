"""Evaluate an exported policy, or those of a team, in simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import require_choice, require_range
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sdk.onnx.device import PolicyDevice
    from physai.sim.policies.evaluate import Episodes
    from physai.sim.policies.onnx import OnnxPolicy
    from physai.sim.tasks.task import Task
    from physai.sim.teams.team import Team
    from physai.sim.teams.team_evaluate import TeamEpisodes

MAX_EPISODES = 100_000


@dataclass(frozen=True, kw_only=True)
class PolicyEvaluation:
    """Episodes of one policy."""

    policy: Path
    fingerprint: str
    device: PolicyDevice
    engine: str
    task: Task
    episodes: Episodes


@dataclass(frozen=True, kw_only=True)
class TeamEvaluation:
    """Episodes of a team."""

    team: Team
    episodes: TeamEpisodes


def evaluate(
    policy: Path | str,
    *,
    task: str | Path | None = None,
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    episodes: int = 256,
    nominal: bool = False,
    engine: Literal["mujoco", "warp"] = "mujoco",
    device: Annotated[str, Option(metavar="DEVICE")] = "cpu",
    progress: Callable[[float], None] = lambda share: None,
) -> PolicyEvaluation | TeamEvaluation:
    """Play episodes of an exported policy in simulation and count its successes; on the CPU it does not need torch.

    Args:
        policy: run folder, of a robot or a team, or exported policy.onnx.
        task: task name, Python file, or run folder whose copy is to be run, if the task is not built in.
        model: MJCF or URDF file that the policy was trained with, if its run folder does not keep it.
        episodes: number of episodes.
        nominal: no randomised parameters, noise, delays or pushes.
        engine: physics engine: mujoco on the CPU, or warp where the policy is computed.
        device: what computes the policy: cpu, cuda[:N], or tensorrt[:N] for TensorRT on that GPU.
        progress: called with the share of the time played.

    Returns:
        The episodes; those of a team for the run folder of one.

    Raises:
        DeviceError: this machine lacks the device.
        TaskError: the policy's task has to be named.
        PhysaiError: the policy cannot be read, or an option is out of range or not for a team.
    """
    from physai.sdk.policy.team_record import holds_team
    from physai.sim.policies.devices import choose_policy_device, make_policy
    from physai.sim.policies.evaluate import play_episodes
    from physai.sim.policies.onnx import read_policy
    from physai.sim.policies.resolve import find_origin, find_policy
    from physai.sim.teams.trained_team import require_one_robot

    require_choice("engine", engine, ("mujoco", "warp"))
    policy = Path(policy)
    if holds_team(policy):
        given = {"task": task, "model": model}
        require_one_robot(policy, given)
        if engine != "mujoco":
            raise PhysaiError(f"`engine` {engine} is for one robot; a team is played by engine mujoco")
        return _evaluate_team(policy, choose_policy_device(device), episodes, progress, randomise=not nominal)
    place = choose_policy_device(device)
    path = find_policy(policy)
    require_range("episodes", episodes, 1, MAX_EPISODES)
    named, robot = (None if word is None else str(word) for word in (task, model))
    played_task = find_origin(path, task=named, robot=robot).load()
    if engine == "warp":
        exported, played = _on_device(path, played_task, place, episodes, progress, randomise=not nominal)
    else:
        exported = make_policy(read_policy(path), source=str(path), device=place)
        played = play_episodes(exported, played_task, episodes=episodes, randomise=not nominal, progress=progress)
    return PolicyEvaluation(
        policy=path, fingerprint=exported.fingerprint, device=place, engine=engine, task=played_task, episodes=played
    )


def _evaluate_team(
    folder: Path, device: PolicyDevice, episodes: int, progress: Callable[[float], None], *, randomise: bool
) -> TeamEvaluation:
    from physai.sim.teams.team_evaluate import play_team
    from physai.sim.teams.trained_team import trained_team

    require_range("episodes", episodes, 1, MAX_EPISODES)
    team, policies = trained_team(folder, device)
    played = play_team(policies, team, episodes=episodes, randomise=randomise, progress=progress)
    return TeamEvaluation(team=team, episodes=played)


def _on_device(
    path: Path, task: Task, device: PolicyDevice, episodes: int, progress: Callable[[float], None], *, randomise: bool
) -> tuple[OnnxPolicy, Episodes]:
    from physai.sim.envs.device.capacity import build_engine
    from physai.sim.envs.device.device_environment import DeviceEnvironment
    from physai.sim.policies.device_evaluate import play_on_device
    from physai.sim.policies.device_policy import DevicePolicy
    from physai.sim.policies.evaluate import EVALUATION_SEED
    from physai.sim.policies.onnx import read_policy

    policy = DevicePolicy(read_policy(path), source=str(path), device=device)
    engine = build_engine(task, episodes, device=device.memory)
    environment = DeviceEnvironment(task, engine, seed=EVALUATION_SEED, randomise=randomise)
    return policy, play_on_device(policy, environment, progress=progress)
