"""Physics options without sense and pictures without bounds are refused wherever a robot is read."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import pytest

from physai.sdk.base.errors import ModelError
from physai.sim.robots import load_robot, robot_names
from physai.sim.robots.files.archive import pack
from physai.sim.robots.files.package import read_package
from physai.sim.robots.files.physics_options import RANGES, check_physics_options
from physai.sim.robots.files.pictures import MAX_PIXELS, MAX_SIDE
from physai.sim.robots.importing.importer import import_robot
from physai.sim.robots.loader import load_package

MODEL = """<mujoco>
  <option {option}/>
  <asset>{asset}</asset>
  <worldbody><body name="arm"><joint name="hinge" axis="0 1 0" range="-1 1"/>
  <geom type="capsule" fromto="0 0 0 0 0 .3" size=".02" mass="1"/></body></worldbody>
  <actuator><position name="hinge" joint="hinge" kp="10" kv="1" ctrlrange="-1 1" forcerange="-5 5"/></actuator>
</mujoco>
"""


def png(width: int, height: int) -> bytes:
    """A picture of one colour, which takes a thousandth of what it unpacks to."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((1 + (width + 7) // 8) * height)) if width * height < 1e6 else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def uploaded(folder: Path, files: dict[str, bytes]) -> None:
    package = read_package(pack(files))
    load_package(package, package.main.path)


def loaded(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    load_robot(folder / "arm.xml")


def imported(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    import_robot(folder / "arm.xml", folder / "imported")


WAYS = pytest.mark.parametrize("read", [uploaded, loaded, imported])
Read = Callable[[Path, dict[str, bytes]], None]


@WAYS
@pytest.mark.parametrize(
    ("option", "says"),
    [
        ('timestep="-1"', "<option> timestep is -1 s, it must lie in 1e-05 … 0.1 s"),
        ('timestep="1e-9"', "<option> timestep is 1e-09 s, it must lie in 1e-05 … 0.1 s"),
        ('timestep="nan"', "timestep"),
        ('gravity="0 0 1e300"', "<option> gravity is 1e+300 m/s², it must lie in -100 … 100 m/s²"),
        ('gravity="0 0 -9.81" density="-1"', "<option> density is -1 kg/m³, it must lie in 0 … 20000 kg/m³"),
        ('impratio="0"', "<option> impratio is 0, it must lie in 0.001 … 1e+06"),
        ('iterations="-5"', "<option> iterations is -5, it must lie in 0 … 10000"),
        ('sdf_iterations="-1"', "<option> sdf_iterations is -1, it must lie in 0 … 1000"),
    ],
)
def test_options_without_sense_are_refused_with_value_and_bound(
    tmp_path: Path, read: Read, option: str, says: str
) -> None:
    with pytest.raises(ModelError) as refused:
        read(tmp_path, {"arm.xml": MODEL.format(option=option, asset="").encode()})
    assert says in str(refused.value)


@WAYS
@pytest.mark.parametrize(
    ("visual", "says"),
    [
        ('<global offwidth="100000"/>', "<visual> global offwidth is 100000 pixels, it must lie in 1 … 8192 pixels"),
        ('<quality shadowsize="1000000"/>', "<visual> quality shadowsize is 1e+06 pixels"),
        ('<quality numslices="-1"/>', "<visual> quality numslices is -1"),
        ('<map znear="nan"/>', "znear"),
        ('<scale com="1e30"/>', "<visual> scale com is 1e+30"),
    ],
)
def test_visual_sizes_without_sense_are_refused_too(tmp_path: Path, read: Read, visual: str, says: str) -> None:
    model = MODEL.format(option="", asset="").replace("<worldbody>", f"<visual>{visual}</visual><worldbody>", 1)
    with pytest.raises(ModelError) as refused:
        read(tmp_path, {"arm.xml": model.encode()})
    assert says in str(refused.value)


# MuJoCo refuses what is no whole number where it wants one.
@pytest.mark.parametrize("name", [n for n in RANGES if not isinstance(getattr(mujoco.MjSpec().option, n), int)])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e300])
def test_every_option_has_to_be_finite_and_in_its_range(name: str, value: float) -> None:
    options: Any = mujoco.MjSpec().option
    check_physics_options("robot", options)
    if isinstance(getattr(options, name), float):
        setattr(options, name, value)
    else:
        getattr(options, name)[0] = value
    with pytest.raises(ModelError, match=f"robot: <option> {name} is {value:g}".replace("+", r"\+")):
        check_physics_options("robot", options)


def test_the_built_in_robots_have_sense() -> None:
    for name in robot_names():
        check_physics_options(name, load_robot(name).model.opt)


TEXTURE = '<texture name="skin" type="2d" file="skin.png"/>'


@WAYS
@pytest.mark.parametrize(
    ("picture", "says"),
    [
        (png(60_000, 60_000), f"skin.png: the picture has 60000 × 60000 pixels, a side may have 1 to {MAX_SIDE}"),
        (png(8192, 8192), f"skin.png: with this picture the robot has {2**26} pixels, at most {MAX_PIXELS}"),
        (b"GIF89a", "skin.png: is no PNG picture"),
    ],
    ids=["sides", "pixels", "gif"],
)
def test_a_picture_is_measured_before_it_is_decoded(tmp_path: Path, read: Read, picture: bytes, says: str) -> None:
    files = {"arm.xml": MODEL.format(option="", asset=TEXTURE).encode(), "skin.png": picture}
    with pytest.raises(ModelError) as refused:
        read(tmp_path, files)
    assert says in str(refused.value)


@WAYS
def test_other_pictures_are_read(tmp_path: Path, read: Read) -> None:
    read(tmp_path, {"arm.xml": MODEL.format(option="", asset=TEXTURE).encode(), "skin.png": png(64, 32)})
