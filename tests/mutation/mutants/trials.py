"""How mutants are made: a mutated graph, a changed contract, file, twin or measurement."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tests.mutation.mutants import edits, pendulum, springs
from tests.mutation.mutants.bench import TASKS, Trial, honest, honest_trial, subject_of, task, twin, write
from tests.support.memoriser import first_readings, memoriser

from physai.gates.checks.gate import Context
from physai.gates.execution.subject import QUANTISED_FILE
from physai.gates.settings import GateSettings
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.io import parse_contract
from physai.sdk.evidence.verdict import Cause, VerdictOutcome
from physai.sdk.policy.header import GOLDEN_FILE
from physai.twin.model.twin import nominal_twin
from physai.twin.model.twin_file import SensorNoise
from physai.twin.rollouts.batch import seeds_of

Make = Callable[[Path], Trial]
EFFORT = "joint_effort_target"
CART_FORCE = 10.0


@dataclass(frozen=True)
class Mutant:
    """A corrupted policy, file or twin, and who should notice."""

    name: str
    make: Make
    gate: str
    cause: Cause | None
    outcome: VerdictOutcome = VerdictOutcome.FAIL
    quick: bool = False


def edited(base: str, mutation: edits.Mutation, *, told: bool = True) -> Make:
    """An honest policy with a mutated graph; `told`: its golden answers are the mutant's own, as after a training
    or export that was wrong from the start.
    """

    def make(folder: Path) -> Trial:
        data, golden = honest(base)
        data = edits.mutated(data, mutation)
        golden = edits.golden_of(data, golden) if told else golden
        return Trial(path=write(folder, data, golden), base=base, twin=twin(base))

    return make


def of_settle(**options: float) -> Make:
    """A hand-written policy for the double pendulum."""
    return lambda folder: pendulum.trial(folder, pendulum.Wrong(), **options)


def in_twin(wrong: pendulum.Wrong) -> Make:
    """An honest policy in a wrong twin of the double pendulum."""
    return lambda folder: pendulum.trial(folder, wrong)


def of_pusher(*, history: bool | None = None, **options: float) -> Make:
    """A hand-written policy for the pusher; `history` None for none, else whether it is reversed."""

    def make(folder: Path) -> Trial:
        if history is None:
            data = springs.spring(task("pusher"), **options)
        else:
            data = springs.with_history(task("pusher"), reversed_history=history)
        return Trial(path=write(folder, data, edits.golden_of(data, b"")), base="pusher", twin=twin("pusher"))

    return make


def by_heart(episodes: int, *, exam: bool = True) -> Make:
    """A graph that knows the first episodes of rehearsals by heart, and does nothing in others."""

    def make(folder: Path) -> Trial:
        trial = honest_trial(folder / "honest", "pusher")
        context = Context(subject_of(trial), GateSettings())
        condition, seeds = context.conditions["calibrated"], seeds_of(context.stream, 0, episodes)
        table = first_readings(context.subject, condition, seeds)
        data = memoriser(task("pusher"), table, task_file=TASKS["pusher"])
        return replace(trial, path=write(folder, data, edits.golden_of(data, b"")), exam=exam)

    return make


def plain(base: str = "pusher") -> Make:
    """An honest policy."""
    return lambda folder: honest_trial(folder, base)


def changed(change: Callable[[Trial, Path], Trial], make: Make | None = None) -> Make:
    """A trial with something beside the policy changed; the honest pusher's by default."""
    honestly = make or plain()
    return lambda folder: change(honestly(folder), folder)


def with_fingerprint(trial: Trial, folder: Path) -> Trial:
    data = edits.mutated(trial.path.read_bytes(), edits.with_metadata(physai_fingerprint="0" * 64))
    trial.path.write_bytes(data)
    return trial


def with_contract(old: str, new: str) -> Callable[[Trial, Path], Trial]:
    """The policy's contract with one number changed, and its fingerprint with it."""

    def change(trial: Trial, folder: Path) -> Trial:
        text = canonical_json(task(trial.base).contract).decode()
        assert old in text
        contract = parse_contract(text.replace(old, new), source="mutant")
        entries = {"physai_contract": canonical_json(contract).decode(), "physai_fingerprint": contract.fingerprint}
        trial.path.write_bytes(edits.mutated(trial.path.read_bytes(), edits.with_metadata(**entries)))
        return trial

    return change


