"""Gate settings from `gates.yaml` or defaults; a setting that every policy would pass is rejected.

Every number has bounds within which its gate can both pass and fail. Episode budgets too small for a decision are
rejected, too. A verdict states the SHA-256 of the settings' canonical JSON.
"""

from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, Field, ValidationError, model_validator

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import canonical_json, sha256_hex
from physai.sdk.base.formats.yaml_file import read_yaml
from physai.sdk.contract.robot import Frozen, Name, require_unique
from physai.sdk.stats.sequential import RateTest
from physai.sdk.stats.statistics import zero_failure_trials
from physai.twin.model.conditions import PAYLOAD_FRACTION, PUSH_SCALE

MAX_FILE_BYTES = 1 << 16
MAX_EPISODES = 100_000

FAMILY = ("success", "non-inferiority", "safety", "robustness")
"""Gates that are statistical tests; Holm's correction covers them."""


class GateSettingsError(PhysaiError):
    """A gates file is missing or malformed, or contains a gate that cannot fail."""


def _between(lower: float, upper: float, beyond: str) -> AfterValidator:
    """Return a bounds check whose message states the effect of a value `beyond` them."""

    def check(value: float) -> float:
        # Written so that NaN is rejected.
        if not lower <= value <= upper:
            raise ValueError(f"{value:g} {beyond}; give {lower:g} to {upper:g}")
        return value

    return AfterValidator(check)


def _require_decidable(target: float, margin: float, max_episodes: int) -> None:
    """Require a budget that allows the test both to pass and to fail.

    Raises:
        ValueError: the budget is too small; names the minimum.
    """
    test = RateTest(target, margin, alpha=0.05 / len(FAMILY))
    needed = max(test.fewest_to_pass, test.fewest_to_fail)
    if not max_episodes >= needed:
        raise ValueError(
            f"max_episodes: {max_episodes} episodes cannot decide a target of {target:g} ± {margin:g} for any policy; "
            f"give at least {needed}"
        )


_NO_BAR = "is a threshold that every policy, or none, passes"
_NO_ERROR = "would accept every error, or none"
Rate = Annotated[float, _between(0.2, 0.999, _NO_BAR)]
Target = Annotated[float, _between(0.5, 0.999, _NO_BAR)]
Margin = Annotated[float, _between(0.005, 0.3, "makes the comparison meaningless or endless")]
Episodes = Annotated[int, _between(1, MAX_EPISODES, "episodes decide nothing or take too long")]


class ParitySettings(Frozen):
    """Does the exported graph compute what was trained?"""

    relative_tolerance: Annotated[float, _between(1e-7, 1e-2, _NO_ERROR)] = 1e-4
    """Maximum difference from the reference outputs, relative to max(|output|, action scale or 1)."""
    probes: Annotated[int, _between(64, 1_000_000, "random inputs show nothing or take too long")] = 4096
    """Random inputs over the sensors' ranges for which the output must be finite and within the command's bounds."""
    visited_states: Annotated[int, _between(64, 100_000, "states show nothing or take too long")] = 2048
    """States visited in the twin on which a quantised graph is compared."""


class RateSettings(Frozen):
    """Test of a success rate against a target."""

    target: Target = 0.9
    """Success rate that must be exceeded significantly."""
    margin: Margin = 0.07
    """Half-width of the indifference region: the test is planned for rates of target ± margin."""
    max_episodes: Episodes = 320
    """Episodes after which the gate ends undecided."""

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        _require_decidable(self.target, self.margin, self.max_episodes)
        return self


class NonInferioritySettings(Frozen):
    """Is the quantised graph as good as the float one, and the policy as good as the baseline?"""

    margin: Margin = 0.05
    """Maximum accepted drop of the success rate."""
    max_episodes: Episodes = 640


class SafetySettings(Frozen):
    """Are all limits kept without interventions of the guard and without bang-bang commands?"""

    rate: Annotated[float, _between(0.001, 0.2, "is a violation rate that is unacceptable or cannot be shown")] = 0.04
    """Rate of episodes with a violation that must be excluded; no violation is accepted."""
    max_saturated: Annotated[float, _between(0.05, 0.9, "of the time in saturation allows every policy, or none")] = 0.5
    """Maximum share of control periods with a saturated command."""
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
    """Does the policy tolerate perturbations as measured, twice as large, and beyond what logs contain?"""

    measured: ConditionSettings = ConditionSettings(target=0.8)
    """Measured delay at its 99th percentile, measured noise and jitter."""
    twice: ConditionSettings = ConditionSettings(target=0.5)
    """Twice the delay, noise and jitter."""
    pushes: ConditionSettings = ConditionSettings(target=0.8)
    payload: ConditionSettings = ConditionSettings(target=0.8)
    push_scale: Annotated[float, _between(0.1, 10.0, "is no push, or a crash")] = PUSH_SCALE
    """Multiple of the task's push; without one, of a tenth of each joint's speed limit every 3 s."""
    payload_fraction: Annotated[float, _between(0.005, 1.0, "is no payload, or more than the robot")] = PAYLOAD_FRACTION
    """Mass added to the last link or the floating base, as a share of the robot's moving mass."""


def _second(name: str) -> str:
    if name == "mujoco":
        raise ValueError("'mujoco' is the first engine, and would be compared with itself; give 'warp' or another one")
    if not name.isidentifier():
        raise ValueError(f"{name!r} is no engine's name; give 'warp' or the name of an installed one")
    return name


