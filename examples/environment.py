"""Step a task's twin, and count the successes of a policy written by hand.

python examples/environment.py
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from physai.sdk import PolicyContract
from physai.sim import Engine, Environment, Episodes, Policy, Task, load_task, play_episodes, task_names

Array = np.ndarray[Any, Any]


class Still:
    """Commands zero effort, whatever it sees."""

    def __init__(self, contract: PolicyContract) -> None:
        self.contract = contract
        self._num_worlds = 1

    def reset(self, num_worlds: int) -> None:
        self._num_worlds = num_worlds

    def reset_worlds(self, mask: Array) -> None:
        pass

    def __call__(self, sensors: Mapping[str, Array], commands: Mapping[str, Array]) -> Mapping[str, Array]:
        return {
            term.target_name: np.zeros((self._num_worlds, len(term.joints)), np.float32)
            for term in self.contract.action.terms
        }


print("built-in tasks:", ", ".join(task_names()))
task: Task = load_task("cartpole-swingup")

# 64 worlds in one batch; an episode's seed decides everything that is random in it.
env = Environment(task, num_worlds=64, seed=0)
step = env.reset()
engine: Engine = env.engine
print(f"{engine.num_worlds} worlds in {type(engine).__name__}")
policy: Policy = Still(task.contract)
policy.reset(64)
for _ in range(100):
    step = env.step(policy({}, {}))
print(f"after {100 * env.step_dt:.1f} s: mean reward {step.reward.mean():.3f}, sensors {sorted(step.sensors)}")

played: Episodes = play_episodes(policy, task, episodes=16)
print(f"{sum(played.succeeded)} of {sum(played.judged)} episodes succeed")
