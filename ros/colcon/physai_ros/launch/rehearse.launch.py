"""The whole chain without hardware: the twin stands in for the robot, the active policy drives it.

ros2 launch physai_ros rehearse.launch.py task:=ur10e-reach root:=demo/ur10e-reach-slots twin:=twin.json
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, ExecuteProcess, IncludeLaunchDescription, OpaqueFunction, Shutdown
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

SHARE = Path(get_package_share_directory("physai_ros"))


def generate_launch_description() -> LaunchDescription:
    """The rehearsal robot beside what `policy.launch.py` brings up."""
    arguments = [
        DeclareLaunchArgument("task", description="task of the policy, as in `physai tasks`"),
        DeclareLaunchArgument("twin", default_value="", description="twin.json; empty: the robot's model as it is"),
        DeclareLaunchArgument("root", default_value="/var/lib/physai", description="the robot's tree of slots"),
        DeclareLaunchArgument(
            "params_file", default_value=str(SHARE / "config" / "policy.yaml"), description="parameters of the node"
        ),
        DeclareLaunchArgument("autostart", default_value="true", description="whether to configure and activate it"),
    ]
    policy = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(SHARE / "launch" / "policy.launch.py")),
        launch_arguments={name: LaunchConfiguration(name) for name in ("root", "params_file", "autostart")}.items(),
    )
    return LaunchDescription([*arguments, OpaqueFunction(function=_robot), policy])


def _robot(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    task, twin = (LaunchConfiguration(name).perform(context) for name in ("task", "twin"))
    command = ["physai", "sim", "ros", task, *(["--twin", twin] if twin else [])]
    return [ExecuteProcess(cmd=command, output="both", on_exit=Shutdown(reason="the rehearsal robot has ended"))]