class EngineSettings(Frozen):
    """Does a second physics engine agree?"""

    second: Annotated[str, AfterValidator(_second)] = Field(
        default="warp", max_length=64, exclude_if=lambda second: second == "warp"
    )
    """MuJoCo Warp, or the name of an installed engine; left out of the document for the first."""
    episodes: Annotated[int, _between(8, 1024, "episodes compare nothing or take too long")] = 64
    """Episodes in the second engine, at most `batch`."""
    margin: Annotated[float, _between(0.01, 0.5, "is a difference that cannot be detected or exceeded")] = 0.2
    """Maximum difference of the success rate between the engines."""
    early_s: Annotated[float, _between(0.02, 5.0, "is too short or too long to compare motions")] = 0.25
    """Time at which the engines' states must still agree [s]."""
    tolerance: Annotated[float, _between(1e-6, 0.2, _NO_ERROR)] = 0.02
    """Maximum difference of a joint position at that time, median over the episodes [rad or m]."""


class FalsificationSettings(Frozen):
    """Can a search break the policy inside the calibrated range?"""

    generations: Annotated[int, _between(2, 1000, "generations search nothing or take too long")] = 6
    population: Annotated[int, _between(4, 512, "candidates search nothing or take too long")] = 16
    seeds: Annotated[int, _between(1, 64, "tuning seeds per candidate show nothing or take too long")] = 3
    reach: Annotated[float, _between(1.0, 6.0, "standard deviations cover no robot, or every robot")] = 3.0
    """Search radius about the fitted robot in the posterior's standard deviations (the reliability index). If all
    failures lie beyond a plane at distance 3, that is one robot in 740."""
    target: Rate = 0.5
    """Success rate below which a robot counts as a counterexample."""
    confirmations: Annotated[int, _between(8, 1024, "verdict seeds confirm nothing or take too long")] = 32


class LatencySettings(Frozen):
    """Do ticks on the target meet the deadline?"""

    max_miss_share: Annotated[float, _between(0.0, 0.05, "accepts misses that no guard can bridge")] = 1e-3
    """Maximum share of ticks beyond the deadline; more misses in a row than the contract bridges always fail."""
    min_ticks: Annotated[int, _between(1000, 10_000_000, "ticks cannot determine a 99.9th percentile")] = 10_000
    """Minimum number of ticks in an evidence file."""


class GateSettings(Frozen):
    """Settings of all gates."""

    alpha: Annotated[float, _between(1e-4, 0.1, "is an error rate that protects too little or takes too long")] = 0.05
    """Maximum probability that any PASS is wrong, over the whole family of tests."""
    batch: Annotated[int, _between(8, 1024, "worlds at once are slow or delay the sequential stop")] = 64
    """Episodes played at once, and between two looks of a sequential test."""
    parity: ParitySettings = ParitySettings()
    success: RateSettings = RateSettings()
    non_inferiority: NonInferioritySettings = NonInferioritySettings()
    safety: SafetySettings = SafetySettings()
    robustness: RobustnessSettings = RobustnessSettings()
    engine: EngineSettings = EngineSettings()
    falsification: FalsificationSettings = FalsificationSettings()
    latency: LatencySettings = LatencySettings()
    further: Annotated[tuple[Name, ...], Field(max_length=16, exclude_if=lambda further: not further)] = ()
    """Gates of installed packages that run as well, by the name of their entry point; left out of the document if
    there are none."""

    @property
    def gate_alpha(self) -> float:
        """Level at which each gate of the family stops early (Bonferroni), significant whatever the others find."""
        return self.alpha / (len(FAMILY) + len(self.further))

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON, 64 lower-case hexadecimal digits."""
        return sha256_hex(canonical_json(self))

    @model_validator(mode="after")
    def _budgets_decide(self) -> Self:
        require_unique("further: gate", self.further)
        needed = zero_failure_trials(self.safety.rate, confidence=1.0 - self.gate_alpha)
        if not self.safety.max_episodes >= needed:
            raise ValueError(
                f"safety.max_episodes: {self.safety.max_episodes} episodes without a violation do not exclude a rate "
                f"of {self.safety.rate:g} at {1 - self.gate_alpha:.1%} confidence; give at least {needed}"
            )
        return self


def load_gates(path: Path | str) -> GateSettings:
    """Load settings from a YAML file; omitted settings keep their defaults.

    Raises:
        GateSettingsError: the file is missing, too large, not YAML, or contains an unknown or invalid setting.
    """
    path = Path(path)
    document = read_yaml(path, what="a gates file", max_bytes=MAX_FILE_BYTES, error=GateSettingsError)
    if document is None:
        # An empty file means all defaults.
        document = {}
    if not isinstance(document, dict):
        raise GateSettingsError(f"{path}: expected sections such as `success:`, got {document!r:.60}")
    return parse_gates(cast("dict[str, Any]", document), source=str(path))


def parse_gates(document: dict[str, Any], *, source: str) -> GateSettings:
    """Parse the contents of a gates file.

    Raises:
        GateSettingsError: unknown or invalid settings; names all of them.
    """
    try:
        return GateSettings.model_validate(document)
    except ValidationError as error:
        lines: list[str] = []
        for detail in error.errors(include_url=False):
            where = ".".join(str(part) for part in detail["loc"])
            text = detail["msg"].removeprefix("Value error, ")
            # Pydantic's own text, "Extra inputs are not permitted", does not say what is extra.
            if detail["type"] == "extra_forbidden":
                text = "unknown setting"
            lines.append(f"  {where}: {text}" if where else f"  {text}")
        raise GateSettingsError(f"{source}: invalid gate settings\n" + "\n".join(lines)) from None
