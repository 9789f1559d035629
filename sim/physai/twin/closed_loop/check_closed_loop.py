"""Test a twin with recorded runs of a policy, and write the result into the twin's file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from physai.sdk.base.parameters.arguments import MAX_SEED, require_range, writable_file, writable_folder, write_page
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sdk.signing.ed25519 import PublicKey, SigningKey
    from physai.sim.robots import Robot
    from physai.twin.closed_loop.closed_loop import ClosedLoopResult
    from physai.twin.logs import RobotLog
    from physai.twin.model.twin import Twin

REPORT_FILE = "closed-loop.html"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClosedLoopCheck:
    """A closed-loop test with the twin that has its record, and the files written."""

    result: ClosedLoopResult
    twin: Twin
    file: Path | None
    report: Path | None


def check_closed_loop(
    twin: str | Path | Twin,
    policy: Path | str,
    logs: Sequence[str | Path] | Sequence[RobotLog],
    *,
    out: Annotated[Path | str | None, Option(flags=("-o",), old=("--output",))] = None,
    task: str | None = None,
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    columns: Annotated[Path | str | None, Option(metavar="YAML")] = None,
    recorded_on: Annotated[str | None, Option(metavar="ROBOT")] = None,
    length_s: float | None = None,
    draws: int = 120,
    report: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    seed: int = 0,
    key: SigningKey | None = None,
    validators: Sequence[PublicKey] = (),
    progress: Callable[[float], None] = lambda share: None,
    say: Callable[[str], None] = lambda text: None,
) -> ClosedLoopCheck:
    """Play the policy of recorded runs in a twin, and test whether the twin fares as the robot did.

    The result is written into the twin file: a twin in which the policy fares otherwise than on the robot is no longer
    credible.

    Args:
        twin: twin.json.
        policy: run folder or policy.onnx that drove the robot.
        logs: recordings of its runs, one sample per control period (see `physai logs check --help`).
        out: file to write. None for TWIN.
        task: task name, Python file, or run folder, if the policy's task is not built in.
        model: MJCF or URDF file of the task's robot, if its run folder does not keep it.
        columns: column map for all recordings.
        recorded_on: the recorded robot, MODEL/UNIT such as ur10e/cell-3; see sim calibrate.
        length_s: planned length of a run [s]; shorter recordings have failed. None for that of the task's episodes, or
            of the longest recording.
        draws: draws of the twin's parameters.
        report: folder to write closed-loop.html to.
        seed: seed of draws and episodes.
        key: validator's key that signs the tested twin, if a validator that is trusted signed it before.
        validators: keys of the validators that are trusted, besides `key`.
        progress: called with the share that is done.
        say: called with a line about each defect of a recording, and about a missing signature.

    Returns:
        The test, the twin with its record, and the files written.

    Raises:
        LogError: the recordings are unreadable, were fitted, or do not fit the policy.
        TwinError: the twin is of another robot.
        PhysaiError: an argument is out of range, or a file cannot be written.
    """
    from physai.sdk.base.formats.canonical import sha256_hex
    from physai.sim.policies.onnx import OnnxPolicy, read_policy
    from physai.sim.policies.resolve import find_origin, find_policy
    from physai.twin.closed_loop.closed_loop import run_closed_loop, with_record
    from physai.twin.model.twin import load_twin, moved_twin, save_twin, signed_twin

    target = out or (twin if isinstance(twin, str | Path) else None)
    file = None if target is None else writable_file(target, "twin.json")
    folder = None if report is None else writable_folder("report", report)
    require_range("seed", seed, 0, MAX_SEED)
    loaded = load_twin(twin) if isinstance(twin, str | Path) else twin
    signer = _signer(loaded, key, validators, say)
    path = find_policy(Path(policy))
    data = read_policy(path)
    loop_task = find_origin(path, task=task, robot=None if model is None else str(model)).load()
    runs = _recordings(logs, loop_task.robot, columns, recorded_on, say)
    result = run_closed_loop(
        loaded,
        OnnxPolicy(data, source=str(path)),
        sha256_hex(data),
        loop_task,
        runs,
        length_s=length_s,
        draws=draws,
        seed=seed,
        tell=progress,
    )
    tested = with_record(loaded, result.record)
    if file is not None:
        tested = moved_twin(tested, file.parent)
    if signer is not None:
        tested = signed_twin(tested, signer)
    if file is not None:
        save_twin(tested, file)
    title = str(twin) if isinstance(twin, str | Path) else loaded.robot
    page = None if folder is None else _write_page(result, folder, title)
    return ClosedLoopCheck(result=result, twin=tested, file=file, report=page)


def _signer(
    twin: Twin, key: SigningKey | None, validators: Sequence[PublicKey], say: Callable[[str], None]
) -> SigningKey | None:
    """The key that signs the tested twin; None for a twin of unknown origin, which no trusted validator signed."""
    from physai.sdk.signing.evidence import is_vouched

    if key is None or is_vouched("twin", twin.signed_hash, twin.signature, (*validators, key.public_key("validator"))):
        return key
    say("not signed: no validator that you trust signed this twin; calibrate it from its recordings")
    return None


def _recordings(
    logs: Sequence[str | Path] | Sequence[RobotLog],
    robot: Robot,
    columns: Path | str | None,
    recorded_on: str | None,
    say: Callable[[str], None],
) -> tuple[RobotLog, ...]:
    """Recordings with their origin; their defects are reported."""
    from physai.twin.calibration.from_recordings import with_robot
    from physai.twin.logs import RobotLog, read_logs
    from physai.twin.logs.quality import check_log

    if logs and all(isinstance(log, RobotLog) for log in logs):
        read = tuple(cast("Sequence[RobotLog]", logs))
    else:
        paths = cast("Sequence[str | Path]", logs)
        read = read_logs(paths, robot.spec, column_map=None if columns is None else Path(columns))
    if recorded_on is not None:
        read = tuple(with_robot(log, recorded_on, robot) for log in read)
    for log in read:
        for finding in check_log(log, robot.spec).findings:
            # A run in closed loop may show less motion than a calibration needs.
            if finding.severity == "defect" and finding.check != "motion":
                say(f"{log.source}: {finding.message} (see `physai logs check`)")
    return read


def _write_page(result: ClosedLoopResult, folder: Path, title: str) -> Path:
    from physai.twin.closed_loop.comparison_page import closed_loop_page

    return write_page(folder / REPORT_FILE, closed_loop_page(result, title=title))
