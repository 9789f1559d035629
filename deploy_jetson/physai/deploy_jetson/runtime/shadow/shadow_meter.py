"""Sums up the answers of a shadow, in constant memory."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from physai.deploy_jetson.telemetry.flight.flight_ring import RowLayout
from physai.deploy_jetson.telemetry.flight.shadow_memory import ShadowTick
from physai.deploy_jetson.telemetry.histogram import Histogram
from physai.deploy_jetson.telemetry.meter import BITS
from physai.deploy_jetson.ticks.reasons import INTERVENTIONS
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import CommandField
from physai.sdk.evidence.shadow import (
    MAX_MOMENTS,
    BeyondJudged,
    ComputeTimes,
    DivergenceMoment,
    JointDivergence,
)
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.policy.golden import Golden
from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import Array

COMMAND_BINS = 10
"""Parts into which the range of each element of a command is divided."""
_MOST_BEYOND = 256
MOST_ELEMENTS = 64
"""Elements of a field up to which a moment has it."""


class ShadowMeter:
    """Statistics of one run of a shadow; not thread-safe."""

    def __init__(self, active: PolicyContract, contract: PolicyContract, golden: Golden | None) -> None:
        """Begin without ticks.

        Args:
            active: contract of the policy that drives.
            contract: of the shadow.
            golden: golden states of the shadow, the range that was judged; None if the bundle has none.
        """
        self._layout = RowLayout.of(active)
        self._deadline_ns = round(contract.timing.deadline_s * 1e9)
        self._divergence = [
            _Joint(term.target_name, joint, number)
            for term in contract.action.terms
            for number, joint in enumerate(term.joints)
            if _place(active, term.target_name, joint) is not None
        ]
        self._places = [_place(active, one.output, one.joint) for one in self._divergence]
        self._commands = [_Coverage(field) for field in contract.command.fields]
        self._ranges = [] if golden is None else _judged(contract, golden)
        self._times = Histogram()
        self.ticks = self.starts = self.unanswered = self.late = self.stops = 0
        self._interventions: dict[str, int] = {}
        self._began = datetime.now(UTC)
        self._ran = True

    def add(self, tick: np.void, row: Array, answer: ShadowTick | None) -> None:
        """Count one tick; `answer` is None where the policy that drives was not asked."""
        runs = int(tick["state"]) == GuardState.RUN
        # Not where the shadow was started while the policy drove, or a single sample was not valid.
        self.starts += runs and not self._ran
        self._ran = runs
        if answer is None:
            return
        computed = all(np.isfinite(values).all() for values in answer.targets.values())
        self.ticks += computed
        self.unanswered += not computed
        self._times.add(np.array([answer.compute_ns], np.int64))
        self.late += answer.compute_ns > self._deadline_ns
        self.stops += answer.state > GuardState.RUN
        if answer.intervened:
            self._count(answer.reasons)
        for coverage in self._commands:
            coverage.add(row[self._layout.fields[coverage.name]])
        for judged in self._ranges:
            judged.add(row[self._layout.fields[judged.field]])
        if computed:
            self._compare(tick, row, answer)

    def lost(self, ticks: int) -> None:
        """Count ticks to which the shadow came too late."""
        self.unanswered += ticks

    def _count(self, reasons: int) -> None:
        causes = [name for name, bit in BITS.items() if reasons & INTERVENTIONS & bit] or ["limited"]
        for cause in causes:
            self._interventions[cause] = self._interventions.get(cause, 0) + 1

    def _compare(self, tick: np.void, row: Array, answer: ShadowTick) -> None:
        for joint, place in zip(self._divergence, self._places, strict=True):
            assert place is not None
            sent = float(row[self._layout.targets[joint.output]][place])
            if math.isfinite(sent) and joint.add(float(answer.targets[joint.output][joint.number]), sent):
                joint.moment = (int(tick["tick"]), int(tick["sample_stamp_ns"]), row.copy())

    def facts(self) -> dict[str, Any]:
        """Return the fields of `ShadowEvidence` that are measured, for JSON."""
        return {
            "began": utc_text(self._began),
            "ended": utc_text(datetime.now(UTC)),
            "ticks": self.ticks,
            "starts": self.starts,
            "unanswered": self.unanswered,
            "late": self.late,
            "stops": self.stops,
            "command_share": self._command_share(),
            "interventions": dict(sorted(self._interventions.items())),
            "compute_s": self._compute_times().model_dump(),
            "divergence": [joint.record().model_dump() for joint in self._divergence],
            "moments": [moment.model_dump() for moment in self._moments()],
            "beyond": [one.model_dump() for judged in self._ranges for one in judged.records()][:_MOST_BEYOND],
        }

    def _command_share(self) -> float:
        shares = [share for coverage in self._commands for share in coverage.shares()]
        return sum(shares) / len(shares) if shares else 1.0

    def _compute_times(self) -> ComputeTimes:
        if not self._times.count:
            return ComputeTimes(p50=0.0, p99=0.0, greatest=0.0)
        p50, p99 = self._times.quantiles_ns([0.5, 0.99])
        return ComputeTimes(p50=p50 * 1e-9, p99=p99 * 1e-9, greatest=self._times.max_ns * 1e-9)

    def _moments(self) -> list[DivergenceMoment]:
        worst = sorted(self._divergence, key=lambda joint: -joint.greatest)[:MAX_MOMENTS]
        return [joint.describe(self._layout.fields) for joint in worst if joint.moment is not None]


class _Joint:
    """Divergence of one command of one joint."""

    def __init__(self, output: str, joint: str, number: int) -> None:
        self.output, self.joint, self.number = output, joint, number
        self.greatest = self._sum = self._squares = 0.0
        self.moment: tuple[int, int, Array] | None = None
        self._pair = (0.0, 0.0)
        # In units of 1e-9, as its buckets are whole numbers.
        self._sizes = Histogram()

    def add(self, shadow: float, sent: float) -> bool:
        """Count a difference; return whether it is the greatest so far."""
        difference = shadow - sent
        self._sum += difference
        self._squares += difference * difference
        self._sizes.add(np.array([min(abs(difference), 1e8) * 1e9], np.int64))
        if abs(difference) < self.greatest or (self.moment is not None and abs(difference) == self.greatest):
            return False
        self.greatest, self._pair = abs(difference), (shadow, sent)
        return True

    def record(self) -> JointDivergence:
        count = max(1, self._sizes.count)
        p99 = self._sizes.quantiles_ns([0.99])[0] * 1e-9 if self._sizes.count else 0.0
        return JointDivergence(
            output=self.output,
            joint=self.joint,
            mean=self._sum / count,
            rms=math.sqrt(self._squares / count),
            p99=min(p99, self.greatest),
            greatest=self.greatest,
        )

    def describe(self, fields: Mapping[str, slice]) -> DivergenceMoment:
        assert self.moment is not None
        tick, stamp_ns, row = self.moment
        values = {
            name: tuple(value if math.isfinite(value) else None for value in row[part].tolist())
            for name, part in fields.items()
            # An image or a scan would not fit into a message.
            if part.stop - part.start <= MOST_ELEMENTS
        }
        return DivergenceMoment(
            tick=tick,
            stamp_s=stamp_ns * 1e-9,
            output=self.output,
            joint=self.joint,
            shadow=self._pair[0],
            sent=self._pair[1],
            fields=values,
        )


class _Coverage:
    """Parts of a command's range in which there were ticks."""

    def __init__(self, field: CommandField) -> None:
        self.name = field.name
        self._lower, self._upper = np.array(field.lower), np.array(field.upper)
        self._visited = np.zeros((field.size, COMMAND_BINS), bool)

    def add(self, values: Array) -> None:
        if not np.isfinite(values).all():
            return
        span = np.where(self._upper > self._lower, self._upper - self._lower, 1.0)
        # Beyond the range the policy gets its end, as the runtime cuts commands.
        share = np.clip((values - self._lower) / span, 0.0, 1.0)
        bins = np.minimum((share * COMMAND_BINS).astype(int), COMMAND_BINS - 1)
        self._visited[np.arange(len(bins)), bins] = True

    def shares(self) -> list[float]:
        """Share of each element that can vary."""
        varies = self._upper > self._lower
        return (self._visited.mean(axis=1))[varies].tolist()


