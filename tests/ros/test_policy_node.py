"""The policy node in a process of its own, against a driver in another; a third node asks."""

import json
import signal
import time
from typing import Any

import pytest
from tests.support.ros_calls import WAIT_S, eventually
from tests.support.ros_world import HERE, NODE, RosWorld, call, commands, not_driven, present, state, transition, up
from tests.support.untrained import untrained_slots

from physai.sim.tasks.registry import load_task

pytestmark = pytest.mark.ros


def released(world: RosWorld, service: str) -> None:
    """Reset, then let go on, as often as it takes the guard to find every joint at rest, and nothing to hold for."""
    eventually(lambda: call(world, "reset")[0] and call(world, service)[0], service)


def test_up_and_down(world: RosWorld) -> None:
    log = world.folder / "commands"
    world.driver(log=str(log))
    node = world.policy()
    assert state(world) == "unconfigured"
    assert transition(world, "configure"), node.text()
    assert state(world) == "inactive"
    assert not commands(log), "nothing is sent before activation"
    assert transition(world, "activate"), node.text()
    assert state(world) == "active"
    eventually(lambda: len(commands(log)) > 50, "commands")
    one = commands(log)[-1]
    assert one["name"] == ["pivot"]
    assert abs(one["effort"][0]) <= 2.5
    assert 0 <= one["time_ns"] - one["stamp_ns"] < 5e9
    assert transition(world, "deactivate"), node.text()
    assert state(world) == "inactive"
    deactivated_ns = time.time_ns()
    assert transition(world, "cleanup"), node.text()
    assert node.end(signal.SIGTERM) == 0, node.text()
    assert commands(log)[-1]["stamp_ns"] < deactivated_ns, "nothing is sent after deactivation"
    assert "Traceback" not in node.text()


def test_without_a_policy_it_says_why(world: RosWorld) -> None:
    node = world.policy(root=str(world.folder / "nowhere"))
    assert not transition(world, "configure")
    assert state(world) == "unconfigured"
    node.says("configure: ")
    assert "Traceback" not in node.text()


def test_a_robot_that_is_not_there_is_not_driven(world: RosWorld) -> None:
    node = world.policy(activation_timeout_s=1.0)
    not_driven(world, node, "no publisher in domain")
    assert state(world) == "inactive"
    assert "not activated: waited 1 s for joint_pos" in node.text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"joints": ["hinge"]}, "it names the joints hinge; expected pivot"),
        ({"stamp": "none"}, "its stamp is 0 s"),
        ({"stamp": "old"}, "s old by its own stamp"),
    ],
    ids=["other joints", "zero stamps", "another clock"],
)
def test_a_driver_that_does_not_fit_is_refused(world: RosWorld, options: dict[str, Any], told: str) -> None:
    world.driver(**options)
    node = world.policy(activation_timeout_s=1.5)
    not_driven(world, node, told)


def test_degrees_are_refused(world: RosWorld) -> None:
    log, root = world.folder / "commands", untrained_slots(load_task("ur10e-reach").contract, world.folder / "ur10e")
    parts = ("shoulder_pan", "shoulder_lift", "elbow", "wrist_1", "wrist_2", "wrist_3")
    joints = {"joints": [f"{part}_joint" for part in parts], "velocities": [0.0] * 6}
    arm = {**joints, "target": True, "commands": "floats", "log": str(log)}
    driver = world.driver(**arm, positions=[0.0, -90.0, 90.0, -90.0, -90.0, 0.0])
    node = world.policy(root=str(root), unsafe_no_verdict="true", activation_timeout_s=2.0)
    told = "shoulder_lift_joint reads -90 rad, its range is [-6.409, 6.409] rad; if the driver sends degrees, "
    not_driven(world, node, told)
    assert not commands(log)
    driver.end()
    world.driver(**arm, positions=[0.0, -1.5708, 1.5708, -1.5708, -1.5708, 0.0])
    assert world.calls.set_parameter(NODE, "activation_timeout_s", WAIT_S)[0]
    assert transition(world, "activate"), node.text()
    # A busy machine may make the guard hold; a held robot whose samples were late gets nothing until a start.
    eventually(lambda: len(commands(log)) > 10 or not (call(world, "reset")[0] and call(world, "start")), "commands")
    # The Universal Robots' first command is where the robot is, within what it can move in a period.
    assert commands(log)[0]["data"] == pytest.approx([0.0, -1.5708, 1.5708, -1.5708, -1.5708, 0.0], abs=0.1)


