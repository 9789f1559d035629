"""The virtual robot under the standard services of a simulator, called by a node of rclpy's."""

import time
from typing import Any

import pytest
from tests.support.ros_calls import eventually
from tests.support.ros_world import RosWorld

pytestmark = pytest.mark.ros("simulation_interfaces")


@pytest.fixture
def robot(world: RosWorld, node: Any) -> Any:
    """A function that calls a service of a rehearsed quadruped."""
    import simulation_interfaces.srv as kinds

    started = world.physai(
        "robot",
        "simulate",
        "--transport",
        "ros",
        "go2-velocity",
        "--set",
        f"domain={world.environment['ROS_DOMAIN_ID']}",
    )
    started.says("services: /get_simulator_features")
    clients: dict[str, Any] = {}

    def call(name: str, **fields: Any) -> Any:
        kind = getattr(kinds, name)
        if name not in clients:
            words = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).removeprefix("_")
            clients[name] = node.create_client(kind, words)
            assert clients[name].wait_for_service(60.0)
        request = kind.Request()
        for field, value in fields.items():
            part, _, inner = field.partition("__")
            if inner:
                setattr(getattr(request, part), inner, value)
            else:
                setattr(request, part, value)
        future = clients[name].call_async(request)
        eventually(future.done, name)
        return future.result()

    return call


def heard(node: Any) -> list[Any]:
    """Joint states as they come."""
    from sensor_msgs.msg import JointState

    found: list[Any] = []
    node.create_subscription(JointState, "joint_states", found.append, 100)
    eventually(lambda: len(found) > 5, "joint states")
    return found


def test_paused_stepped_and_played_on(robot: Any, node: Any) -> None:
    states = heard(node)
    assert robot("GetSimulationState").state.state == 1
    assert robot("StepSimulation", steps=1).result.result == 4, "only while it is paused"
    assert robot("SetSimulationState", state__state=2).result.result == 1
    assert robot("SetSimulationState", state__state=2).result.result == 101, "already"
    time.sleep(0.2)
    count = len(states)
    time.sleep(0.5)
    assert len(states) == count
    assert robot("StepSimulation", steps=5).result.result == 1
    eventually(lambda: len(states) == count + 5, "a sample a step")
    refused = robot("StepSimulation", steps=10_001).result
    assert (refused.result, "expected 1 … 10000" in refused.error_message) == (4, True)
    assert robot("SetSimulationState", state__state=1).result.result == 1
    eventually(lambda: len(states) > count + 20, "samples again")


def test_reset_and_ground_truth(robot: Any) -> None:
    assert robot("GetEntities").entities == ["go2"]
    assert robot("GetEntities", filters__filter="^go[0-9]$").entities == ["go2"]
    assert robot("GetEntities", filters__filter="ur").entities == []
    assert robot("GetEntityState", entity="spot").result.result == 2
    assert robot("SetSimulationState", state__state=0).result.result == 1
    first = robot("GetEntityState", entity="go2").state
    assert first.header.frame_id == "world"
    turn = first.pose.orientation
    assert turn.w**2 + turn.x**2 + turn.y**2 + turn.z**2 == pytest.approx(1.0)
    assert robot("SetSimulationState", state__state=2).result.result == 1
    assert robot("StepSimulation", steps=20).result.result == 1
    moved = robot("GetEntityState", entity="go2").state
    assert moved.pose.position.z != first.pose.position.z
    assert robot("ResetSimulation", scope=255).result.result == 1
    again = robot("GetEntityState", entity="go2").state
    assert again.pose == first.pose
    assert robot("ResetSimulation", scope=2).result.result == 1
    assert robot("GetEntityState", entity="go2").state.pose != first.pose
    refused = robot("ResetSimulation", scope=1).result
    assert (refused.result, refused.error_message[:7]) == (0, "scope 1")
    assert set(robot("GetSimulatorFeatures").features.features) >= {20, 22, 24, 25, 26, 31, 32}


def test_quit(robot: Any, world: RosWorld) -> None:
    assert robot("SetSimulationState", state__state=3).result.result == 1
    started = world.started[-1]
    assert started.process.wait(60.0) == 0
    assert "Traceback" not in started.text()
