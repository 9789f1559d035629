"""Drives the digital twin with the active policy, without hardware.

At shutdown the policy brings the virtual robot to rest first, as it would a real one.

ros2 launch physai_ros simulate.launch.py task:=ur10e-reach root:=demo/ur10e-reach-slots twin:=twin.json
"""

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction
from physai_ros.launching import PHYSAI, end_all, policy, policy_arguments, values

# How long the virtual robot keeps running after SIGINT while it receives commands [s]; the policy needs up to 4 s.
LINGER_S = 8


def generate_launch_description() -> LaunchDescription:
    """The virtual robot, and what `policy.launch.py` starts."""
    arguments = [
        DeclareLaunchArgument("task", description="task of the policy, as in `physai tasks`"),
        DeclareLaunchArgument("twin", default_value="", description="twin.json; empty: the nominal robot"),
        *policy_arguments(),
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=_robot), policy()])


def _robot(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    task, twin, binding, namespace = values(context, "task", "twin", "binding", "namespace")
    command = [PHYSAI, "robot", "simulate", task, "--transport", "ros", "--linger-s", str(LINGER_S)]
    command += ["--twin", twin] if twin else []
    command += ["--set", f"binding={binding}"] if binding else []
    command += ["--ros-args", "-r", f"__ns:=/{namespace.strip('/')}"] if namespace.strip("/") else []
    ended = end_all("the virtual robot has ended")
    return [ExecuteProcess(cmd=command, name="robot", output="both", sigterm_timeout=str(LINGER_S + 2), on_exit=ended)]
