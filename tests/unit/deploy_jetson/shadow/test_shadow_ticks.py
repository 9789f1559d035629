"""A shadow whose policy is the one that drives answers exactly what was sent."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from tests.harness.fixtures.local_robot import LocalRobot
from tests.harness.fixtures.sample import sample_contract, sample_policy

from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.loop.clocks import Clocks
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.deploy_jetson.runtime.shadow.shadow_meter import ShadowMeter
from physai.deploy_jetson.runtime.shadow.shadow_ticks import ShadowError, ShadowTicks, require_same_robot
from physai.deploy_jetson.telemetry.flight.flight_ring import Flight, FlightRing, FlightView
from physai.deploy_jetson.telemetry.flight.shadow_memory import ShadowTick
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.header import POLICY_FILE
from physai.sdk.safety import GuardState, Request
from physai.sdk.transport.protocol import Array

POLICIES = Path(__file__).parents[3] / "data" / "policies"
NAMES = sorted(folder.name for folder in POLICIES.iterdir() if (folder / POLICY_FILE).exists())
PERIODS = 120
EPOCH_NS = 1_790_000_000 * 10**9


def bound(data: bytes) -> BoundPolicy:
    engine = OnnxEngine(data, source="test")
    policy = BoundPolicy.onnx(data, engine.header, source="test")
    policy.warm_up()
    return policy


class Shaken(LocalRobot):
    """Its joints tremble a little once it is driven, so that the policy has something to answer."""

    shakes = False

    def poll(self) -> bool:
        fresh = super().poll()
        sample = self.sample()
        sample.fields["joint_pos"] += (
            self.shakes * 0.01 * np.sin(0.37 * sample.sequence + np.arange(len(self.position)))
        )
        return fresh


@dataclass
class Drive:
    """A tick of the runtime in virtual time, whose record is a flight recorder's memory."""

    data: bytes
    now_ns: int = 10**9
    number: int = 0
    sent: list[Mapping[str, Array] | None] = field(default_factory=list[Mapping[str, Array] | None])

    def __post_init__(self) -> None:
        self.policy = bound(self.data)
        self.contract = contract = self.policy.header.contract
        self.period_ns = round(contract.timing.control_dt * 1e9)
        wall = lambda: EPOCH_NS + self.now_ns  # noqa: E731
        self.robot = Shaken(now_ns=lambda: self.now_ns, wall_ns=wall)
        self.robot.open(contract)
        self.ring = FlightRing(contract, self.robot.sample(), PERIODS)
        clocks = Clocks(now_ns=lambda: self.now_ns, wall_ns=wall)
        self.tick = Tick(contract, self.robot, self.policy, self.ring, clocks=clocks)
        self.tick.activate()

    def run(self, request: Request | None = None) -> None:
        self.now_ns += self.period_ns
        self.tick.run(self.number, self.now_ns, 0, request or Request())
        if self.tick.policy.targets.block.any():
            # In virtual time nothing takes time; a record with 0 would say that the policy was not asked.
            last = self.ring.count - 1
            self.ring._ticks[last % (PERIODS + 1)]["inference_ns"] = int(self.asked())  # pyright: ignore[reportPrivateUsage]
        sent = self.tick.sent
        self.sent.append(None if sent is None else {name: values[0].copy() for name, values in sent.items()})
        self.number += 1

    def asked(self) -> bool:
        return self.tick.state == GuardState.RUN

    def start(self) -> None:
        """Measure for half a second, then start; the policy is asked from the next period on."""
        for _ in range(round(0.5 / self.contract.timing.control_dt)):
            self.run()
        self.run(Request(start=self.tick.read_back))
        assert self.tick.state == GuardState.RUN
        self.robot.shakes = True
        self.ring._ticks[(self.ring.count - 1) % (PERIODS + 1)]["inference_ns"] = 0  # pyright: ignore[reportPrivateUsage]

    def flight(self) -> Flight:
        return FlightView(self.ring.descriptor, self.contract, PERIODS).between(0, self.ring.count)


def answers(drive: Drive, shadow: ShadowTicks) -> dict[int, ShadowTick]:
    found: dict[int, ShadowTick] = {}
    flight = drive.flight()
    for tick, row in zip(flight.ticks, flight.rows, strict=True):
        answer = shadow.run(tick, row)
        if answer is not None:
            found[int(tick["tick"])] = answer
    return found


