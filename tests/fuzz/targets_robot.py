"""The parsers of `physai.deploy_jetson` and of ROS 2's launch files."""

import json
import socket
import struct
import threading
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from tests.fuzz.target import Target
from tests.fuzz.targets_sdk import FOLDER, bundle, from_file
from tests.support.scripts import load_script

from physai.deploy_jetson.runtime.commands.control_socket import ControlSocket, tell
from physai.deploy_jetson.runtime.commands.queue import CommandQueue
from physai.deploy_jetson.update.agent.incoming import parse_recipe
from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
from physai.deploy_jetson.update.flash.fleet import load_fleet
from physai.deploy_jetson.update.flash.protocol import Offer
from physai.deploy_jetson.update.flash.protocol import decode as decode_line
from physai.deploy_jetson.update.slots.health import HealthWriter, read_counters
from physai.deploy_jetson.update.slots.layout import seal
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.slot_records import (
    HealthLimits,
    InferenceRuntime,
    Marker,
    RobotIdentity,
    SelfTest,
    SlotEvent,
    SlotFile,
    State,
    VersionTrial,
    decode,
    encode,
)
from physai.sdk.transport.lease import LeaseClaim, LeaseStage
from physai.transport.binding import load_binding
from physai.transport.dds.codec import cdr
from physai.transport.dds.codec.messages import DEFINITIONS
from physai.transport.dds.commanders import ClaimMessage
from physai.transport.udp.packet import CRC, Kind, PacketReader, PacketWriter, packet_layout

HASH = "5" * 64
TIME = "2026-11-21T12:00:00Z"
KINDS = tuple(DEFINITIONS)
RECORDS = (Marker, State, RobotIdentity, HealthLimits)


def _records() -> Sequence[bytes]:
    marker = Marker(
        bundle_sha256=HASH, bundle_id=HASH, version=3, task="push", robot="arm", contract_fingerprint=HASH,
        control_dt=0.01, signers=("publisher 3f",), verdict_expires=TIME, unsafe_no_verdict=False, installed=TIME,
        runtime=InferenceRuntime(backend="onnxruntime", member="policy.onnx", versions={"onnxruntime": "1.20"}),
        self_test=SelfTest(
            golden_states=2, golden_worst=0.1, ticks=9, tick_p50_s=0.1, tick_p99_s=0.1, tick_max_s=0.1, deadline_s=0.1
        ),
        files={"bundle": SlotFile(sha256=HASH, size=3)},
    )  # fmt: skip
    trial = VersionTrial(slot="a", previous="b", bundle_sha256=HASH, version=3, started=TIME, boot_id="x")
    state = State(trial=trial, events=(SlotEvent(time=TIME, kind="activated", version=3),), rejected=(HASH,))
    return [encode(marker), encode(state), encode(RobotIdentity(robot="arm")), encode(HealthLimits())]


def _sealed(data: bytes) -> bytes:
    """The record with the seal of its text as it now is."""
    return seal(data.partition(b"\n")[0])


def _record(data: bytes) -> object:
    """A record as each of the four kinds; the right one for whatever it is will be among them."""
    refusals: list[SlotError] = []
    for model in RECORDS:
        try:
            return decode(cast("Any", model), data, source="record")
        except SlotError as error:
            refusals.append(error)
    raise refusals[0]


@cache
def _reader() -> PacketReader:
    from tests.harness.fixtures.sample import sample_contract

    return PacketReader(tuple(packet_layout(sample_contract(), kind) for kind in Kind))


def _packet(data: bytes) -> object:
    reader = _reader()
    part = data[: len(reader.room)]
    reader.room[: len(part)] = part
    return reader.read(len(part))


def _packets() -> Sequence[bytes]:
    from tests.harness.fixtures.sample import sample_contract

    found: list[bytes] = []
    for kind in Kind:
        layout = packet_layout(sample_contract(), kind)
        writer = PacketWriter(layout)
        vectors: dict[str, Any] = {name: np.zeros(part.stop - part.start) for name, part in layout.slices.items()}
        writer.write(vectors, 12345)
        found.append(bytes(writer.data))
    return found


def _with_crc(data: bytes) -> bytes:
    body = data[: -CRC.size]
    return body + struct.pack("<I", zlib.crc32(body))


def _cdr(data: bytes) -> object:
    """The first byte says which message the others are."""
    return cdr.decode(KINDS[data[0] % len(KINDS)], data[1:]) if data else None