def with_golden(golden: bytes | None) -> Callable[[Trial, Path], Trial]:
    def change(trial: Trial, folder: Path) -> Trial:
        path = trial.path.parent / GOLDEN_FILE
        path.unlink()
        if golden is not None:
            path.write_bytes(golden)
        return trial

    return change


def cut_golden(trial: Trial, folder: Path) -> Trial:
    path = trial.path.parent / GOLDEN_FILE
    data = path.read_bytes()
    # The fingerprint is the last of its arrays, so a file cut short states none: the contract gate sees it first.
    path.write_bytes(data[: len(data) // 2])
    return trial


def with_sibling(mutation: edits.Mutation) -> Callable[[Trial, Path], Trial]:
    def change(trial: Trial, folder: Path) -> Trial:
        data = edits.mutated(trial.path.read_bytes(), mutation)
        (trial.path.parent / QUANTISED_FILE).write_bytes(data)
        return trial

    return change


def worse_than_before(trial: Trial, folder: Path) -> Trial:
    """The honest policy was there before, and this one is good enough but for that."""
    data = springs.spring(task("pusher"))
    settings = {"success": {"target": 0.5, "margin": 0.1}}
    return replace(trial, baseline=write(folder / "baseline", data, None), settings=settings)


def other_robots_twin(trial: Trial, folder: Path) -> Trial:
    return replace(trial, twin=twin("cartpole"))


def fitted_again(trial: Trial, folder: Path) -> Trial:
    """The recordings the twin is judged on were fitted too."""
    logs = trial.twin.logs
    return replace(trial, twin=replace(trial.twin, logs=logs.model_copy(update={"held_out": logs.train})))


def unjudged(trial: Trial, folder: Path) -> Trial:
    """No recording was kept out of the fit."""
    logs = trial.twin.logs.model_copy(update={"held_out": ()})
    return replace(trial, twin=replace(trial.twin, logs=logs, residuals=None))


def unfitted(trial: Trial, folder: Path) -> Trial:
    return replace(trial, twin=nominal_twin(task(trial.base).robot))


def other_model(trial: Trial, folder: Path) -> Trial:
    return replace(trial, twin=replace(trial.twin, model_sha256="0" * 64))


def with_ticks(ticks: tuple[float, ...], *, of: str | None = None) -> Callable[[Trial, Path], Trial]:
    """Other ticks measured on the target [s], of the policy with a hash."""
    return lambda trial, folder: replace(trial, ticks=ticks, ticks_of=of)


def other_policy(trial: Trial, folder: Path) -> Trial:
    data, golden = honest("cartpole")
    return replace(trial, path=write(folder / "other", data, golden))


def lagging(mean_s: float, p99_s: float) -> Callable[[Trial, Path], Trial]:
    def change(trial: Trial, folder: Path) -> Trial:
        timing = trial.twin.timing.model_copy(update={"command_lag_mean_s": mean_s, "command_lag_p99_s": p99_s})
        motors = tuple(motor.model_copy(update={"dead_time_s": mean_s}) for motor in trial.twin.actuators)
        return replace(trial, twin=replace(trial.twin, timing=timing, actuators=motors))

    return change


def noisy(position: float, speed: float) -> Callable[[Trial, Path], Trial]:
    def change(trial: Trial, folder: Path) -> Trial:
        joints = len(trial.twin.joint_names)
        noise = SensorNoise(joint_pos_std=(position,) * joints, joint_vel_std=(speed,) * joints)
        return replace(trial, twin=replace(trial.twin, noise=noise))

    return change


def jittery(trial: Trial, folder: Path) -> Trial:
    """Every hundredth period starts five periods late; the guard repeats a command twice."""
    late = 6.0 * task(trial.base).contract.timing.control_dt
    timing = trial.twin.timing.model_copy(update={"period_p99_s": late})
    return replace(trial, twin=replace(trial.twin, timing=timing))


def unknown_friction(trial: Trial, folder: Path) -> Trial:
    """Friction that the recordings leave open: most of it is harmless, some holds the cart off the middle."""
    parameters = tuple(
        p.model_copy(update={"std": 0.5, "upper": 2.0}) if p.name == "rail.friction" else p
        for p in trial.twin.parameters
    )
    covariance = np.diag([p.std**2 for p in parameters])
    settings = {
        "success": {"target": 0.8},
        "falsification": {"generations": 4, "population": 12, "seeds": 2, "confirmations": 24},
    }
    return replace(trial, twin=replace(trial.twin, parameters=parameters, covariance=covariance), settings=settings)
