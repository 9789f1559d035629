"""Gate settings, from `gates.yaml` or by default. A setting that would let every policy pass is refused.

Every number has bounds within which its gate can both pass and fail; budgets of episodes that could decide nothing
are refused too. The settings are identified by the SHA-256 of their canonical JSON, which the verdict states.
"""

from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, ValidationError, model_validator

from physai.sdk.base.canonical import canonical_json, sha256_hex
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.yaml_file import read_yaml
from physai.sdk.contract.robot import Frozen
from physai.sim.stats.sequential import RateTest
from physai.sim.stats.statistics import zero_failure_trials
from physai.sim.twin.conditions import PAYLOAD_FRACTION, PUSH_SCALE

MAX_FILE_BYTES = 1 << 16
MAX_EPISODES = 100_000

FAMILY = ("success", "non-inferiority", "safety", "robustness")
"""Gates whose answer is a statistical test; Holm's correction runs over them."""


class GateSettingsError(PhysaiError):
    """A gates file is missing, malformed, or holds a gate that could not fail."""


def _between(lower: float, upper: float, beyond: str) -> AfterValidator:
    """Bounds whose message says what a value beyond them would do."""

    def check(value: float) -> float:
        if not lower <= value <= upper:
            raise ValueError(f"{value:g} {beyond}; give {lower:g} to {upper:g}")
        return value

    return AfterValidator(check)


def _require_decidable(target: float, margin: float, max_episodes: int) -> None:
    """Refuses a test that could not end either way, whatever the policy does.

    Raises:
        ValueError: with the least number of episodes that could.
    """
    test = RateTest(target, margin, alpha=0.05 / len(FAMILY))
    needed = max(test.fewest_to_pass, test.fewest_to_fail)
    if not max_episodes >= needed:
        raise ValueError(
            f"max_episodes: {max_episodes} episodes cannot decide a target of {target:g} ± {margin:g}, whatever the "
            f"policy does; give at least {needed}"
        )


_NO_BAR = "is a bar that any policy, or none, can take"
_NO_ERROR = "would overlook any error, or none"
Rate = Annotated[float, _between(0.2, 0.999, _NO_BAR)]
Target = Annotated[float, _between(0.5, 0.999, _NO_BAR)]
Margin = Annotated[float, _between(0.005, 0.3, "makes the comparison meaningless, or without end")]
Episodes = Annotated[int, _between(1, MAX_EPISODES, "episodes decide nothing, or never end")]


class ParitySettings(Frozen):
    """Does the exported graph compute what was trained?"""

    relative_tolerance: Annotated[float, _between(1e-7, 1e-2, _NO_ERROR)] = 1e-4
    """Greatest difference to the recorded answers, relative to max(|answer|, action scale or 1)."""
    probes: Annotated[int, _between(64, 1_000_000, "random inputs show nothing, or never end")] = 4096
    """Random inputs over the sensors' ranges for which the answer must be finite and within the command's bounds."""
    visited_states: Annotated[int, _between(64, 100_000, "states show nothing, or never end")] = 2048
    """States visited in the twin in which a quantised graph is compared."""


class RateSettings(Frozen):
    """A success rate held against a target."""

    target: Target = 0.9
    """Success rate that must be shown to be exceeded."""
    margin: Margin = 0.07
    """The test is planned for policies this much better than the target, and as much worse."""
    max_episodes: Episodes = 320
    """Episodes after which the gate gives up undecided."""

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        _require_decidable(self.target, self.margin, self.max_episodes)
        return self


class NonInferioritySettings(Frozen):
    """Is the quantised graph as good as the float one, and the policy as good as the baseline?"""

    margin: Margin = 0.05
    """Greatest loss of success rate that is accepted."""
    max_episodes: Episodes = 640


class SafetySettings(Frozen):
    """No limit broken, no intervention of the guard, no command that only switches between its bounds."""

    rate: Annotated[float, _between(0.001, 0.2, "is a rate of violations that nobody may accept, or prove")] = 0.04
    """Rate of episodes with a violation that must be excluded; not one violation is accepted."""
    max_saturated: Annotated[float, _between(0.05, 0.9, "of the time at the bounds is any policy, or none")] = 0.5
    """Greatest share of control periods with a command at its bound."""
    max_episodes: Episodes = 320


class ConditionSettings(Frozen):
    """One perturbation of the robustness gate."""

    target: Rate
    margin: Margin = 0.1
    max_episodes: Episodes = 192

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        _require_decidable(self.target, self.margin, self.max_episodes)
        return self


class RobustnessSettings(Frozen):
    """Perturbations as measured on the robot, twice as large, and such as no log tells of."""

    measured: ConditionSettings = ConditionSettings(target=0.8)
    """Measured delay at its 99th percentile, measured noise and jitter."""
    twice: ConditionSettings = ConditionSettings(target=0.5)
    """Twice the delay, noise and jitter."""
    pushes: ConditionSettings = ConditionSettings(target=0.8)
    payload: ConditionSettings = ConditionSettings(target=0.8)
    push_scale: Annotated[float, _between(0.1, 10.0, "is no push, or a crash")] = PUSH_SCALE
    """Times the task's own push; where it has none, times a tenth of each joint's speed limit every 3 s."""
    payload_fraction: Annotated[float, _between(0.005, 1.0, "is no payload, or more than the robot")] = PAYLOAD_FRACTION
    """Mass added to the last link, or to a floating base, as a share of the robot's moving mass."""


