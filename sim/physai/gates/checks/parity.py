"""Gate `parity`: does the exported graph compute what was trained, and the quantised one nearly the same?"""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from physai.gates.checks.contract import FINGERPRINT_NAME
from physai.gates.checks.gate import Context, Gate, GateFinding, Play, undecided
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.verdict import Cause, Measurement, VerdictOutcome
from physai.sdk.policy.header import GOLDEN_FILE, MAX_POLICY_BYTES, STATE_PREFIX, PolicyError, PolicyHeader
from physai.sim.engines.protocol import Array

PROBE_SEED = 0x9A0BE
UNLIMITED_POSITION = 10.0
"""Probed range of a joint without position limits [rad or m]."""
UNLIMITED_SPEED = 20.0
"""Probed range of a joint without a speed limit [rad/s or m/s]."""
BEYOND = 1.2
"""Probed range relative to the limits, which noise and overshoot may exceed."""
ROUNDING = 1e-5
"""Relative amount by which a float32 command may exceed its bound."""

Arrays = dict[str, Array]


class GoldenStatesError(PolicyError):
    """A golden file is damaged or belongs to another policy."""


class ParityGate(Gate):
    """Replays reference outputs, probes random inputs, and compares quantised with float on visited states."""

    name = "parity"
    question = "Does the exported graph compute what was trained?"
    rests_on_twin = False

    def method(self, context: Context) -> str:
        text = (
            f"Replays the trained policy's reference outputs ({GOLDEN_FILE}, recorded at export) in onnxruntime; "
            f"{context.settings.parity.probes} random inputs over the sensors' ranges must give finite commands within "
            "their bounds."
        )
        if "quantised" in context.subject.arms:
            text += (
                f" Compares the quantised with the float graph on {context.settings.parity.visited_states} states "
                "visited in the twin."
            )
        return text

    def threshold(self, context: Context) -> str:
        tolerance = context.subject.task.contract.safety.parity_tolerance
        text = f"relative difference at most {context.settings.parity.relative_tolerance:g}; every output finite"
        return text + f"; quantised command within {tolerance:g} of float [joint unit]"

    def play(self, context: Context) -> Play:
        finding = self._replay(context)
        probed = _probe(context)
        if probed is not None:
            finding = _worse(finding, probed)
        if "quantised" in context.subject.arms and finding.outcome is not VerdictOutcome.FAIL:
            condition = context.conditions["calibrated"]
            batch = context.batch(0, condition, arm="float", count=min(32, context.settings.batch))
            (played,) = yield [replace(batch, visits=context.settings.parity.visited_states)]
            finding = _worse(finding, _compare_quantised(context, played.visits))
        return finding

    def _replay(self, context: Context) -> GateFinding:
        subject = context.subject
        if subject.golden is None:
            return undecided(
                f"There is no {GOLDEN_FILE} next to the policy, so the trained policy's outputs are unknown.",
                "export the run again: physai export RUN",
            )
        original = subject.policy("float" if "float" in subject.arms else "policy")
        try:
            golden = read_golden(subject.golden, original.header)
        except GoldenStatesError as error:
            return GateFinding(
                outcome=VerdictOutcome.FAIL,
                cause=Cause.NUMERICS,
                message=str(error),
                next_step="export the run again: physai export RUN",
            )
        names = list(original.header.outputs)
        answers = original.evaluate(golden)
        tolerance = context.settings.parity.relative_tolerance
        worst, where = _greatest(original.contract, {name: golden[name] for name in names}, answers)
        states = len(next(iter(golden.values())))
        measured = [Measurement(name="relative_difference", value=worst, threshold=tolerance)]
        if worst <= tolerance:
            return GateFinding(outcome=VerdictOutcome.PASS, measured=measured, chart={"states": states})
        return GateFinding(
            outcome=VerdictOutcome.FAIL,
            measured=measured,
            cause=Cause.NUMERICS,
            message=f"The graph differs from the trained policy in {where}: relative difference {worst:.2g}, at most "
            f"{tolerance:g} is allowed.",
            next_step="this file is not the one exported with its reference outputs: export the run again",
        )


