"""The policy node's command line: what rclpy would ignore is refused, so that nothing drives with defaults."""

from pathlib import Path

import pytest

from physai.ros.arguments import require_effect, require_names, require_ros_arguments
from physai.ros.parameters import PARAMETERS, ParameterError
from physai.sdk.base.errors import UnknownNameError

NODE = "/left/physai_policy"


def test_a_parameter_that_does_not_exist_is_refused() -> None:
    require_names([*PARAMETERS, "use_sim_time", "qos_overrides./joint_states.subscription.depth"])
    with pytest.raises(UnknownNameError, match="no parameter named 'hearbeat_s'; did you mean heartbeat_s"):
        require_names(["root", "hearbeat_s"])


@pytest.mark.parametrize("words", [[], ["--ros-args"], ["--ros-args", "-p", "root:=/a", "--"]])
def test_ros_arguments_are_accepted(words: list[str]) -> None:
    require_ros_arguments(words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-p", "root:=/a"], "unexpected argument '-p': parameters and remappings follow --ros-args"),
        (["root:=/a"], "unexpected argument 'root:=/a'"),
        (["--ros-args", "-p", "root:=/a", "--", "rate:=3.0"], "unexpected argument 'rate:=3.0'"),
    ],
)
def test_other_arguments_are_refused(words: list[str], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        require_ros_arguments(words)


@pytest.mark.parametrize(
    ("section", "matches"),
    [
        # As rclpy 7.1.6 applies them to this node.
        ("/left/physai_policy", True),
        ("left/physai_policy", True),
        ("/**", True),
        ("**/physai_policy", True),
        ("/*/physai_policy", True),
        ("/left/*", True),
        ("physai_policy", False),
        ("/physai_policy", False),
        ("/left/physai_polcy", False),
        ("/*", False),
    ],
)
def test_a_file_for_other_nodes_is_refused(tmp_path: Path, section: str, matches: bool) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(f'"{section}":\n  ros__parameters: {{heartbeat_s: 0.5}}\n')
    words = ["--ros-args", "--params-file", str(path)]
    if matches:
        require_effect(words, NODE)
    else:
        told = rf"has parameters of /{section.strip('/').replace('*', '.')}, but none of /left/physai_policy"
        with pytest.raises(ParameterError, match=told):
            require_effect(words, NODE)


def test_a_parameter_of_another_node_is_refused() -> None:
    require_effect(
        ["--ros-args", "-p", "left/physai_policy:rate:=3.0", "--param", "rate:=3.0", "-p", "root:=a:b"], NODE
    )
    told = "-p physai_policy:rate:=3.0 sets a parameter of the node /physai_policy, but this one is /left/physai_policy"
    with pytest.raises(ParameterError, match=told):
        require_effect(["--ros-args", "-p", "physai_policy:rate:=3.0"], NODE)
