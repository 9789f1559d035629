"""Closed-loop evidence of a twin: recordings of a policy on the robot against the same policy in the twin."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from physai.sdk.contract.robot import Finite, Frozen, Label, NonNegative
from physai.twin.model.twin_file import MAX_LOGS, LogRecord, Sha256

SIGNIFICANCE = 0.05
"""Probability of contradicting a right twin, over all deciding tests of a record together."""
POWER = 0.8
"""Probability with which a difference of the size stated as detectable would have been found."""
MAX_RECORDS = 64

Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**7)]

ClosedLoopVerdict = Literal["reproduced", "contradicted", "undecided"]
"""`undecided`: no relevant difference was found, but the recordings are too few, or the twin too uncertain, to find
one."""


class ClosedLoopTest(Frozen):
    """One property of the runs, tested."""

    name: Label
    """`success`, `time to success`, `trajectories`, `speed of joint1`"""
    unit: Label = ""
    real: Finite
    """Of the recorded runs."""
    twin: Finite | None
    """Of the twin's; None if none of them can be compared."""
    difference: Finite
    """Twin minus real; for trajectories, how much further the recorded ones are from the twin's than these from each
    other."""
    p_value: Share
    """Of a deciding test, adjusted for their number (weighted Bonferroni)."""
    margin: NonNegative
    """Difference up to which a twin counts as right, whatever the p-value."""
    detectable: NonNegative | None
    """Difference that would have been found with the probability `POWER`; None if none would have been."""
    needed: NonNegative
    """Greatest `detectable` with which finding nothing is evidence."""
    decides: bool = True
    """Whether the verdict depends on it; else it is for information."""

    @property
    def verdict(self) -> ClosedLoopVerdict:
        """Its verdict on the twin."""
        relevant = abs(self.difference) > self.margin
        if self.p_value < SIGNIFICANCE and relevant:
            return "contradicted"
        powerful = self.detectable is not None and self.detectable <= self.needed
        # A difference as great as one that had to be found is no agreement, even if chance may explain it.
        return "reproduced" if powerful and abs(self.difference) <= self.needed else "undecided"


class ClosedLoop(Frozen):
    """A policy's recorded runs and its runs in the twin, from the same starts."""

    twin_sha256: Sha256
    """Hash of the twin in which the policy was played, without its closed-loop records."""
    policy_sha256: Sha256
    contract_fingerprint: Sha256
    task: Annotated[str, Field(min_length=1, max_length=256)]
    criterion: Annotated[str, Field(max_length=512)] = ""
    """What counts as success, in words."""
    logs: Annotated[tuple[LogRecord, ...], Field(min_length=1, max_length=MAX_LOGS)]
    command_agreement: Share
    """Share of the control periods in which the policy, given the recorded measurements, commands what was recorded."""
    length_s: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
    """Length of a complete run [s]; shorter ones have failed."""
    real_successes: Count
    twin_successes: Count
    twin_runs: Count
    draws: Count
    """Draws of the twin's parameters; each plays one run per recording."""
    compared: Literal["succeeded", "failed"]
    """The runs whose times and trajectories were compared: those that ended like most recorded ones."""
    compared_runs: Count
    """Number of these among the recordings."""
    tests: Annotated[tuple[ClosedLoopTest, ...], Field(min_length=1, max_length=256)]
    seed: Count = 0

    @model_validator(mode="after")
    def _counts_what_there_is(self) -> Self:
        for part, whole, name in (
            (self.real_successes, len(self.logs), "successes in the recordings"),
            (self.compared_runs, len(self.logs), "compared recordings"),
            (self.twin_successes, self.twin_runs, "successes in the twin"),
        ):
            if not part <= whole:
                raise ValueError(f"{part} {name} of {whole}")
        return self

    @property
    def verdict(self) -> ClosedLoopVerdict:
        """`contradicted` if any deciding test says so, else `undecided` if any does."""
        verdicts = {test.verdict for test in self.tests if test.decides}
        if "contradicted" in verdicts:
            return "contradicted"
        return "undecided" if "undecided" in verdicts or not verdicts else "reproduced"

    def describe(self) -> str:
        """Return the verdict with its numbers, as one sentence without a full stop."""
        count = len(self.logs)
        rate = self.twin_successes / max(1, self.twin_runs)
        text = (
            f"closed loop, policy {self.policy_sha256[:12]} in {count} recordings: {self.verdict} "
            f"(success {self.real_successes} of {count} on the robot, {rate:.0%} in the twin)"
        )
        # What a contradiction leaves undecided does not matter.
        odd = [test for test in self.tests if test.decides and test.verdict == self.verdict != "reproduced"]
        return "; ".join([text, *(sentence(test) for test in odd)])


def sentence(test: ClosedLoopTest) -> str:
    """Return a test's result with both values and its power."""
    unit = f" {test.unit}" if test.unit else ""
    if test.twin is None:
        return f"{test.name}: no run of the twin can be compared with the recorded ones"
    if test.verdict == "undecided" and abs(test.difference) > test.needed:
        return (
            f"{test.name}: the difference of {test.difference:.3g}{unit} may be chance (p = {test.p_value:.2g}), but "
            f"at most {test.needed:.3g}{unit} would be agreement"
        )
    if test.verdict == "undecided":
        found = "no difference" if test.detectable is None else f"only differences above {test.detectable:.3g}{unit}"
        return f"{test.name}: these recordings would show {found}, {test.needed:.3g}{unit} are needed"
    values = f"{test.real:.3g} on the robot, {test.twin:.3g} in the twin{unit and ','}{unit}"
    if test.name in (TRAJECTORIES, OUTPUTS):
        values = f"{test.difference:.3g}{unit} apart"
    return f"{test.name}: {values} (p = {test.p_value:.2g}, {test.margin:.3g}{unit} would be negligible)"


SUCCESS, TIME, TRAJECTORIES, OUTPUTS = "success", "time", "trajectories", "speeds and commands"
"""Names of the deciding tests."""


def contradictions(records: tuple[ClosedLoop, ...], twin_sha256: str) -> list[str]:
    """Return why closed-loop records speak against a twin.

    Args:
        records: the twin's.
        twin_sha256: hash of the twin without them.
    """
    doubts = [record.describe() for record in records if record.verdict == "contradicted"]
    others = sum(record.twin_sha256 != twin_sha256 for record in records)
    if others:
        doubts.append(f"{others} of its closed-loop records are of another twin; test it again: physai sim closed-loop")
    return doubts