class EngineSettings(Frozen):
    """Does a second physics engine say the same?"""

    episodes: Annotated[int, _between(8, 1024, "episodes compare nothing, or never end")] = 64
    """Episodes in the second engine, at most `batch`."""
    margin: Annotated[float, _between(0.01, 0.5, "is a difference that cannot be seen, or cannot be exceeded")] = 0.2
    """Greatest difference of success between the engines."""
    early_s: Annotated[float, _between(0.02, 5.0, "is too short or too long to compare motions")] = 0.25
    """Time after which the engines' states must still agree [s]."""
    tolerance: Annotated[float, _between(1e-6, 0.2, _NO_ERROR)] = 0.02
    """Greatest difference of a joint position then, the median over the episodes [rad or m]."""


class FalsificationSettings(Frozen):
    """Can a search break the policy inside the calibrated range?"""

    generations: Annotated[int, _between(2, 1000, "generations search nothing, or never end")] = 6
    population: Annotated[int, _between(4, 512, "candidates search nothing, or never end")] = 16
    seeds: Annotated[int, _between(1, 64, "tuning seeds per candidate tell nothing, or never end")] = 3
    reach: Annotated[float, _between(1.0, 6.0, "standard deviations hold no robot, or any robot")] = 3.0
    """Greatest distance of a searched robot from the fitted one, in the posterior's standard deviations: the
    reliability index. If what fails lies beyond a plane at this distance, that is one robot in 740 for 3."""
    target: Rate = 0.5
    """Success rate below which a point of the range counts as a counterexample."""
    confirmations: Annotated[int, _between(8, 1024, "verdict seeds confirm nothing, or never end")] = 32


class LatencySettings(Frozen):
    """Does a tick on the target end before its deadline?"""

    max_miss_share: Annotated[float, _between(0.0, 0.05, "accepts misses that no guard can bridge")] = 1e-3
    """Greatest share of ticks beyond the deadline; runs longer than the contract's reuse budget fail at once."""
    min_ticks: Annotated[int, _between(1000, 10_000_000, "ticks tell nothing of a 99.9th percentile")] = 10_000
    """Fewest ticks an evidence file must hold."""


class GateSettings(Frozen):
    """All gates."""

    alpha: Annotated[float, _between(1e-4, 0.1, "is a chance of a wrong verdict that is no protection, or no end")] = (
        0.05
    )
    """Greatest chance that any of the gates' passes is wrong, over the whole family."""
    batch: Annotated[int, _between(8, 1024, "worlds at once are slow, or hide the sequential stop")] = 64
    """Episodes played at once, after which the tests look."""
    parity: ParitySettings = ParitySettings()
    success: RateSettings = RateSettings()
    non_inferiority: NonInferioritySettings = NonInferioritySettings()
    safety: SafetySettings = SafetySettings()
    robustness: RobustnessSettings = RobustnessSettings()
    engine: EngineSettings = EngineSettings()
    falsification: FalsificationSettings = FalsificationSettings()
    latency: LatencySettings = LatencySettings()

    @property
    def gate_alpha(self) -> float:
        """Level at which each gate of the family stops, so that it stays significant whatever the others find."""
        return self.alpha / len(FAMILY)

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON, 64 lower-case hexadecimal digits."""
        return sha256_hex(canonical_json(self))

    @model_validator(mode="after")
    def _budgets_decide(self) -> Self:
        needed = zero_failure_trials(self.safety.rate, confidence=1.0 - self.gate_alpha)
        if not self.safety.max_episodes >= needed:
            raise ValueError(
                f"safety.max_episodes: {self.safety.max_episodes} episodes without a violation exclude a rate of "
                f"{self.safety.rate:g} at no {1 - self.gate_alpha:.1%} confidence; that takes {needed}"
            )
        return self


def load_gates(path: Path | str) -> GateSettings:
    """Settings from a YAML file; what it leaves out keeps its default, and an empty file keeps all.

    Raises:
        GateSettingsError: the file is missing, too large, no YAML, or names an unknown or senseless setting.
    """
    path = Path(path)
    document = read_yaml(path, what="a gates file", max_bytes=MAX_FILE_BYTES, error=GateSettingsError)
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise GateSettingsError(f"{path}: a gates file holds sections such as `success:`, got {document!r:.60}")
    return parse_gates(cast("dict[str, Any]", document), source=str(path))


def parse_gates(document: dict[str, Any], *, source: str) -> GateSettings:
    """Settings from what a gates file holds.

    Raises:
        GateSettingsError: an unknown or senseless setting; names every one.
    """
    try:
        return GateSettings.model_validate(document)
    except ValidationError as error:
        lines: list[str] = []
        for detail in error.errors(include_url=False):
            where = ".".join(str(part) for part in detail["loc"])
            text = detail["msg"].removeprefix("Value error, ")
            if detail["type"] == "extra_forbidden":
                text = "no such setting"
            lines.append(f"  {where}: {text}" if where else f"  {text}")
        raise GateSettingsError(f"{source}: these gates cannot be run\n" + "\n".join(lines)) from None
