"""Starts ros2_control, loads the controllers, then configures and activates the policy.

ros2 launch physai_ros control.launch.py root:=$PWD/slots

Without further arguments the arm is a UR10e of ros2_control's mock components, which mirror commands as states.
`description` and `controllers` select another URDF and its controllers. If another launch file already starts the
robot's driver, use `policy.launch.py`.
"""

from pathlib import Path

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, OpaqueFunction, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.events.process import ProcessExited
from launch_ros.actions import Node
from physai_ros.launching import SHARE, end_all, policy, policy_arguments, values


def generate_launch_description() -> LaunchDescription:
    """Controllers, then the policy."""
    config = SHARE / "config"
    arguments = [
        DeclareLaunchArgument(
            "description", default_value=str(config / "ur10e_mock.urdf"), description="URDF with a <ros2_control> tag"
        ),
        DeclareLaunchArgument(
            "controllers", default_value=str(config / "ur10e_controllers.yaml"), description="their parameters"
        ),
        DeclareLaunchArgument(
            "load",
            default_value="joint_state_broadcaster forward_position_controller",
            description="controllers to activate, separated by spaces",
        ),
        *policy_arguments(),
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=_robot_and_policy)])


def _robot_and_policy(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    description, controllers, load, namespace = values(context, "description", "controllers", "load", "namespace")
    robot_description = {"robot_description": Path(description).read_text()}
    publisher = Node(
        package="robot_state_publisher",
        executable="robot_state_publisher",
        namespace=namespace,
        parameters=[robot_description],
    )
    manager = Node(
        package="controller_manager",
        executable="ros2_control_node",
        namespace=namespace,
        parameters=[controllers],
        remappings=[("~/robot_description", "robot_description")],
        output="both",
        on_exit=end_all("ros2_control has ended"),
    )
    spawner = Node(
        package="controller_manager",
        executable="spawner",
        namespace=namespace,
        arguments=load.split(),
        output="both",
    )

    def loaded(event: ProcessExited, context: LaunchContext) -> LaunchDescriptionEntity:
        return policy() if event.returncode == 0 else end_all("the controllers could not be loaded, see above")

    # After the controllers, because activation requires a subscriber to the policy's commands.
    return [publisher, manager, spawner, RegisterEventHandler(OnProcessExit(target_action=spawner, on_exit=loaded))]