class _Range:
    """Values of an input against those that were judged."""

    def __init__(self, field: str, lower: Array, upper: Array) -> None:
        self.field, self._lower, self._upper = field, lower, upper
        self._least, self._most = np.full_like(lower, np.inf), np.full_like(upper, -np.inf)
        self._count = np.zeros(len(lower), np.int64)

    def add(self, values: Array) -> None:
        self._least = np.fmin(self._least, values)
        self._most = np.fmax(self._most, values)
        self._count += (values < self._lower) | (values > self._upper)

    def records(self) -> list[BeyondJudged]:
        return [
            BeyondJudged(
                field=self.field,
                element=element,
                ticks=int(self._count[element]),
                lower=float(self._least[element]),
                upper=float(self._most[element]),
                judged_lower=float(self._lower[element]),
                judged_upper=float(self._upper[element]),
            )
            for element in np.flatnonzero(self._count).tolist()
        ]


def _judged(contract: PolicyContract, golden: Golden) -> list[_Range]:
    names = {field.name for field in (*contract.robot.sensors, *contract.command.fields)}
    return [
        _Range(name, values.min(axis=0).astype(np.float64), values.max(axis=0).astype(np.float64))
        for name, values in golden.inputs.items()
        if name in names
    ]


def _place(contract: PolicyContract, output: str, joint: str) -> int | None:
    for term in contract.action.terms:
        if term.target_name == output and joint in term.joints:
            return term.joints.index(joint)
    return None
