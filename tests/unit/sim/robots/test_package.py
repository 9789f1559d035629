"""A robot's package names no file outside it, and asks MuJoCo for nothing without bounds."""

import re
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.robot_zips import ARM, GOOD_MJCF, GOOD_URDF, MJCF, TETRAHEDRON, URDF, mjcf, zipped

from physai.sdk.base.errors import ModelError
from physai.sim.robots import load_robot
from physai.sim.robots.files.package import read_package
from physai.sim.robots.loader import load_package


def with_children(tag: str, children: list[Element]) -> Element:
    element = Element(tag)
    element.extend(children)
    return element


BODY = '<body><joint name="j"/><geom size=".1"/></body>'
MESH = '<body><joint name="j"/><geom type="mesh" mesh="a"/></body>'


def test_an_mjcf_with_include_and_mesh_is_one_text() -> None:
    package = read_package(zipped(GOOD_MJCF))
    assert package.files == GOOD_MJCF
    assert package.assets == {"asset0.obj": TETRAHEDRON}
    assert "include" not in package.mjcf()
    assert "meshdir" not in package.mjcf()
    assert "link.obj" not in package.mjcf()
    robot = load_package(package, package.main.path)
    assert (robot.name, robot.model.nmesh, robot.model.body("upper").mass) == ("arm", 1, pytest.approx(2.0))
    assert robot.spec.joints[0].position_upper == 1.0


def test_a_urdf_finds_its_mesh_in_the_package() -> None:
    for prefix in ("swing/", ""):
        files = {name.removeprefix("swing/" if not prefix else ""): content for name, content in GOOD_URDF.items()}
        package = read_package(zipped(files))
        assert package.files == files
        robot = load_package(package, package.main.path)
        assert (robot.name, robot.model.nmesh, robot.spec.joints[0].name) == ("swing", 1, "hinge")


def test_the_stored_zip_reads_as_the_same_robot() -> None:
    for files in (GOOD_MJCF, GOOD_URDF):
        package = read_package(zipped(files | {"readme.md": b"?"}))
        again = read_package(package.archive())
        assert again.archive() == package.archive()
        assert again.main.path == package.main.path


@pytest.mark.parametrize("name", ["ur10e", "go2", "cartpole"])
def test_a_built_in_robot_is_the_same_in_a_package(name: str) -> None:
    known = load_robot(name)
    robot = load_package(read_package(known.path.read_bytes(), name=name), known.path)
    assert robot.spec == known.spec
    assert robot.model.nbuffer == known.model.nbuffer


@pytest.mark.parametrize(
    ("compiler", "path"),
    [
        ('meshdir="m"', "m/a.obj"),
        ('assetdir="m"', "m/a.obj"),
        ('assetdir="x" meshdir="m"', "m/a.obj"),
        ('meshdir="x"/><compiler meshdir="m"', "m/a.obj"),
        ('meshdir="../m"', "../m/a.obj"),
        ('meshdir="m" strippath="true"', "m/a.obj"),
    ],
)
def test_folders_of_meshes_are_those_of_mujoco(compiler: str, path: str) -> None:
    file = "q/a.obj" if "strippath" in compiler else "a.obj"
    model = mjcf(MESH, before=f'<compiler {compiler}/><asset><mesh file="{file}"/></asset>')
    place = path.removeprefix("../") if path.startswith("..") else f"bot/{path}"
    package = read_package(zipped({"bot/arm.xml": model, place: TETRAHEDRON}))
    assert place in package.files
    assert load_package(package, package.main.path).model.mesh(0).name == "a"


def test_of_several_models_the_robot_must_be_clear() -> None:
    files = {"a.xml": mjcf(BODY), "b.xml": mjcf(BODY)}
    with pytest.raises(
        ModelError, match=r"the zip has 2 models, a.xml, b.xml; say which is the robot with \?main=PATH"
    ):
        read_package(zipped(files))
    assert set(read_package(zipped(files), main="b.xml").files) == {"b.xml"}
    with pytest.raises(ModelError, match=r"'c.xml' is no model in the zip; it has a.xml, b.xml"):
        read_package(zipped(files), main="c.xml")
    with pytest.raises(ModelError, match="no file has the root element"):
        read_package(zipped({"a.xml": b"<package/>"}))
    loop = {"a.xml": b'<mujoco><include file="b.xml"/></mujoco>', "b.xml": b'<mujoco><include file="a.xml"/></mujoco>'}
    with pytest.raises(ModelError, match="include one another"):
        read_package(zipped(loop))
    with pytest.raises(ModelError, match=r"'a.xml' is included twice"):
        read_package(zipped(loop), main="a.xml")


