"""The house: five roots, the packages of one namespace in them, one distribution, and the contents of its wheel."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from physai.sdk.cli.command import CliCommand

ROOT = Path(__file__).parents[2]
ROOTS = {
    "sdk": {"sdk"},
    "train": {"train", "foreign", "cluster", "rlhf"},
    "sim": {"compute", "sim", "vision", "twin", "gates", "drift", "service"},
    "deploy_jetson": {"deploy_jetson", "transport"},
    "ros": {"ros"},
}
"""Packages of the namespace `physai` in each root. Reserved: `fleet` in deploy_jetson."""
DATA_SUFFIXES = {".xml", ".typed", ".yaml", ".toml", ".json", ".html", ".css", ".js"}
"""What may lie beside Python in a package; anything else needs a line here first."""


def sources() -> set[str]:
    """Files of all packages as a wheel names them."""
    files = {
        path.relative_to(ROOT / root).as_posix()
        for root in ROOTS
        for path in (ROOT / root / "physai").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "physai/sdk/contract/policy_contract.py" in files
    return files


@pytest.mark.parametrize("name", ROOTS)
def test_a_root_holds_its_packages_of_the_namespace(name: str) -> None:
    root = ROOT / name
    assert not (root / "physai" / "__init__.py").exists(), "physai is a PEP 420 namespace"
    assert {path.name for path in (root / "physai").iterdir() if path.name != "__pycache__"} == ROOTS[name]
    for package in ROOTS[name]:
        assert (root / "physai" / package / "__init__.py").is_file()
        assert (root / "physai" / package / "py.typed").is_file()
    # Each root is on sys.path of an editable install: Python outside physai/ would be importable by its bare name.
    # What colcon builds is a package of its own.
    others = {"colcon"} if name == "ros" else set[str]()
    assert [path for path in root.rglob("*.py") if path.relative_to(root).parts[0] not in {"physai", *others}] == []


def test_packages_hold_python_and_known_data_only() -> None:
    assert {Path(name).suffix for name in sources()} <= {".py", *DATA_SUFFIXES}


def test_the_project_file_names_the_roots() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tool = project["tool"]
    assert project["project"]["name"] == "physai-sdk"
    assert tool["hatch"]["build"]["targets"]["wheel"]["packages"] == [f"{root}/physai" for root in ROOTS]
    assert tool["hatch"]["build"]["dev-mode-dirs"] == list(ROOTS)
    # Launch files import what their colcon package holds, tests what they share, examples the folders to be copied.
    assert tool["pyright"]["extraPaths"] == [*ROOTS, "ros/colcon/physai_ros", ".", "examples"]
    assert tool["ruff"]["src"] == list(ROOTS)
    assert set(tool["importlinter"]["root_packages"]) == {
        f"physai.{name}" for names in ROOTS.values() for name in names
    }


def test_the_base_needs_no_learner_and_no_simulator() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {requirement.split(">")[0] for requirement in project["dependencies"]}
    assert names == {"numpy", "pydantic", "cryptography", "rfc8785"}
    robot = {requirement.split(">")[0] for requirement in project["optional-dependencies"]["robot"]}
    assert not robot & {"torch", "mujoco", "warp-lang", "fastapi"}


def test_every_requirement_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    needed = {re.split(r"[\[<>=;! ]", requirement)[0] for group in groups for requirement in group}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin) for pin in pins), "public versions only"
    assert needed - {pin.split("==")[0] for pin in pins} == {"physai-sdk"}, "run `make setup constraints`"


def test_a_wheel_holds_every_source_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith("physai_sdk-")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    info = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert set(names) - info == sources()
    assert {name.split("/", 1)[1] for name in info} >= {"METADATA", "entry_points.txt", "licenses/LICENSE"}


VERBS = [entry for entry in entry_points(group="physai.commands") if entry.module.startswith("physai.")]


@pytest.mark.parametrize("entry", VERBS, ids=[entry.name for entry in VERBS])
def test_every_verb_loads(entry: EntryPoint) -> None:
    command = entry.load()
    assert isinstance(command, CliCommand)
    assert command.summary
    assert "\n" not in command.summary


GROUPS: dict[str, dict[str, str]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "entry-points"
]


def test_what_is_installed_has_the_entry_points_of_the_project_file() -> None:
    """An environment that was installed before a change would hide what the change broke, or fail for no reason."""
    installed = {
        group: {entry.name: entry.value for entry in entry_points(group=group) if entry.module.startswith("physai.")}
        for group in GROUPS
    }
    assert installed == GROUPS, "run `make setup`"


FOREIGN = {"physai.gates", "physai.log_readers"}
"""Groups that other packages alone contribute to."""


def test_every_group_that_the_code_asks_for_is_in_the_project_file() -> None:
    asked: set[str] = set()
    for root in ROOTS:
        for path in (ROOT / root / "physai").rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            for word in re.findall(r"\b(?:contributions|load_plugin)\(([^,):]+)[,)]", source):
                found = word if word.startswith('"') else re.search(rf'^{word} = ("[^"]+")', source, re.MULTILINE)
                # A constant that was imported is found where it is defined, a parameter at its callers.
                asked |= {str(found if isinstance(found, str) else found[1]).strip('"')} if found else set()
    assert asked == set(GROUPS) | FOREIGN


@pytest.mark.parametrize(
    "entry",
    [
        EntryPoint(name, value, group)
        for group, entries in GROUPS.items()
        for name, value in entries.items()
        if group != "physai.commands" and name != "ros"
    ],
    ids=lambda entry: f"{entry.group}:{entry.name}",
)
def test_every_entry_point_is_there(entry: EntryPoint) -> None:
    assert callable(entry.load()) or entry.load() is not None