@pytest.mark.parametrize("name", ["pendulum", *NAMES])
def test_its_own_shadow_answers_what_was_sent(name: str) -> None:
    data = sample_policy(seed=3)[POLICY_FILE] if name == "pendulum" else (POLICIES / name / POLICY_FILE).read_bytes()
    drive = Drive(data)
    drive.start()
    for _ in range(40):
        drive.run()
    found = answers(drive, ShadowTicks(drive.contract, bound(data)))
    driven = [number for number in found if not found[number].intervened]
    assert len(found) >= 35
    assert len(driven) >= 20
    for number in driven:
        sent = drive.sent[number]
        assert sent is not None
        for output, values in found[number].targets.items():
            np.testing.assert_allclose(values, sent[output], rtol=0, atol=1e-6, err_msg=f"{output} in {number}")


def test_after_a_stop_it_begins_anew() -> None:
    data = sample_policy(seed=3)[POLICY_FILE]
    drive = Drive(data)
    drive.start()
    for _ in range(5):
        drive.run()
    drive.run(Request(least=GuardState.HOLD))
    for _ in range(3):
        drive.run()
    contract = drive.contract
    shadow, meter = (
        ShadowTicks(contract, bound(sample_policy(seed=4)[POLICY_FILE])),
        ShadowMeter(contract, contract, None),
    )
    flight = drive.flight()
    for tick, row in zip(flight.ticks, flight.rows, strict=True):
        meter.add(tick, row, shadow.run(tick, row))
    facts = meter.facts()
    assert facts["starts"] == 1
    assert 4 <= facts["ticks"] <= 6
    assert facts["divergence"][0]["greatest"] > 0.0
    assert facts["moments"][0]["fields"]["joint_pos"]


def test_a_sample_that_is_not_valid_and_a_shadow_that_comes_later_are_no_start() -> None:
    data = sample_policy(seed=3)[POLICY_FILE]
    drive = Drive(data)
    drive.start()
    for _ in range(20):
        drive.run()
    contract, flight = drive.contract, drive.flight()
    ticks = flight.ticks.copy()
    # In RUN, and not asked: the sample was too old.
    ticks["inference_ns"][-8] = 0
    started = [int(tick["state"]) for tick in ticks].index(GuardState.RUN)
    for first, starts in ((0, 1), (started + 3, 0)):
        shadow, meter = ShadowTicks(contract, bound(data)), ShadowMeter(contract, contract, None)
        for tick, row in zip(ticks[first:], flight.rows[first:], strict=True):
            meter.add(tick, row, shadow.run(tick, row))
        assert meter.facts()["starts"] == starts


def changed(**parts: object) -> PolicyContract:
    document = json.loads(sample_contract().model_dump_json())
    for path, value in parts.items():
        at, *rest = path.split("__")
        inner = document
        for step in [at, *rest][:-1]:
            inner = inner[int(step)] if step.isdigit() else inner[step]
        inner[[at, *rest][-1]] = value
    return parse_contract(json.dumps(document), source="test")


def test_another_period_is_refused_with_both() -> None:
    with pytest.raises(ShadowError, match=r"the shadow acts every 0.02 s, the policy that drives every 0.01 s"):
        require_same_robot(sample_contract(), sample_contract(slower=2.0))


def test_other_joints_are_refused_with_both() -> None:
    document = json.loads(sample_contract().model_dump_json())
    text = json.dumps(document).replace('"pivot"', '"hinge"')
    with pytest.raises(ShadowError, match="for the joints hinge, the policy that drives for pivot"):
        require_same_robot(sample_contract(), parse_contract(text, source="test"))


def test_a_command_that_the_runtime_does_not_have_is_refused_by_name() -> None:
    field_ = {"name": "speed", "size": 2, "unit": "m/s", "lower": [0.0, 0.0], "upper": [1.0, 1.0]}
    with pytest.raises(ShadowError, match=r"reads speed \(2 numbers\), which is missing in what this runtime records"):
        require_same_robot(sample_contract(), changed(command__fields=[field_]))


def test_a_policy_that_computes_nan_counts_as_unanswered_and_does_not_spread() -> None:
    """NaN in a sample: the policy is not asked for it, and answers again after it."""
    data = sample_policy(seed=3)[POLICY_FILE]
    drive = Drive(data)
    drive.start()
    for _ in range(10):
        drive.run()
    flight = drive.flight()
    rows = flight.rows.copy()
    rows[-5, 0] = np.nan
    contract = drive.contract
    shadow, meter = ShadowTicks(contract, bound(data)), ShadowMeter(contract, contract, None)
    for tick, row in zip(flight.ticks, rows, strict=True):
        meter.add(tick, row, shadow.run(tick, row))
    facts = meter.facts()
    assert facts["unanswered"] >= 1
    assert np.isfinite(facts["divergence"][0]["rms"])
    assert facts["ticks"] >= 5