def test_joints_are_matched_by_name(world: RosWorld) -> None:
    log = world.folder / "commands"
    world.driver(joints=["gripper", "pivot"], positions=[9.0, 0.3], log=str(log))
    node = world.policy()
    up(world, node)
    eventually(lambda: len(commands(log)) > 10, "commands")


def test_a_driver_that_dies_makes_it_hold_and_reset_goes_on(world: RosWorld) -> None:
    log = world.folder / "commands"
    listener = world.driver(name="listener", publish=False, log=str(log))
    driver = world.driver()
    node = world.policy()
    up(world, node)
    eventually(lambda: len(commands(log)) > 50, "commands")
    driver.end(signal.SIGKILL)
    # A machine that is too busy makes it hold before that; then it is the waiting for a reset that says why.
    node.says("HOLD: ")
    assert not call(world, "reset")[0]
    world.driver()
    released(world, "start")
    count = len(commands(log))
    eventually(lambda: len(commands(log)) > count + 20, "commands after the start")
    assert listener.process.poll() is None


def test_two_publishers_are_not_mixed(world: RosWorld) -> None:
    world.driver()
    node = world.policy()
    up(world, node)
    second = world.driver(name="impostor", positions=[-0.3])
    node.says("HOLD: ")
    node.says("/joint_states: 2 publishers, expected 1")
    second.end(signal.SIGKILL)
    released(world, "start")


def test_an_impossible_transition_is_refused_and_the_robot_driven_on(world: RosWorld) -> None:
    log = world.folder / "commands"
    from lifecycle_msgs.msg import Transition
    from lifecycle_msgs.srv import ChangeState

    world.driver(log=str(log))
    node = world.policy()
    up(world, node)
    # By number: a label that is not valid in this state is refused by rclpy itself.
    change = {"transition": Transition(id=Transition.TRANSITION_CONFIGURE)}
    assert not world.calls.call(f"{NODE}/change_state", ChangeState, **change).success
    node.says("refused: transition 1 is not valid in this state")
    count = len(commands(log))
    eventually(lambda: len(commands(log)) > count + 20, "commands")
    assert "Traceback" not in node.text()


