"""Robot models: the built-in ones, and any MJCF or URDF file."""

from physai.sim.robots.loader import Robot, load_robot, robot_names
from physai.sim.robots.spec import home_qpos, kinematic_chain, robot_spec

__all__ = ["Robot", "home_qpos", "kinematic_chain", "load_robot", "robot_names", "robot_spec"]
