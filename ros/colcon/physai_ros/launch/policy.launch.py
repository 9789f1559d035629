"""Brings the robot's active policy up: configured, and with `autostart` driving; ends its trial with `watch`.

ros2 launch physai_ros policy.launch.py root:=/var/lib/physai namespace:=arm
"""

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import EmitEvent, ExecuteProcess, LogInfo, OpaqueFunction, RegisterEventHandler
from launch.conditions import IfCondition
from launch.events import matches_action
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from lifecycle_msgs.msg import Transition
from physai_ros.launching import PHYSAI, end_all, policy_arguments, unless_ending, values
from physai_ros.parameters_file import root_in

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
    full_name = f"/{namespace.strip('/')}/{NAME}".replace("//", "/")
    again = f"the reason is above. Try again: ros2 lifecycle set {full_name}"
    refused = _told(node, "configuring", "unconfigured", f"the policy was refused; {again} configure, then activate")
    not_driven = _told(node, "activating", "inactive", f"the robot is not driven; {again} activate")
    watch = _watch(root or root_in(params_file, full_name))
    return [refused, not_driven, *_brought_up(node), watch]


def _brought_up(node: LifecycleNode) -> list[LaunchDescriptionEntity]:
    """The node, configured with `autostart`, and then activated if that succeeded."""

    def configured(context: LaunchContext) -> list[LaunchDescriptionEntity]:
        if context.locals.event.goal_state != "inactive":
            return []
        return [EmitEvent(event=_change(node, Transition.TRANSITION_ACTIVATE))]

    autostart = IfCondition(LaunchConfiguration("autostart"))
    first = OnStateTransition(
        target_lifecycle_node=node,
        start_state="configuring",
        entities=[OpaqueFunction(function=configured)],
        # However the first one ends: a person who configures it again wants to look at it before it drives.
        handle_once=True,
    )
    configure = EmitEvent(event=_change(node, Transition.TRANSITION_CONFIGURE), condition=autostart)
    return [RegisterEventHandler(first, condition=autostart), node, configure]


def _watch(root: str) -> ExecuteProcess:
    """Commits the version on trial once it has shown itself, or goes back; ends with the launch."""
    ended = "`physai robot watch` has ended: until it runs again, no trial is committed or rolled back"
    return ExecuteProcess(
        cmd=[PHYSAI, "robot", "watch", "--root", root],
        name="watch",
        output="both",
        on_exit=unless_ending(LogInfo(msg=ended)),
        condition=IfCondition(LaunchConfiguration("watch")),
    )


def _change(node: LifecycleNode, transition: int) -> ChangeState:
    return ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition)


def _told(node: LifecycleNode, start: str, goal: str, text: str) -> RegisterEventHandler:
    """A line when a transition falls back."""
    return RegisterEventHandler(
        OnStateTransition(target_lifecycle_node=node, start_state=start, goal_state=goal, entities=[LogInfo(msg=text)])
    )
