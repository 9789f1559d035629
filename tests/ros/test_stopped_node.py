"""A stop of the policy node outlives its transitions and its process."""

import pytest
from tests.support.ros_calls import eventually
from tests.support.ros_world import RosWorld, call, commands, transition

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
