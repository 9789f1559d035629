"""Zips of robots, good and crafted."""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping

from physai.sim.robots import load_robot

TETRAHEDRON = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"

MJCF = b"""<mujoco>
  <compiler angle="radian" meshdir="meshes"/>
  <asset><mesh file="link.obj" scale="0.1 0.1 0.1"/></asset>
  <worldbody>
    <include file="parts/arm.xml"/>
  </worldbody>
  <actuator><position name="shoulder" joint="shoulder" kp="10" kv="1" ctrlrange="-1 1" forcerange="-5 5"/></actuator>
</mujoco>
"""
ARM = b"""<mujocoinclude>
  <body name="upper"><joint name="shoulder" range="-1 1"/><geom type="mesh" mesh="link" mass="2"/></body>
</mujocoinclude>
"""
GOOD_MJCF = {"bot/arm.xml": MJCF, "bot/parts/arm.xml": ARM, "bot/meshes/link.obj": TETRAHEDRON}

URDF = b"""<robot name="swing">
  <link name="base"/>
  <link name="rod">
    <inertial><mass value="1.5"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><mesh filename="package://swing/meshes/link.obj"/></geometry></collision>
  </link>
  <joint name="hinge" type="revolute">
    <parent link="base"/><child link="rod"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="5" velocity="2"/>
  </joint>
</robot>
"""
GOOD_URDF = {"swing/urdf/swing.urdf": URDF, "swing/meshes/link.obj": TETRAHEDRON}


def zipped(files: Mapping[str, bytes], *, method: int = zipfile.ZIP_DEFLATED, year: int = 2020) -> bytes:
    """A zip with the files in this order and time stamps of this year."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo("x", (year, 1, 1, 0, 0, 0))
            # Set after construction, which would change separators and cut the name at NUL.
            entry.filename = name
            entry.compress_type = method
            archive.writestr(entry, content)
    return buffer.getvalue()


def with_mode(name: str, content: bytes, mode: int) -> bytes:
    """A zip with one entry of this Unix file mode."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo(name)
        entry.create_system, entry.external_attr = 3, mode << 16
        archive.writestr(entry, content)
    return buffer.getvalue()


def zeros_bomb(name: str, mebibytes: int, *, declared: int | None = None) -> bytes:
    """A zip of one file of zeros, packed to a thousandth; its header may declare another size [bytes]."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    # After a full flush the stream has no memory, so the same block may be repeated.
    block = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = block * mebibytes + packer.flush()
    size = mebibytes * 2**20 if declared is None else declared
    size = min(size, 2**32 - 2)
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, 0, len(packed), size, len(name), 0)
    local = b"PK\x03\x04" + common + name.encode()
    central = b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name.encode()
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, len(central), len(local) + len(packed), 0)
    return local + packed + central + end


def stl_of(faces: int) -> bytes:
    """A binary STL whose header announces this many faces, and that has none."""
    return bytes(80) + struct.pack("<I", faces) + bytes(50)


def mjcf(body: str, *, before: str = "") -> bytes:
    """An MJCF with these elements in its world."""
    return f"<mujoco>{before}<worldbody>{body}</worldbody></mujoco>".encode()


def arm_with_mesh() -> bytes:
    """The built-in UR10e with a mesh from a file on its first link."""
    model = load_robot("ur10e").path.read_bytes()
    model = model.replace(b"<worldbody>", b'<asset><mesh file="link.obj" scale=".1 .1 .1"/></asset><worldbody>', 1)
    start = model.index(b"<joint", model.index(b"<worldbody>"))
    shape = b'<geom type="mesh" mesh="link" mass="0" contype="0" conaffinity="0"/>'
    model = model[:start] + shape + model[start:]
    return zipped({"my_arm.xml": model, "link.obj": TETRAHEDRON})