def _cdr_messages() -> Sequence[bytes]:
    filled: dict[str, dict[str, Any]] = {
        "sensor_msgs/msg/JointState": {"name": ["a", "b"], "position": [1.0, 2.0], "velocity": [0.5, 0.5]},
        "std_msgs/msg/String": {"data": "hello"},
        "trajectory_msgs/msg/JointTrajectory": {"joint_names": ["a"], "points": [{"positions": [1.0]}]},
        "std_msgs/msg/Float64MultiArray": {"data": [1.0, 2.0]},
    }
    return [bytes([i]) + bytes(cdr.encode(kind, filled.get(kind, {}))[0]) for i, kind in enumerate(KINDS)]


def _claim() -> bytes:
    return (
        ClaimMessage(LeaseClaim("host/1/ab", LeaseStage.HOLDS, 3), "owner", frozenset({"/a", "/b"})).encode().encode()
    )


def _counters() -> Sequence[bytes]:
    path = FOLDER / "made.health"
    with HealthWriter(path, bundle_sha256=HASH, now_ns=1) as writer:
        writer.tick(2)
        writer.fault(3, "fell")
    return [path.read_bytes()]


def _counted(data: bytes) -> bytes:
    return data[:12] + struct.pack("<I", zlib.crc32(data[16:])) + data[16:]


@cache
def _parameters_file() -> Any:
    return load_script(Path(__file__).parents[2] / "ros/colcon/physai_ros/physai_ros/parameters_file.py")


@cache
def _control() -> Path:
    """A runtime's control socket; its thread lives as long as this process."""
    path = FOLDER / "control"
    ControlSocket(path, CommandQueue(), lambda: {"state": "RUNNING"}).start()
    return path


def _request(data: bytes) -> object:
    """Sends a datagram; the runtime must answer the next one all the same."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller:
        caller.sendto(data[:60_000], str(_control()))
    return tell(_control(), "status")


def _answer(data: bytes) -> object:
    """A runtime that answers so."""
    path = FOLDER / "odd-control"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as runtime:
        runtime.bind(str(path))

        def serve() -> None:
            sender = runtime.recvfrom(256)[1]
            runtime.sendto(data[:60_000], sender)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return tell(path, "status")
        finally:
            thread.join()


BINDING = Path(__file__).parents[2] / "deploy_jetson/physai/transport/bindings/ur10e.yaml"
FLEET = b"""hosts:
- cell-1
- jetson@cell-2:2222
- {host: cell-3, root: /data/physai}
canaries: [cell-1]
parallel: 4
max_failure_share: 0.1
"""
PARAMETERS = (
    b"/**:\n  ros__parameters: {root: /a}\narm:\n  physai_policy:\n    ros__parameters: {root: /b, rate: 10.0}\n"
)

TARGETS = (
    Target("recipe", parse_recipe, lambda: [json.dumps({"policy.onnx": HASH, "manifest.json": HASH}).encode()]),
    Target("upload", lambda data: BundleUpload.open(data, source="x").offer(), lambda: [bundle()]),
    Target(
        "flash-line", lambda data: Offer.parse(decode_line(data)), lambda: [_offer()], finish=lambda data: _line(data)
    ),
    Target("fleet", from_file("fleet.yaml", load_fleet), lambda: [FLEET], weight=0.1, max_s=5.0),
    Target("binding", from_file("binding.yaml", load_binding), lambda: [BINDING.read_bytes()], weight=0.1, max_s=5.0),
    Target("record", _record, _records, finish=_sealed),
    Target("health", from_file("health", read_counters), _counters, finish=_counted),
    Target("packet", _packet, _packets, finish=_with_crc),
    Target("cdr", _cdr, _cdr_messages),
    Target("claim", lambda data: ClaimMessage.decode(data.decode("utf-8", "surrogateescape")), lambda: [_claim()]),
    Target("request", _request, lambda: [b"stop", b"heartbeat", b"record", b"reset"], weight=0.3),
    Target("answer", _answer, lambda: [b'{"accepted": "stop"}', b'{"policy": "no", "state": {"x": [1]}}'], weight=0.3),
    Target(
        "ros-parameters",
        from_file("params.yaml", lambda path: _parameters_file().root_in(str(path), "/arm/physai_policy")),
        lambda: [PARAMETERS],
        weight=0.1,
        max_s=5.0,
    ),
)


def _line(data: bytes) -> bytes:
    return data.replace(b"\n", b" ") + b"\n"


def _offer() -> bytes:
    return BundleUpload.open(bundle(), source="x").offer(wait_s=1.0).encode()