def test_an_emergency_stop_takes_an_activation_back(world: RosWorld) -> None:
    log = world.folder / "commands"
    node = world.policy(activation_timeout_s=60.0)
    assert transition(world, "configure"), node.text()
    activating = world.calls.begin_transition(NODE, "activate")
    eventually(lambda: state(world) == "activating", "the node answers while it activates")
    done, message = call(world, "estop")
    assert not done
    assert "the pending activation is cancelled" in message
    eventually(activating.done, "the end of the activation")
    assert not activating.result().success
    # The second one where the stop overtakes the request on its way to the runtime.
    reasons = "not activated: cancelled by stop", "not activated: refused: a stop or a fault came after the request"
    eventually(lambda: any(reason in node.text() for reason in reasons), "the reason in the log")
    world.driver(log=str(log))
    present(world, "/driver")
    assert state(world) == "inactive"
    assert not commands(log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ended_in_the_middle_of_a_transition(world: RosWorld, number: int) -> None:
    node = world.policy(activation_timeout_s=60.0)
    assert transition(world, "configure"), node.text()
    world.calls.begin_transition(NODE, "activate")
    node.says("waiting for joint_pos")
    assert node.end(number) == 0, node.text()
    assert "Traceback" not in node.text()


@pytest.mark.parametrize(
    ("commands", "told"),
    [
        ("none", "/joint_command: no subscriber in domain"),
        ("mistyped", "/joint_command: subscribed to as std_msgs::msg::dds_::Float64MultiArray_, expected sensor_msgs"),
    ],
)
def test_a_robot_that_takes_no_commands_is_not_driven(world: RosWorld, commands: str, told: str) -> None:
    world.driver(commands=commands)
    node = world.policy(activation_timeout_s=2.0)
    not_driven(world, node, told)
    assert "a subscriber of /joint_command" in node.text()


def test_a_quality_of_service_that_cannot_match_is_told(world: RosWorld) -> None:
    world.driver(best_effort=True)
    override = ("-p", "qos_overrides./joint_states.subscription.reliability:=reliable")
    node = world.policy(*override, activation_timeout_s=2.0)
    told = "/joint_states: its publisher's QoS does not fit: Best effort publisher and reliable subscription"
    not_driven(world, node, told)


def test_configured_again_after_cleanup(world: RosWorld) -> None:
    log = world.folder / "commands"
    world.driver(log=str(log))
    node = world.policy()
    up(world, node)
    for name in ("deactivate", "cleanup", "configure", "activate"):
        assert transition(world, name), node.text()
    count = len(commands(log))
    eventually(lambda: len(commands(log)) > count + 20, "commands of the second time")
    assert "qos_overrides./joint_states.subscription.depth" in world.calls.parameters(NODE)


def test_services_of_the_operator(world: RosWorld) -> None:
    world.driver()
    node = world.policy()
    assert call(world, "hold") == (False, "no policy is loaded; configure the node first")
    up(world, node)
    assert call(world, "hold")[0]
    node.says("HOLD: ")
    released(world, "resume")
    done, message = call(world, "estop")
    assert (done, message) == (True, "stopped: every joint was measured at rest")
    node.says("PROTECTIVE_STOP: ")
    released(world, "start")
    assert call(world, "damp")[0]
    node.says("DAMP: ")
    assert call(world, "heartbeat") == (True, "received")


def test_another_publisher_of_the_commands_makes_the_node_inactive(world: RosWorld) -> None:
    from sensor_msgs.msg import JointState

    world.driver()
    node = world.policy()
    up(world, node)
    stranger = world.calls.node.create_publisher(JointState, "joint_command", 1)
    node.says("the robot has another commander: another publisher (/tester")
    eventually(lambda: state(world) == "inactive", "inactive")
    assert world.calls.set_parameter(NODE, "activation_timeout_s", 2.0)[0]
    assert not transition(world, "activate")
    world.calls.node.destroy_publisher(stranger)
    eventually(lambda: transition(world, "activate"), "activation beside nobody")
    assert state(world) == "active"


def test_no_service_answers_success_where_nothing_is_driven(world: RosWorld) -> None:
    world.driver()
    node = world.policy()
    for service in ("hold", "damp", "reset", "start", "resume", "heartbeat"):
        assert call(world, service) == (False, "no policy is loaded; configure the node first")
    assert transition(world, "configure"), node.text()
    for service in ("hold", "damp", "reset", "start", "resume", "estop"):
        done, message = call(world, service)
        assert not done
        assert "nothing is driven" in message or "nothing is sent" in message
    # That stop counts, and is the first thing that can be reset.
    assert not transition(world, "activate")
    lifted = (True, "reset: the stop is reset; nothing is driven, `activate` begins to drive")
    eventually(lambda: call(world, "reset") == lifted, "reset")


def test_no_release_answers_success_where_the_robot_has_gone(world: RosWorld) -> None:
    world.driver(name="listener", publish=False)
    driver, node = world.driver(), world.policy()
    up(world, node)
    driver.end(signal.SIGKILL)
    node.says("HOLD: ")
    for service in ("reset", "start"):
        assert not call(world, service)[0]


def test_an_activation_names_no_cause_of_an_earlier_one(world: RosWorld) -> None:
    driver, node = world.driver(stamp="none"), world.policy(activation_timeout_s=1.5)
    not_driven(world, node, "its stamp is 0 s")
    # In order: one that is killed is there for the middleware for another ten seconds or more.
    driver.end()
    world.driver(joints=["hinge"])

    def reason() -> str:
        assert not transition(world, "activate")
        return node.text().rpartition("not activated: ")[2].splitlines()[0]

    last = eventually(lambda: found if "hinge" in (found := reason()) else "", "a reason to refuse the second driver")
    assert "it names the joints hinge; expected pivot" in last
    assert "its stamp is 0 s" not in last


def test_another_version_takes_over_between_two_ticks(world: RosWorld) -> None:
    log = world.folder / "commands"
    world.driver(log=str(log))
    node = world.policy()
    up(world, node)
    world.site.agent.install(world.site.bundles[2])
    done, message = call(world, "load_slot")
    assert done, message
    assert message.startswith("version 2 is active in slot ")
    node.says("version 2 has taken over")
    count = len(commands(log))
    eventually(lambda: len(commands(log)) > count + 20, "commands of the new version")


def test_parameters_are_described_checked_and_some_change_live(world: RosWorld) -> None:
    world.driver()
    node = world.policy(priority=0)
    up(world, node)
    described = world.calls.descriptor(NODE, "priority")
    assert described.description == "SCHED_FIFO priority of the loop; 0: default scheduling"
    assert described.integer_range[0].to_value == 98
    done, reason = world.calls.set_parameter(NODE, "priority", 50)
    assert not done
    assert "priority takes effect at configure" in reason
    assert world.calls.set_parameter(NODE, "activation_timeout_s", 9.0) == (True, "")
    assert not world.calls.set_parameter(NODE, "diagnostics_period_s", 0.0)[0]


def test_diagnostics_and_the_latched_status(world: RosWorld) -> None:
    from diagnostic_msgs.msg import DiagnosticArray
    from std_msgs.msg import String

    world.driver()
    node = world.policy()
    up(world, node)

    def keys() -> set[str]:
        (status,) = world.calls.message("/diagnostics", DiagnosticArray).status
        assert status.name == "/physai_policy: runtime"
        return {value.key for value in status.values}

    # The first message may be from before the first tick.
    eventually(lambda: {"stages_us.whole.p99", "contract"} <= keys(), "the loop's latencies")
    latched = world.calls.message(f"{NODE}/status", String, latched=True)
    assert json.loads(latched.data)["lifecycle"] == "active"


def test_remapped_into_a_namespace(world: RosWorld) -> None:
    driver = world.python(
        str(HERE / "robot_peer.py"),
        "{}",
        "--ros-args",
        "-r",
        "__ns:=/left",
        "-r",
        "joint_states:=states",
    )
    driver.says("ready")
    node = world.policy("-r", "__ns:=/left", "-r", "joint_states:=states")
    name = "/left/physai_policy"
    for step in ("configure", "activate"):
        assert world.calls.transition(name, step), node.text()
    impostor = ("-r", "__ns:=/left", "-r", "joint_states:=states", "-r", "__node:=impostor")
    world.python(str(HERE / "robot_peer.py"), "{}", "--ros-args", *impostor)
    node.says("/left/states: 2 publishers")


def test_simulated_time_is_refused(world: RosWorld) -> None:
    node = world.policy(use_sim_time="true")
    assert not transition(world, "configure")
    node.says("use_sim_time is true")


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"rate": "100"}, "expected a number with a decimal point from 0 to 10000"),
        ({"rate": "-5.0"}, "expected a number with a decimal point from 0 to 10000"),
        ({"priority": "high"}, "expected an integer from 0 to 98"),
        ({"unsafe_no_verdict": "3"}, "expected true or false"),
        ({"use_sim_time": "3"}, "use_sim_time"),
        ({"hearbeat_s": "0.5"}, "no parameter named 'hearbeat_s'; did you mean heartbeat_s"),
        ({"physai_polcy:rate": "3.0"}, "sets a parameter of the node /physai_polcy, but this one is /physai_policy"),
    ],
)
def test_a_parameter_that_cannot_be_is_one_line(world: RosWorld, parameters: dict[str, str], told: str) -> None:
    node = world.policy(**parameters)
    assert node.process.wait(WAIT_S) == 2, node.text()
    (line,) = node.text().strip().splitlines()
    assert line.startswith("physai_policy: ")
    assert told in line


def test_a_file_of_parameters_that_cannot_be_read_is_one_line(world: RosWorld) -> None:
    path = world.folder / "policy.yaml"
    path.write_text("/**: {ros__parameters: [1")
    node = world.policy("--params-file", str(path))
    assert node.process.wait(WAIT_S) == 2, node.text()
    assert "Traceback" not in node.text()
    assert str(path) in node.text()


def test_what_may_not_run_is_told_in_words_of_the_node(world: RosWorld) -> None:
    node = world.policy(root=str(untrained_slots(load_task("cartpole-swingup").contract, world.folder / "cartpole")))
    assert not transition(world, "configure")
    assert "--unsafe-no-verdict" not in node.says("run it regardless with the parameter unsafe_no_verdict: true")
