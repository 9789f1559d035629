"""Files of a stage are bounded and lie in one folder; the importer runs in a process of its own."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import pytest

from physai.sdk.base.errors import MissingExtraError, ModelError
from physai.sim.robots.importing.importer import ImportOptions, import_robot

Made = Callable[..., str]


def reference(asset: str, arc: str = "references") -> str:
    return f'def "robot" (\nprepend {arc} = @{asset}@\n)\n{{\n}}\n'


@pytest.mark.parametrize("arc", ["references", "payload"])
def test_a_file_in_the_folder_is_read(stages: Any, robot: Made, body: Made, arc: str) -> None:
    stages.write(robot(body("arm")), name="parts/arm.usda")
    assert stages.read(reference("./parts/arm.usda", arc)).model.body("arm").mass == 2


@pytest.mark.parametrize(
    ("asset", "words"),
    [
        ("./gone.usda", "names gone.usda, which is missing"),
        ("gone.usda", "names gone.usda, which is missing"),
        ("/etc/robot.usda", "names '/etc/robot.usda'; a file has to be named relative to the one that names it"),
        ("https://example.com/a.usd", "names 'https://example.com/a.usd'; a file has to be named relative"),
        ("./robot.xml", "names robot.xml, no USD file (.usd, .usda, .usdc, .usdz)"),
        ("./junk.usda", "junk.usda is no USD file: "),
    ],
)
@pytest.mark.parametrize("arc", ["references", "payload"])
def test_a_file_that_cannot_be_read_is_refused(stages: Any, asset: str, words: str, arc: str) -> None:
    (stages.folder / "junk.usda").write_text("junk")
    (stages.folder / "robot.xml").write_text("<mujoco/>")
    assert stages.refusal(reference(asset, arc)).startswith(f"/robot: {words}")


@pytest.mark.parametrize("linked", [False, True])
def test_a_file_outside_of_the_folder_is_refused(stages: Any, robot: Made, body: Made, linked: bool) -> None:
    outside = stages.write(robot(body("arm")), name="arm.usda")
    inside = type(stages)(stages.folder / "own")
    inside.folder.mkdir()
    if linked:
        (inside.folder / "arm.usda").symlink_to(outside)
    message = inside.refusal(reference("./arm.usda" if linked else "../arm.usda"))
    assert message.startswith("/robot: names ")
    assert message.endswith(f", outside of the folder {inside.folder}; put the file into the folder")


def test_a_layer_below_is_bounded_as_a_reference_is(stages: Any, robot: Made, body: Made) -> None:
    message = stages.refusal(robot(body("arm")), more="    subLayers = [@../other.usda@]\n")
    assert message.startswith("/: names ")
    assert "outside of the folder" in message


def test_files_without_end_are_refused(stages: Any, monkeypatch: pytest.MonkeyPatch, robot: Made, body: Made) -> None:
    monkeypatch.setattr("physai.foreign.usd.layers.MAX_PRIMS", 3)
    assert stages.refusal(robot(body("a"), body("b"), body("c"))) == "/robot/c: the stage has more than 3 prims"
    monkeypatch.setattr("physai.foreign.usd.layers.MAX_LAYERS", 1)
    stages.write(robot(body("arm")), name="arm.usda")
    assert stages.refusal(reference("./arm.usda")) == "/robot: the stage has more than 1 files"
    monkeypatch.setattr("physai.foreign.usd.layers.MAX_BYTES", 100)
    assert stages.refusal(robot(body("a")), name="a.usda").endswith("bytes up to a.usda, of 100")


@pytest.mark.parametrize("suffix", ["usdc", "usdz", "usd"])
def test_each_format_of_usd_is_read(stages: Any, robot: Made, body: Made, suffix: str) -> None:
    """A package holds a file that refers to another."""
    usd, utils = (importlib.import_module(f"pxr.{name}") for name in ("Usd", "UsdUtils"))
    stages.write(robot(body("arm")), name="parts/arm.usda")
    source, path = stages.write(reference("./parts/arm.usda")), stages.folder / f"robot.{suffix}"
    if suffix == "usdz":
        assert utils.CreateNewUsdzPackage(str(source), str(path))
        (stages.folder / "parts" / "arm.usda").unlink()
    else:
        stage = usd.Stage.Open(str(source))
        stage.GetRootLayer().Export(str(path))
    assert stages.load(path).model.body("arm").mass == 2


@pytest.mark.parametrize("suffix", ["usda", "usdc", "usdz", "usd"])
def test_ten_megabytes_of_junk_are_no_usd_file(stages: Any, suffix: str) -> None:
    path = stages.folder / f"junk.{suffix}"
    path.write_bytes(bytes(range(256)) * 40_000)
    with pytest.raises(ModelError, match=r"^/: junk\.\w+ is (missing or )?no USD file"):
        stages.load(path)


@pytest.mark.parametrize(("given", "fallback"), [("metersPerUnit", "0.01, centimetres"), ("upAxis", "Y")])
def test_units_that_are_not_stated_are_asked_for(
    stages: Any, robot: Made, body: Made, given: str, fallback: str
) -> None:
    path = stages.write(robot(body("arm")))
    text = path.read_text(encoding="utf-8")
    path.write_text("\n".join(line for line in text.splitlines() if given not in line), encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        stages.load(path)
    assert str(caught.value) == f"/: does not state {given}, for which USD takes {fallback}; state it in the file"


def test_units_that_no_robot_has_are_refused(stages: Any, robot: Made, body: Made) -> None:
    assert stages.refusal(robot(body("arm")), metres=0.0) == "/: metersPerUnit is 0, outside of 1e-6 … 1e6"


def test_a_stage_without_a_robot_is_refused(stages: Any) -> None:
    assert stages.refusal('def Cube "robot"\n{\n}\n') == "/robot: no prim has PhysicsRigidBodyAPI: no robot"


def test_the_importer_reads_it_in_a_process_of_its_own(stages: Any, robot: Made, body: Made, joint: Made) -> None:
    from physai.foreign.usd.converter import to_mjcf

    path = stages.write(robot(body("arm"), joint("Revolute", "hinge", ("", "arm"))))
    converted = to_mjcf(path)
    spec: Any = mujoco.MjSpec.from_string(converted.text)
    assert spec.compile().joint("hinge").type[0] == mujoco.mjtJoint.mjJNT_HINGE
    path.write_text("junk")
    with pytest.raises(ModelError, match=rf"^{path}: /: r1\.usda is no USD file"):
        to_mjcf(path)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from physai.foreign.usd import library
    from physai.foreign.usd.converter import to_mjcf

    def missing(name: str) -> None:
        return None

    monkeypatch.setattr(library, "find_spec", missing)
    (tmp_path / "a.usda").write_text("#usda 1.0")
    with pytest.raises(MissingExtraError, match=r"reading USD files needs usd-core: pip install 'physai-sdk\[usd\]'"):
        to_mjcf(tmp_path / "a.usda")


def test_an_import_makes_a_folder_with_the_robot_and_the_decisions(
    stages: Any, robot: Made, body: Made, joint: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the entry point of the package, as any other format."""
    info = stages.folder / "plugins" / "usd-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: usd\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[physai.importers]\nusda = physai.foreign.usd.converter:to_mjcf\n")
    monkeypatch.setattr(sys, "path", [str(info.parent), *sys.path])
    more = "float physxJoint:maxJointVelocity = 100\nfloat physics:lowerLimit = -90\nfloat physics:upperLimit = 90\n"
    ball = 'def Sphere "ball" (prepend apiSchemas = ["PhysicsCollisionAPI"])\n{\ndouble radius = 0.1\n}\n'
    places = ((0, 0, 1), (0, 0, 0.5))
    hinge = joint("Revolute", "hinge", ("", "arm"), places=places, more=more, apis='"PhysxJointAPI"')
    path = stages.write(robot(body("arm", (0, 0, 0.5), more=ball), hinge), name="source/pendulum.usda")
    imported = import_robot(path, stages.folder / "robot", ImportOptions())
    model = imported.robot.model
    assert model.joint("hinge").range == pytest.approx([-1.570796, 1.570796], abs=1e-5)
    assert model.body("arm").mass[0] == 2
    lines = imported.decisions.lines()
    assert "importer: converted by physai.foreign.usd.converter:to_mjcf" in lines
    assert "PhysxJointAPI: is not read: physxJoint:maxJointVelocity of /robot/hinge" in lines


def test_a_stage_that_does_not_exist_is_said_to(tmp_path: Path) -> None:
    from physai.foreign.usd.converter import to_mjcf

    with pytest.raises(ModelError, match=rf"^{tmp_path}/nothere\.usd: no such file$"):
        to_mjcf(tmp_path / "nothere.usd")
