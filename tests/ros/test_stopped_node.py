"""A stop of the policy node outlives its transitions and its process."""

import os
import re
import signal
import time

import pytest
from tests.support.ros_calls import eventually
from tests.support.ros_world import NODE, RosWorld, call, commands, transition, up

from physai.ros.drive import ANSWER_S

pytestmark = pytest.mark.ros


def test_a_stop_outlives_the_nodes_transitions_and_its_process(world: RosWorld) -> None:
    """Cleanup, configure and activate drove a robot that was stopped; so did a node that was started again."""
    log = world.folder / "commands"
    world.driver(log=str(log))
    node = world.policy()
    done, message = call(world, "estop")
    assert not done
    assert "the stop is recorded and blocks until reset" in message
    assert transition(world, "configure"), node.text()
    assert not transition(world, "activate")
    eventually(lambda: call(world, "reset")[0], "reset")
    assert transition(world, "activate"), node.text()
    eventually(lambda: call(world, "estop")[0], "confirmed stop")
    for step in ("deactivate", "cleanup", "configure"):
        assert transition(world, step), node.text()
    assert not transition(world, "activate")
    assert "a reset of the stop" in node.text() or "reset the stop" in node.text()
    # In order: one that is killed is there for the middleware for another ten seconds or more.
    node.end()
    again = world.policy()
    assert transition(world, "configure"), again.text()
    count = len(commands(log))
    assert not transition(world, "activate")
    assert len(commands(log)) == count
    eventually(lambda: call(world, "reset")[0], "reset")
    eventually(lambda: transition(world, "activate"), "activation")


def test_a_request_that_a_node_reads_late_is_refused(world: RosWorld) -> None:
    """Its sender gave up long before, so a reset would be a surprise; one that drives is killed by its watchdog."""
    from std_srvs.srv import Trigger

    world.driver()
    node = world.policy()
    up(world, node)
    assert call(world, "estop")[0], node.text()
    assert transition(world, "deactivate"), node.text()
    # Long enough at rest that the reset would be obeyed.
    time.sleep(1.0)
    os.kill(node.process.pid, signal.SIGSTOP)
    late = world.calls.begin(f"{NODE}/reset", Trigger)
    time.sleep(2.0 * ANSWER_S)
    os.kill(node.process.pid, signal.SIGCONT)
    eventually(late.done, "an answer")
    answer = late.result()
    assert not answer.success
    assert "refused: this node stood still" in answer.message
    eventually(lambda: call(world, "reset")[0], "reset")
    os.kill(node.process.pid, signal.SIGSTOP)
    late = world.calls.begin_transition(NODE, "activate")
    time.sleep(2.0 * ANSWER_S)
    os.kill(node.process.pid, signal.SIGCONT)
    eventually(late.done, "an answer")
    assert not late.result().success
    # Longer than it was stopped, on a machine that is busy.
    assert re.search(r"activate: refused: this node stood still for \d+ s", node.text())
    eventually(lambda: transition(world, "activate"), "activation")
