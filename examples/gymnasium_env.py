"""The built-in tasks as Gymnasium environments, for other people's learners.

python examples/gymnasium_env.py
"""

from physai.sim import load_task
from physai.train import TaskEnv, TaskVectorEnv

task = load_task("cartpole-swingup")

env = TaskEnv(task)
observation, info = env.reset(seed=7)
observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
print(f"one world: observation {observation.shape}, reward {reward:.3f}")

worlds = TaskVectorEnv(task, 16)
observations, _ = worlds.reset(seed=7)
observations, rewards, *_ = worlds.step(worlds.action_space.sample())
print(f"16 worlds: observations {observations.shape}, rewards {rewards.shape}")
