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


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "No such file or directory"),
        ("{", "no YAML"),
        ("", "parameters of no node, but none of /arm/physai_policy"),
        ("/leg/physai_policy: {ros__parameters: {root: /robot}}", "parameters of /leg/physai_policy, but none of"),
        ("/**: [1, 2]", "parameters of no node"),
    ],
)
def test_a_file_that_sets_nothing_is_refused(
    parameters_file: ModuleType, tmp_path: Path, text: str | None, complaint: str
) -> None:
    """A mistyped file was one warning of launch's, and the node drove without dead man and recorder."""
    path = tmp_path / "policy.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(parameters_file.ParametersFileError, match=complaint):
        parameters_file.require(str(path), NODE)


def test_the_packages_own_file_is_accepted(parameters_file: ModuleType) -> None:
    for path in (MODULE.parents[1] / "config").glob("policy*.yaml"):
        for node in (NODE, "/physai_policy"):
            parameters_file.require(str(path), node)


def test_a_node_without_a_namespace(parameters_file: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("/**/physai_policy:\n  ros__parameters: {root: /robot}\n")
    assert parameters_file.root_in(str(path), "/physai_policy") == "/robot"
