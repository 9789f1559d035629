"""Records measurements and commands of a robot, for `physai logs check` and `physai sim calibrate`.

ros2 launch physai_ros record.launch.py output:=swing topics:="/joint_states /effort_controller/commands"
"""

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction
from physai_ros.launching import values


def generate_launch_description() -> LaunchDescription:
    """`ros2 bag record` of the topics, as MCAP."""
    return LaunchDescription(
        [
            DeclareLaunchArgument("output", description="folder to record into; must not exist"),
            DeclareLaunchArgument(
                "topics", default_value="/joint_states /joint_command", description="topics, separated by spaces"
            ),
            OpaqueFunction(function=_recorder),
        ]
    )


def _recorder(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    output, topics = values(context, "output", "topics")
    command = ["ros2", "bag", "record", "--storage", "mcap", "--output", output, *topics.split()]
    # rosbag2 closes its file on SIGINT, which launch sends first.
    return [ExecuteProcess(cmd=command, output="both", sigterm_timeout="20")]
