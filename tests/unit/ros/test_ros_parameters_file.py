"""The root that a file of ROS parameters gives the policy node, as the launch files read it."""

from pathlib import Path
from types import ModuleType

import pytest
from tests.support.scripts import load_script

MODULE = Path(__file__).parents[3] / "ros" / "colcon" / "physai_ros" / "physai_ros" / "parameters_file.py"
NODE = "/arm/physai_policy"


@pytest.fixture(scope="module")
def parameters_file() -> ModuleType:
    """By its path: the package is the launch files' own, in no environment but ROS's."""
    return load_script(MODULE)


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("/**:\n  ros__parameters:\n    root: /robot\n", "/robot"),
        ("/arm/physai_policy:\n  ros__parameters: {root: /robot}\n", "/robot"),
        ("arm:\n  physai_policy:\n    ros__parameters: {root: /robot}\n", "/robot"),
        ("/*/physai_policy:\n  ros__parameters: {root: /robot}\n", "/robot"),
        ("/**/physai_policy:\n  ros__parameters: {root: /robot}\n", "/robot"),
        ("/**: {ros__parameters: {root: /any}}\n/arm/physai_policy: {ros__parameters: {root: /own}}\n", "/own"),
        ("/leg/physai_policy:\n  ros__parameters: {root: /robot}\n", "/var/lib/physai"),
        ("/physai_policy:\n  ros__parameters: {root: /robot}\n", "/var/lib/physai"),
        ("/**:\n  ros__parameters: {rate: 3.0}\n", "/var/lib/physai"),
        ("/**:\n  ros__parameters: {root: 3}\n", "/var/lib/physai"),
        ("/**: [1, 2]\n", "/var/lib/physai"),
        ("{", "/var/lib/physai"),
    ],
)
def test_the_root_of_a_node(parameters_file: ModuleType, tmp_path: Path, text: str, root: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    assert parameters_file.root_in(str(path), NODE) == root


@pytest.mark.parametrize("text", ["a: [", "a: !!bool x", "a: !!int ''", "a: !!timestamp x", "[" * 2000, "\0", "- 1"])
def test_what_is_no_file_of_parameters_says_nothing(parameters_file: ModuleType, tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    assert parameters_file.root_in(str(tmp_path / "bad.yaml"), NODE) == "/var/lib/physai"


def test_without_a_file_it_is_the_default(parameters_file: ModuleType, tmp_path: Path) -> None:
    assert parameters_file.root_in(str(tmp_path / "none.yaml"), NODE) == "/var/lib/physai"


def test_a_node_without_a_namespace(parameters_file: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("/**/physai_policy:\n  ros__parameters: {root: /robot}\n")
    assert parameters_file.root_in(str(path), "/physai_policy") == "/robot"