def read_golden(data: bytes, header: PolicyHeader) -> Arrays:
    """Read reference inputs and outputs by the graph's names, float32, shape (n, size).

    Raises:
        GoldenError: the file is damaged, or its arrays do not match the graph.
    """
    expected = {**header.inputs, **header.outputs}
    try:
        # Bound the unpacked size before unpacking anything.
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if not unpacked <= MAX_POLICY_BYTES:
            raise GoldenStatesError(f"{GOLDEN_FILE}: {unpacked} bytes unpacked, at most {MAX_POLICY_BYTES} are allowed")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays: Arrays = {name: archive[name] for name in archive.files if name != FINGERPRINT_NAME}
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, EOFError) as error:
        raise GoldenStatesError(f"{GOLDEN_FILE} is damaged: {error}") from error
    if set(arrays) != set(expected):
        raise GoldenStatesError(f"{GOLDEN_FILE} holds {', '.join(sorted(arrays))}; the graph has {', '.join(expected)}")
    count = len(arrays[next(iter(expected))])
    for name, size in expected.items():
        if arrays[name].shape != (count, size) or not count:
            raise GoldenStatesError(
                f"{GOLDEN_FILE}: {name!r} has shape {arrays[name].shape}, expected ({count}, {size})"
            )
        if not np.isfinite(arrays[name]).all():
            raise GoldenStatesError(f"{GOLDEN_FILE}: {name!r} contains a value that is not finite")
    return {name: arrays[name].astype(np.float32) for name in expected}


def _greatest(contract: PolicyContract, wanted: Mapping[str, Array], actual: Mapping[str, Array]) -> tuple[float, str]:
    """Return the maximum of |difference| / max(|wanted|, scale) and its place; NaN counts as a huge difference."""
    scales = {term.target_name: np.asarray(term.scale) for term in contract.action.terms}
    worst, where = 0.0, ""
    for name, values in wanted.items():
        scale = scales[name] if name in scales else np.ones(values.shape[1])
        exact = values.astype(np.float64)
        relative = np.abs(actual[name] - exact) / np.maximum(np.abs(exact), scale)
        relative = np.where(np.isfinite(relative), relative, np.finfo(np.float64).max ** 0.5)
        if relative.max(initial=0.0) > worst:
            row, column = np.unravel_index(int(relative.argmax()), relative.shape)
            worst, where = float(relative.max()), f"{name}[{int(column)}], recorded state {int(row)}"
    # A measurement must be finite and short in JSON.
    return min(worst, 1e9), where


def _probe(context: Context) -> GateFinding | None:
    """Return a FAIL if a random input gives a command that is not finite or out of bounds, else None."""
    policy = context.subject.policy()
    inputs = probe_inputs(policy.header, context.settings.parity.probes)
    outputs = policy.evaluate(inputs)
    checks = [(f"{name} is not finite", np.isfinite(values)) for name, values in outputs.items()]
    for term in policy.contract.action.terms:
        lower, upper = np.asarray(term.lower), np.asarray(term.upper)
        slack = ROUNDING * np.maximum(np.abs(lower), np.abs(upper))
        values = outputs[term.target_name]
        inside = (values >= lower - slack) & (values <= upper + slack)
        checks.append((f"{term.target_name} exceeds its bounds", inside))
    for what, good in checks:
        bad = np.flatnonzero(~good.all(axis=1))
        if len(bad):
            row = "; ".join(f"{name} = {np.array2string(v[bad[0]], precision=4)}" for name, v in inputs.items())
            return GateFinding(
                outcome=VerdictOutcome.FAIL,
                measured=[Measurement(name="bad_answers", value=float(len(bad)), threshold=0.0)],
                cause=Cause.NUMERICS,
                message=f"For {len(bad)} of {len(good)} random inputs {what}; the first is {row}"[:4000],
                next_step="find the cause in the graph: a weight, a division, a logarithm, or a missing clip",
            )
    return None


