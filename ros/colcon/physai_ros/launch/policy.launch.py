"""Starts the policy node: configures and activates it with `autostart`, and ends its trial with `watch`.

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
from physai_ros.parameters_file import require, root_in

NAME = "physai_policy"


def generate_launch_description() -> LaunchDescription:
    """The node and its transitions."""
    return LaunchDescription([*policy_arguments(), OpaqueFunction(function=_policy)])


def _policy(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    root, binding, namespace, params_file = values(context, "root", "binding", "namespace", "params_file")
    full_name = f"/{namespace.strip('/')}/{NAME}".replace("//", "/")
    require(params_file, full_name)
    given = {name: value for name, value in (("root", root), ("binding", binding)) if value}
    node = LifecycleNode(
        package="physai_ros",
        executable="policy_node",
        name=NAME,
        namespace=namespace,
        parameters=[params_file, *([given] if given else [])],
        output="both",
        # Without the policy node the rest of the launch must not stay up as if the robot were controlled.
        on_exit=end_all("the policy node has ended"),
    )
    again = f"see the reason above. Try again: ros2 lifecycle set {full_name}"
    refused = _log_fallback(
        node, "configuring", "unconfigured", f"the policy was refused; {again} configure, then activate"
    )
    not_driven = _log_fallback(node, "activating", "inactive", f"the robot is not driven; {again} activate")
    watch = _watch(root or root_in(params_file, full_name))
    return [refused, not_driven, *_start(node), watch]


def _start(node: LifecycleNode) -> list[LaunchDescriptionEntity]:
    """The node; with `autostart` it is configured, and activated if that succeeds."""

    def configured(context: LaunchContext) -> list[LaunchDescriptionEntity]:
        if context.locals.event.goal_state != "inactive":
            return []
        return [EmitEvent(event=_change(node, Transition.TRANSITION_ACTIVATE))]

    autostart = IfCondition(LaunchConfiguration("autostart"))
    first = OnStateTransition(
        target_lifecycle_node=node,
        start_state="configuring",
        entities=[OpaqueFunction(function=configured)],
        # Only the first time: an operator who configures the node again activates it themselves.
        handle_once=True,
    )
    configure = EmitEvent(event=_change(node, Transition.TRANSITION_CONFIGURE), condition=autostart)
    return [RegisterEventHandler(first, condition=autostart), node, configure]


def _watch(root: str) -> ExecuteProcess:
    """Runs `physai robot watch`, which commits or rolls back the version on trial."""
    ended = "`physai robot watch` has ended: no trial is committed or rolled back until it runs again"
    return ExecuteProcess(
        cmd=[PHYSAI, "robot", "watch", "--root", root],
        name="watch",
        output="both",
        on_exit=unless_ending(LogInfo(msg=ended)),
        condition=IfCondition(LaunchConfiguration("watch")),
    )


def _change(node: LifecycleNode, transition: int) -> ChangeState:
    return ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition)


def _log_fallback(node: LifecycleNode, start: str, goal: str, text: str) -> RegisterEventHandler:
    """Logs a line if a transition fails and the node falls back to its previous state."""
    return RegisterEventHandler(
        OnStateTransition(target_lifecycle_node=node, start_state=start, goal_state=goal, entities=[LogInfo(msg=text)])
    )
