"""Ticks of the sample's robot for the flight recorder, and segments read by the `mcap` library and the codec alone."""

import os
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from mcap.reader import make_reader
from tests.harness.fixtures.sample import sample_contract

from physai.deploy_jetson.telemetry.flight.file import METADATA, TICK_TOPIC
from physai.deploy_jetson.telemetry.flight.flight_ring import FlightRing, FlightView
from physai.sdk.base.formats.column_blocks import decode_block
from physai.sdk.transport.protocol import empty_sample

CONTRACT = sample_contract()
PERIOD_S = CONTRACT.timing.control_dt
PERIOD_NS = round(PERIOD_S * 1e9)
DEADLINE_NS = round(CONTRACT.timing.deadline_s * 1e9)
EPOCH_NS = 1_790_000_000 * 10**9


@dataclass
class Read:
    """A file, by the `mcap` library and the codec alone."""

    metadata: dict[str, str]
    columns: dict[str, dict[str, npt.NDArray[Any]]]
    """By topic and name."""
    steps: dict[str, dict[str, float | None]]

    @property
    def driven(self) -> list[int]:
        """Driven time of its ticks, in ticks."""
        first = round(float(self.metadata["driven_s"]) / PERIOD_S)
        ticks = self.columns[TICK_TOPIC]["tick"]
        return (ticks - ticks[0] + first).tolist()


def read(data: bytes) -> Read:
    reader = make_reader(BytesIO(data), validate_crcs=True)
    (metadata,) = reader.iter_metadata()
    assert metadata.name == METADATA
    blocks: dict[str, list[Any]] = {}
    for schema, channel, message in reader.iter_messages():
        assert schema is not None
        assert channel.message_encoding == "physai.columns"
        blocks.setdefault(channel.topic, []).append(decode_block(message.data))
    columns = {
        topic: {name: np.concatenate([one.columns[name] for one in found]) for name in found[0].columns}
        for topic, found in blocks.items()
    }
    return Read(metadata.metadata, columns, {topic: dict(found[0].steps) for topic, found in blocks.items()})


class PlainRun:
    """Ticks without a recorder."""

    def __init__(self) -> None:
        self.sample = empty_sample(CONTRACT)
        self.ring = FlightRing(CONTRACT, self.sample, 100)
        self.view = FlightView(os.dup(self.ring.descriptor), CONTRACT, 100)
        self.ring.close()

    def push(self, position: float, target: float | None, *, new: bool = True, late_ns: int = 7000) -> None:
        number = self.ring.count
        due = number * PERIOD_NS
        self.sample.fields["joint_pos"][:] = position
        self.sample.stamp_ns = EPOCH_NS + due - 1000 if new or not number else self.sample.stamp_ns
        record = (number, due + DEADLINE_NS, due, self.sample.stamp_ns, 1, 1, 1, 1, late_ns, 0, 0, False, False)
        self.ring.push(record, None if target is None else {"joint_effort_target": np.array([[target]])})


def plain_run(count: int) -> PlainRun:
    run = PlainRun()
    for number in range(count):
        run.push(0.1 * number, 0.2 * number)
    return run
