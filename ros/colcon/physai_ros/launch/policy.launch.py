"""Brings the robot's active policy up: configured, and with `autostart` driving.

ros2 launch physai_ros policy.launch.py root:=/var/lib/physai namespace:=arm autostart:=true
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, EmitEvent, LogInfo, RegisterEventHandler, Shutdown
from launch.conditions import IfCondition
from launch.events import matches_action
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from lifecycle_msgs.msg import Transition

SHARE = Path(get_package_share_directory("physai_ros"))


def generate_launch_description() -> LaunchDescription:
    """The node, and the transitions that bring it up."""
    arguments = [
        DeclareLaunchArgument("root", default_value="/var/lib/physai", description="the robot's tree of slots"),
        DeclareLaunchArgument("namespace", default_value="", description="of the node and its topics"),
        DeclareLaunchArgument(
            "params_file", default_value=str(SHARE / "config" / "policy.yaml"), description="parameters of the node"
        ),
        DeclareLaunchArgument("autostart", default_value="true", description="whether to configure and activate it"),
    ]
    node = LifecycleNode(
        package="physai_ros",
        executable="policy_node",
        name="physai_policy",
        namespace=LaunchConfiguration("namespace"),
        parameters=[LaunchConfiguration("params_file"), {"root": LaunchConfiguration("root")}],
        output="both",
        # A policy that dies must not leave the rest of the robot believing in it.
        on_exit=Shutdown(reason="the policy node has ended"),
    )
    autostart = IfCondition(LaunchConfiguration("autostart"))
    configure = EmitEvent(event=_change(node, Transition.TRANSITION_CONFIGURE), condition=autostart)
    activate = RegisterEventHandler(
        OnStateTransition(
            target_lifecycle_node=node,
            start_state="configuring",
            goal_state="inactive",
            entities=[EmitEvent(event=_change(node, Transition.TRANSITION_ACTIVATE))],
        ),
        condition=autostart,
    )
    refused = RegisterEventHandler(
        OnStateTransition(
            target_lifecycle_node=node,
            start_state="configuring",
            goal_state="unconfigured",
            entities=[LogInfo(msg="the policy was refused; its reason is above. Try again: ros2 lifecycle set")],
        )
    )
    return LaunchDescription([*arguments, activate, refused, node, configure])


def _change(node: LifecycleNode, transition: int) -> ChangeState:
    return ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition)
