"""The `policy` interface of a service's sessions: the network's observations and outputs instead of raw sensors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from physai.service.problems import invalid
from physai.service.sessions.worlds import WorldsOptions, check_action, load_served_task, threads_for
from physai.sim.engines.protocol import Array, Snapshot
from physai.train.adapters.core import TaskWorlds


class PolicyWorlds:
    """Worlds behind the graph's observation and command stages; see `SessionWorlds`."""

    def __init__(self, options: WorldsOptions) -> None:
        """Builds the worlds and starts their first episodes."""
        self._worlds = TaskWorlds(
            load_served_task(options),
            options.worlds,
            seed=options.seed,
            training=options.training,
            randomise=options.randomise,
            action_repeat=options.action_repeat,
            num_threads=threads_for(options.worlds),
        )
        self.num_worlds = options.worlds
        self.model = self._worlds.environment.engine.model
        self.step_dt = self._worlds.environment.step_dt
        self.first = self.reset(None)
        self._shapes = {name: {"shape": list(value.shape[1:])} for name, value in self.first.items()}

    def describe(self) -> dict[str, Any]:
        return {"actions": {"action": {"shape": [self._worlds.actions]}}, "observations": self._shapes}

    def reset(self, seed: int | None) -> dict[str, Array]:
        observation, critic = self._worlds.reset(seed)
        return {"observation": observation, "critic": critic}

    def step(self, actions: Mapping[str, Array]) -> dict[str, Any]:
        action = check_action(actions, "action", (self.num_worlds, self._worlds.actions))
        if len(actions) != 1:
            raise invalid(f"actions named {sorted(actions)}, this interface takes ['action']")
        step = self._worlds.step(action)
        reply: dict[str, Any] = {
            "observations": {"observation": step.observation, "critic": step.critic},
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "judged": step.judged,
            "succeeded": step.succeeded,
        }
        if step.ended is not None:
            reply["final"] = {"observation": step.ended.observation, "critic": step.ended.critic}
        return reply

    def state(self) -> dict[str, Array]:
        engine = self._worlds.environment.engine
        return {name: np.array(engine.state(name)) for name in ("qpos", "qvel", "time")}

    def snapshot(self) -> Snapshot:
        return self._worlds.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        self._worlds.restore(snapshot)
