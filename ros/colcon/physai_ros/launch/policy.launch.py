"""Brings the robot's active policy up: configured, and with `autostart` driving.

ros2 launch physai_ros policy.launch.py root:=/var/lib/physai namespace:=arm
"""

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import EmitEvent, LogInfo, OpaqueFunction, RegisterEventHandler
from launch.conditions import IfCondition
from launch.events import matches_action
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from lifecycle_msgs.msg import Transition
from physai_ros.launching import end_all, policy_arguments, values

NAME = "physai_policy"


def generate_launch_description() -> LaunchDescription:
    """The node, and the transitions that bring it up."""
    return LaunchDescription([*policy_arguments(), OpaqueFunction(function=_policy)])


def _policy(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    root, binding, namespace, params_file = values(context, "root", "binding", "namespace", "params_file")
    given = {name: value for name, value in (("root", root), ("binding", binding)) if value}
    node = LifecycleNode(
        package="physai_ros",
        executable="policy_node",
        name=NAME,
        namespace=namespace,
        parameters=[params_file, *([given] if given else [])],
        output="both",
        # A policy that dies must not leave the rest of the robot believing in it.
        on_exit=end_all("the policy node has ended"),
    )
    autostart = IfCondition(LaunchConfiguration("autostart"))
    configure = EmitEvent(event=_change(node, Transition.TRANSITION_CONFIGURE), condition=autostart)
    activate = RegisterEventHandler(
        OnStateTransition(
            target_lifecycle_node=node,
            start_state="configuring",
            goal_state="inactive",
            entities=[EmitEvent(event=_change(node, Transition.TRANSITION_ACTIVATE))],
            # Whoever configures it again later wants to look at it before it drives.
            handle_once=True,
        ),
        condition=autostart,
    )
    full_name = f"/{namespace.strip('/')}/{NAME}".replace("//", "/")
    again = f"the reason is above. Try again: ros2 lifecycle set {full_name}"
    refused = _told(node, "configuring", "unconfigured", f"the policy was refused; {again} configure")
    not_driven = _told(node, "activating", "inactive", f"the robot is not driven; {again} activate")
    return [activate, refused, not_driven, node, configure]


def _change(node: LifecycleNode, transition: int) -> ChangeState:
    return ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition)


def _told(node: LifecycleNode, start: str, goal: str, text: str) -> RegisterEventHandler:
    """A line when a transition falls back."""
    return RegisterEventHandler(
        OnStateTransition(target_lifecycle_node=node, start_state=start, goal_state=goal, entities=[LogInfo(msg=text)])
    )
