"""The whole chain without hardware: the twin stands in for the robot, the active policy drives it.

ros2 launch physai_ros rehearse.launch.py task:=ur10e-reach root:=demo/ur10e-reach-slots twin:=twin.json
"""

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction
from physai_ros.launching import end_all, policy, policy_arguments, values


def generate_launch_description() -> LaunchDescription:
    """The rehearsal robot beside what `policy.launch.py` brings up."""
    arguments = [
        DeclareLaunchArgument("task", description="task of the policy, as in `physai tasks`"),
        DeclareLaunchArgument("twin", default_value="", description="twin.json; empty: the robot's model as it is"),
        *policy_arguments(),
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=_robot), policy()])


def _robot(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    task, twin, binding, namespace = values(context, "task", "twin", "binding", "namespace")
    command = ["physai", "sim", "ros", task]
    command += ["--twin", twin] if twin else []
    command += ["--set", f"binding={binding}"] if binding else []
    command += ["--ros-args", "-r", f"__ns:=/{namespace.strip('/')}"] if namespace.strip("/") else []
    return [ExecuteProcess(cmd=command, output="both", on_exit=end_all("the rehearsal robot has ended"))]
