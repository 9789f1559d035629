"""Steps and trains mjlab's Go1 in mjlab's own environment, which pins older libraries; nothing of physai is imported.

Run as `python mjlab_peer.py DEVICE WORLDS COUNTING`, with the path of `counting.py`. It reads
one JSON request per line and answers each with one line: `{"do": "count"}`, `{"do": "step", "steps": 100}`,
`{"do": "train", "iterations": 2}`.
"""

import importlib
import importlib.util
import json
import math
import os
import sys
import time
from dataclasses import asdict
from importlib import metadata
from typing import Any, TextIO

TASK = "Mjlab-Velocity-Flat-Unitree-Go1"
_PACKAGES = ("mjlab", "mujoco", "mujoco-warp", "warp-lang", "torch", "rsl-rl-lib")


class Go1:
    """The velocity environment as `train Mjlab-Velocity-Flat-Unitree-Go1` builds it, and its learner."""

    def __init__(self, device: str, worlds: int) -> None:
        """Builds and resets the worlds, episodes staggered as in training."""
        self._torch: Any = importlib.import_module("torch")
        registry: Any = importlib.import_module("mjlab.tasks.registry")
        importlib.import_module("mjlab.tasks")
        importlib.import_module("mjlab.utils.torch").configure_torch_backends()
        settings = registry.load_env_cfg(TASK)
        settings.scene.num_envs = worlds
        settings.seed = 0
        self._device = device
        self._agent: Any = registry.load_rl_cfg(TASK)
        self._env: Any = importlib.import_module("mjlab.envs").ManagerBasedRlEnv(cfg=settings, device=device)
        self._env.reset()
        length = self._env.episode_length_buf
        length.copy_(self._torch.randint_like(length, high=int(self._env.max_episode_length)))
        joints = self._env.action_manager.total_action_dim
        self._actions: Any = self._torch.rand(32, worlds, joints, device=device) * 2.0 - 1.0
        self._runner: Any = None
        self._played = 0

    def describe(self) -> dict[str, Any]:
        """Versions, and the amount of physics in a step, of what is compared."""
        decimation, physics_dt = int(self._env.cfg.decimation), float(self._env.physics_dt)
        versions = {name: metadata.version(name) for name in _PACKAGES}
        return {"versions": versions, "decimation": decimation, "physics_dt": physics_dt, "worlds": self._env.num_envs}

    def count(self, counting: str) -> dict[str, Any]:
        """Operations of one step in which an episode ends, as in every step of thousands of worlds.

        On a GPU mjlab replays the physics' launches from CUDA graphs; here it launches them, or they would not be seen.
        """
        spec: Any = importlib.util.spec_from_file_location("counting", counting)
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        simulation = self._env.sim
        graphs, simulation.use_cuda_graph = simulation.use_cuda_graph, False
        simulation.create_graph()
        for _ in range(2):
            self._end_one()
            self._env.step(self._actions[0])
        self._end_one()
        with module.OperationCounter() as counter:
            _, _, terminated, truncated, _ = self._env.step(self._actions[0])
        simulation.use_cuda_graph = graphs
        simulation.create_graph()
        return {
            "waits": counter.waits,
            "torch": counter.torch_kernels,
            "warp": counter.warp_kernels,
            "allocations": counter.allocations,
            "ended": int((terminated | truncated).sum()),
        }

    def _end_one(self) -> None:
        """Lets the first world's episode end with the next step."""
        self._env.episode_length_buf[0] = self._env.max_episode_length

    def step(self, steps: int) -> dict[str, Any]:
        """Environment steps with random actions; the sums are read once, after the last."""
        torch = self._torch
        rewards = torch.zeros((), device=self._device)
        ended = torch.zeros((), dtype=torch.int64, device=self._device)
        self._wait()
        start = time.perf_counter()
        for _ in range(steps):
            _, reward, terminated, truncated, _ = self._env.step(self._actions[self._played % len(self._actions)])
            rewards += reward.sum()
            ended += (terminated | truncated).sum()
            self._played += 1
        self._wait()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "ended": int(ended), "finite": math.isfinite(float(rewards))}

    def train(self, iterations: int) -> dict[str, Any]:
        """Iterations of mjlab's own preset, without logs."""
        if self._runner is None:
            rl: Any = importlib.import_module("mjlab.rl")
            worlds = rl.TaskVecEnvWrapper(self._env, clip_actions=self._agent.clip_actions)
            self._runner = rl.MjlabOnPolicyRunner(worlds, asdict(self._agent), None, self._device)
            self._runner.learn(num_learning_iterations=1, init_at_random_ep_len=True)
        self._wait()
        start = time.perf_counter()
        self._runner.learn(num_learning_iterations=iterations)
        self._wait()
        seconds = time.perf_counter() - start
        weights = [
            weight for model in (self._runner.alg.actor, self._runner.alg.critic) for weight in model.parameters()
        ]
        finite = all(bool(self._torch.isfinite(weight).all()) for weight in weights)
        return {"seconds": seconds, "finite": finite, "horizon": self._agent.num_steps_per_env}

    def _wait(self) -> None:
        if self._device != "cpu":
            self._torch.cuda.synchronize(self._device)


def serve(requests: TextIO, answers: TextIO, device: str, worlds: int, counting: str) -> None:
    """Answers until the requests end."""
    go1 = Go1(device, worlds)
    print(json.dumps(go1.describe()), file=answers, flush=True)
    for line in requests:
        request = json.loads(line)
        does = {
            "count": lambda: go1.count(counting),
            "step": lambda request=request: go1.step(request["steps"]),
            "train": lambda request=request: go1.train(request["iterations"]),
        }
        print(json.dumps(does[request["do"]]()), file=answers, flush=True)


if __name__ == "__main__":
    # Libraries print to stdout; answers must stand alone there.
    answers_only = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["WANDB_MODE"] = "disabled"
    serve(sys.stdin, answers_only, sys.argv[1], int(sys.argv[2]), sys.argv[3])