OUTSIDE = ["/etc/passwd", "../../../../etc/passwd", "~/x", "C:\\x", "file:///etc/passwd", "", "missing.xml"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_include_finds_nothing_outside(name: str) -> None:
    with pytest.raises(ModelError, match=r"name it relative to the model|is not in the upload"):
        read_package(mjcf(f'<include file="{name}"/>'))


@pytest.mark.parametrize("suffix", [".obj", ".png", ".stl"])
@pytest.mark.parametrize("tag", ["mesh", "texture", "hfield"])
@pytest.mark.parametrize("name", ["/etc/a", "../../a", "C:\\a", "a"])
def test_an_asset_finds_nothing_outside(tag: str, name: str, suffix: str) -> None:
    for key in ("file",) if tag != "texture" else ("file", "fileright", "fileback"):
        with pytest.raises(ModelError, match=r"name it relative to the model|is not in the upload"):
            read_package(mjcf(BODY, before=f'<asset><{tag} name="a" {key}="{name}{suffix}"/></asset>'))


@pytest.mark.parametrize("folder", ["/etc", "../../../../etc", "~", "C:\\"])
@pytest.mark.parametrize("key", ["meshdir", "assetdir"])
def test_a_mesh_folder_leads_nowhere_outside(key: str, folder: str) -> None:
    before = f'<compiler {key}="{folder}"/><asset><mesh name="a" file="hosts.obj"/></asset>'
    with pytest.raises(ModelError, match=r"name it relative to the model|is not in the upload"):
        read_package(zipped({"a.xml": mjcf(MESH, before=before), "hosts.obj": TETRAHEDRON}))


@pytest.mark.parametrize(
    "name", ["/etc/a.stl", "package://../../a.stl", "file:///etc/a.stl", "../../../a.obj", "b.obj"]
)
def test_a_urdf_mesh_is_in_the_package_or_refused(name: str) -> None:
    urdf = URDF.replace(b"package://swing/meshes/link.obj", name.encode())
    with pytest.raises(ModelError, match=r"is no path inside the upload|is not in the upload; zip the"):
        read_package(zipped({"a/b.urdf": urdf, "a/link.obj": TETRAHEDRON}))


@pytest.mark.parametrize("extra", ['<include file="/etc/passwd"/>', "<mujoco><asset/></mujoco>"])
def test_a_urdf_holds_no_mjcf(extra: str) -> None:
    with pytest.raises(ModelError, match=r"a URDF may not include files|may hold compiler, option, size"):
        read_package(URDF.replace(b"</robot>", f"{extra}</robot>".encode()))


def test_a_mesh_folder_in_a_urdf_is_not_used(tmp_path: Path) -> None:
    # Bait, named as MuJoCo gets to see the mesh: ten times as large as the one in the package.
    (tmp_path / "mesh0.obj").write_bytes(TETRAHEDRON.replace(b"1 0", b"10 0").replace(b"0 1", b"0 10"))
    extension = f'<mujoco><compiler meshdir="{tmp_path}" strippath="false"/></mujoco></robot>'.encode()
    package = read_package(zipped(GOOD_URDF | {"swing/urdf/swing.urdf": URDF.replace(b"</robot>", extension)}))
    model = load_package(package, package.main.path).model
    assert model.mesh_vert.max() <= 1.0


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (mjcf('<plugin plugin="mujoco.elasticity.cable"/>'), "it loads native code"),
        (mjcf(BODY, before='<extension><plugin plugin="x"/></extension>'), "it loads native code"),
        (mjcf(BODY, before='<asset><model name="m" file="b.xml"/></asset>'), "<model> is not allowed"),
        (mjcf('<attach model="m"/>'), "<attach> is not allowed"),
        (mjcf('<flexcomp name="f" type="grid" count="1000 1000 1000"/>'), "robots are rigid here"),
        (mjcf('<composite type="cable" count="1000000 1 1"/>'), "write its bodies one by one"),
        (mjcf(BODY, before='<asset><skin file="a.skn"/></asset>'), "<skin> is not allowed"),
        (mjcf(f'<replicate count="1000000">{BODY}</replicate>'), "more than 20000 elements after <replicate>"),
        (mjcf('<replicate count="1e9"><body/></replicate>'), "is no number of copies"),
        (mjcf('<replicate count="-1"><body/></replicate>'), "is no number of copies"),
        (
            mjcf(BODY, before='<asset><hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/></asset>'),
            "exceeds 1024",
        ),
        (mjcf(BODY, before='<asset><texture name="t" builtin="flat" width="1e6" height="1"/></asset>'), "exceeds 2048"),
        (mjcf(BODY, before='<option iterations="1000000000"/>'), "exceeds 1000"),
        (mjcf(BODY, before='<size memory="100G"/>'), "write at most 128M"),
        (mjcf(BODY, before='<size memory="129M"/>'), "write at most 128M"),
        (mjcf(BODY, before='<size nuserdata="1000000000"/>'), "exceeds 1000"),
        (mjcf(BODY, before='<asset><mesh name="a" content_type="model/stl" file="a.obj"/></asset>'), "content_type"),
        (mjcf('<body><inertial pos="0 0 0" mass="nan" diaginertia="1 1 1"/></body>'), "is not a finite number"),
        (b'<!DOCTYPE m [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><mujoco model="&b;"/>', "remove the declaration"),
        (b"<mujoco>" + b"<body>" * 300 + b"</body>" * 300 + b"</mujoco>", "nested deeper than 256"),
        (b"<mujoco>" + b"<a/>" * 200_000 + b"</mujoco>", "more than 200000 elements"),
    ],
)
def test_what_multiplies_or_runs_is_refused_before_mujoco(model: bytes, reason: str) -> None:
    with pytest.raises(ModelError, match=re.escape(reason)):
        read_package(model)