def probe_inputs(header: PolicyHeader, count: int) -> Arrays:
    """Return random inputs over the ranges of sensors and commands, float32; every eighth is at the extremes."""
    random = np.random.default_rng(PROBE_SEED)
    joints = header.contract.robot.joints
    lower = np.array([-UNLIMITED_POSITION if j.position_lower is None else j.position_lower for j in joints])
    upper = np.array([UNLIMITED_POSITION if j.position_upper is None else j.position_upper for j in joints])
    speed = np.array([j.velocity_limit or UNLIMITED_SPEED for j in joints])
    effort = np.array([j.effort_limit for j in joints])
    middle, half = 0.5 * (lower + upper), 0.5 * BEYOND * (upper - lower)
    ranges = {
        "joint_pos": (middle, half),
        "joint_vel": (np.zeros(len(joints)), BEYOND * speed),
        "joint_effort": (np.zeros(len(joints)), BEYOND * effort),
    }
    commands = {field.name: field for field in header.contract.command.fields}
    inputs: Arrays = {}
    for name, size in header.inputs.items():
        draw = random.uniform(-1.0, 1.0, (count, size))
        # Clipping, saturation and overflow show at the corners of the ranges, which uniform draws rarely reach.
        draw[::8] = np.sign(draw[::8])
        if name in ranges:
            values = ranges[name][0] + ranges[name][1] * draw
        elif name == "imu_quat":
            # A normalised normal sample is uniform over all orientations.
            values = random.normal(size=(count, 4))
            values /= np.linalg.norm(values, axis=1, keepdims=True)
        elif name in commands:
            low, high = np.asarray(commands[name].lower), np.asarray(commands[name].upper)
            values = low + 0.5 * (draw + 1.0) * (high - low)
        elif name.startswith(STATE_PREFIX):
            # Recurrent state starts at zero and its range is unknown; half of the probes use the initial state.
            values = np.where(np.arange(count)[:, None] % 2 == 0, 0.0, np.abs(draw))
        else:
            values = UNLIMITED_SPEED * draw
        inputs[name] = values.astype(np.float32)
    return inputs


def _compare_quantised(context: Context, visits: Arrays) -> GateFinding:
    """Compare commands of the quantised and the float graph on visited states, in joint units."""
    tolerance = context.subject.task.contract.safety.parity_tolerance
    float_graph, quantised = context.subject.policy("float"), context.subject.policy("quantised")
    wanted, actual = float_graph.evaluate(visits), quantised.evaluate(visits)
    errors = {term.target_name: _errors(wanted, actual, term.target_name) for term in quantised.contract.action.terms}
    every = np.concatenate([error.ravel() for error in errors.values()])
    worst, p99 = float(every.max()), float(np.quantile(every, 0.99))
    measured = [
        Measurement(name="quantised_error", value=worst, threshold=tolerance),
        Measurement(name="quantised_error_p99", value=p99),
    ]
    chart = {"quantised_error": np.histogram(every, bins=40)[0].tolist(), "quantised_max": worst}
    if worst <= tolerance:
        return GateFinding(outcome=VerdictOutcome.PASS, measured=measured, chart=chart, episodes=0)
    return GateFinding(
        outcome=VerdictOutcome.FAIL,
        measured=measured,
        chart=chart,
        cause=Cause.NUMERICS,
        message=f"The quantised command is up to {worst:.3g} away from the float one on visited states (99 % within "
        f"{p99:.3g}); the contract allows {tolerance:g} [joint unit].",
        next_step="quantise with more calibration states, keep the first and last layer in float, or flash float32",
    )


def _errors(wanted: Mapping[str, Array], actual: Mapping[str, Array], name: str) -> Array:
    error = np.abs(actual[name].astype(np.float64) - wanted[name])
    return np.where(np.isfinite(error), error, 1e9)


def _worse(first: GateFinding, second: GateFinding) -> GateFinding:
    """Merge findings: the worse outcome decides, all measurements are kept."""
    order = (VerdictOutcome.PASS, VerdictOutcome.INCONCLUSIVE, VerdictOutcome.FAIL)
    worse = first if order.index(first.outcome) >= order.index(second.outcome) else second
    other = second if worse is first else first
    worse.measured = [*worse.measured, *(m for m in other.measured if m.name not in {w.name for w in worse.measured})]
    worse.chart = {**other.chart, **worse.chart}
    return worse