@pytest.mark.parametrize(
    "names", ['file="a.STL"', 'file="a.obj"', 'fileright="a.png" fileleft="b.stl"', 'builtin="flat"']
)
def test_a_stated_type_is_that_of_the_file(names: str) -> None:
    """MuJoCo writes `content_type` when it saves a model; another type than the suffix chooses another decoder."""
    model = mjcf(BODY, before=f'<asset><mesh name="a" content_type="model/stl" {names}/></asset>')
    reason = r"not in the upload" if "STL" in names else "may not have"
    with pytest.raises(ModelError, match=reason):
        read_package(model)


@given(counts=st.lists(st.integers(0, 5) | st.integers(0, 10**9 - 1), max_size=40))
def test_nested_replicates_are_counted(counts: list[int]) -> None:
    model = mjcf("".join(f'<replicate count="{count}">' for count in counts) + "<body/>" + "</replicate>" * len(counts))
    # By hand: each level has one element and `count` copies of the level below; the root and the world are two more.
    expanded = 1
    for count in reversed(counts):
        expanded = 1 + count * expanded
    if expanded + 2 > 20_000:
        with pytest.raises(ModelError, match="more than 20000 elements"):
            read_package(model)
    else:
        assert read_package(model).files


TAGS = (
    "worldbody",
    "body",
    "joint",
    "geom",
    "include",
    "replicate",
    "mesh",
    "asset",
    "compiler",
    "hfield",
    "mujoco",
    "link",
)
KEYS = ("file", "count", "name", "meshdir", "filename", "fileup", "nrow", "mesh", "strippath", "memory")
VALUES = st.sampled_from(
    ["a.obj", "b.xml", "../b.xml", "/b.xml", "1", "-1", "1e9", "nan", "", "c/a.obj", "true"]
) | st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=5)
TREES = st.recursive(
    st.builds(Element, st.sampled_from(TAGS), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3)),
    lambda below: st.builds(with_children, st.sampled_from(TAGS), st.lists(below, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=300)
@given(
    root=st.sampled_from(["mujoco", "robot", "x"]), main=st.lists(TREES, max_size=4), other=st.lists(TREES, max_size=3)
)
def test_any_tree_of_elements_is_a_package_or_refused(root: str, main: list[Element], other: list[Element]) -> None:
    files = {"a.xml": tostring(with_children(root, main)), "b.xml": tostring(with_children("x", other))}
    files |= {"c/a.obj": TETRAHEDRON, "a.obj": TETRAHEDRON}
    try:
        package = read_package(zipped(files))
    except ModelError:
        return
    assert set(package.files) <= set(files)
    if package.main.root.tag == "mujoco":
        named = {value for element in package.main.root.iter() for key, value in element.items() if key[:4] == "file"}
        assert named <= set(package.assets)


def test_includes_do_not_nest_without_end() -> None:
    deep = b"<x>" + b"<body>" * 100 + b'<include file="%d.xml"/>' + b"</body>" * 100 + b"</x>"
    files = {f"{index}.xml": deep % (index + 1) for index in range(20)} | {"20.xml": b"<x/>"}
    files["main.xml"] = b'<mujoco><worldbody><include file="0.xml"/></worldbody></mujoco>'
    with pytest.raises(ModelError, match="nested deeper than 256 with their includes"):
        read_package(zipped(files))


def test_a_zip_on_the_disk_is_a_robot(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("robot") / "bot.zip"
    path.write_bytes(zipped({"arm.xml": MJCF, "parts/arm.xml": ARM, "meshes/link.obj": TETRAHEDRON}))
    robot = load_robot(str(path))
    assert (robot.name, robot.path, robot.model.nmesh) == ("arm", path, 1)


def test_parts_of_a_urdf_for_ros_and_gazebo_are_left_out() -> None:
    parts = b"<ros2_control><plugin>lib.so</plugin></ros2_control><gazebo><plugin filename='x.so'/></gazebo></robot>"
    files = {name: data.replace(b"</robot>", parts) for name, data in GOOD_URDF.items()}
    package = read_package(zipped(files))
    assert {child.tag for child in package.main.root} == {"link", "joint"}


def test_what_is_no_model_at_all_is_said() -> None:
    with pytest.raises(ModelError, match="neither a zip nor an MJCF or URDF file, but 8 bytes of something else"):
        read_package(b"\x89PNG\r\n\x1a\n")
