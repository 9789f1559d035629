"""`physai sim closed-loop`: plays the policy of recorded runs in a twin and tests whether it fares alike."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.compute.cli.options import MAX_SEED, progress_bar, require_range
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.shared.signed_evidence import (
    add_signing_arguments,
    add_trust_argument,
    signing_key,
    trusted_validators,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from physai.sdk.signing.ed25519 import SigningKey
    from physai.sim.robots import Robot
    from physai.twin.closed_loop.closed_loop import ClosedLoopResult
    from physai.twin.logs import RobotLog
    from physai.twin.model.closed_loop_evidence import ClosedLoopTest
    from physai.twin.model.twin import Twin

REPORT_FILE = "closed-loop.html"

_EPILOG = """\
LOGS are recordings of runs in which POLICY drove the robot, one sample per control period. The result is written into
the twin file: a twin in which the policy fares otherwise than on the robot is no longer credible.

exit code: 0 reproduced, 1 contradicted or undecided, 2 the recordings do not fit the policy or the twin
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim closed-loop`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("twin", metavar="TWIN", type=Path, help="twin.json")
    parser.add_argument("policy", metavar="POLICY", type=Path, help="run folder or policy.onnx that drove the robot")
    parser.add_argument("logs", metavar="LOGS", nargs="+", help="recordings (see `physai logs check --help`)")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="file to write (default: TWIN)")
    parser.add_argument("--task", help="task name, Python file, or run folder, if the policy's task is not built in")
    parser.add_argument("--robot", help="MJCF or URDF file of the task's robot, if its run folder does not keep it")
    parser.add_argument("--columns", metavar="YAML", type=Path, help="column map for all recordings")
    parser.add_argument(
        "--recorded-on", metavar="ROBOT", help="the recorded robot, MODEL/UNIT such as ur10e/cell-3; see sim calibrate"
    )
    parser.add_argument(
        "--length-s",
        metavar="S",
        type=float,
        help="planned length of a run; shorter recordings have failed (default: that of the task's episodes, or of "
        "the longest recording)",
    )
    parser.add_argument("--draws", type=int, default=120, help="draws of the twin's parameters (default: 120)")
    parser.add_argument("--report", metavar="DIR", type=Path, help=f"folder to write {REPORT_FILE} to")
    parser.add_argument("--seed", type=int, default=0, help="seed of draws and episodes (default: 0)")
    add_signing_arguments(parser)
    add_trust_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Tests the twin, writes the record into its file and prints the tests."""
    from physai.sdk.base.formats.canonical import sha256_hex
    from physai.sim.policies.onnx import OnnxPolicy, read_policy
    from physai.sim.policies.resolve import find_origin, find_policy
    from physai.twin.cli.calibrate_verb import recorded_on, writable, writable_folder
    from physai.twin.closed_loop.closed_loop import run_closed_loop, with_record
    from physai.twin.logs import read_logs
    from physai.twin.model.twin import load_twin, moved_twin, save_twin, signed_twin

    output = writable(arguments.output or arguments.twin)
    report = None if arguments.report is None else writable_folder(arguments.report)
    require_range("--seed", arguments.seed, 0, MAX_SEED)
    twin = load_twin(arguments.twin)
    key = _key(twin, arguments)
    path = find_policy(arguments.policy)
    data = read_policy(path)
    task = find_origin(path, task=arguments.task, robot=arguments.robot).load()
    logs = read_logs(arguments.logs, task.robot.spec, column_map=arguments.columns)
    if arguments.recorded_on is not None:
        logs = tuple(recorded_on(log, arguments.recorded_on, task.robot) for log in logs)
    _warn_of_defects(logs, task.robot)
    with progress_bar() as bar:
        line = bar.add_task("playing in the twin", total=1.0)
        result = run_closed_loop(
            twin,
            OnnxPolicy(data, source=str(path)),
            sha256_hex(data),
            task,
            logs,
            length_s=arguments.length_s,
            draws=arguments.draws,
            seed=arguments.seed,
            tell=lambda share: bar.update(line, completed=share),
        )
    tested = moved_twin(with_record(twin, result.record), output.parent)
    if key is not None:
        tested = signed_twin(tested, key)
    save_twin(tested, output)
    page = None if report is None else _write_page(result, report, str(arguments.twin))
    if arguments.json:
        print(json.dumps(_as_json(result, output, tested.hash, page), ensure_ascii=False))
    else:
        print(printable("\n".join(_text(result, output, tested.hash, page))))
        verdict = result.record.verdict
        colour = {"reproduced": "green", "contradicted": "red"}.get(verdict, "yellow")
        print(f"{styled(verdict, colour, sys.stdout)}: {printable(result.record.describe())}")
    return 0 if result.record.verdict == "reproduced" else 1


def _key(twin: Twin, arguments: argparse.Namespace) -> SigningKey | None:
    """The key that signs the tested twin; None for a twin that is not signed: nobody knows where it came from."""
    from physai.sdk.signing.evidence import is_vouched

    key = signing_key(arguments)
    if key is None:
        return None
    known = (*trusted_validators(arguments.trust), key.public_key("validator"))
    if is_vouched("twin", twin.signed_hash, twin.signature, known):
        return key
    print("not signed: no validator that you trust signed this twin; calibrate it from its recordings", file=sys.stderr)
    return None


def _warn_of_defects(logs: tuple[RobotLog, ...], robot: Robot) -> None:
    """Print defects of recordings; a run in closed loop may show less motion than a calibration needs."""
    from physai.twin.logs.quality import check_log

    for log in logs:
        for finding in check_log(log, robot.spec).findings:
            if finding.severity == "defect" and finding.check != "motion":
                print(printable(f"{log.source}: {finding.message} (see `physai logs check`)"), file=sys.stderr)


def _write_page(result: ClosedLoopResult, folder: Path, title: str) -> Path:
    from physai.sdk.base.files import write_atomic
    from physai.twin.closed_loop.comparison_page import closed_loop_page

    page = folder / REPORT_FILE
    try:
        write_atomic(page, closed_loop_page(result, title=title).encode())
    except OSError as error:
        raise PhysaiError(f"{page}: cannot be written: {error.strerror}") from error
    return page


def _as_json(result: ClosedLoopResult, output: Path, digest: str, page: Path | None) -> dict[str, Any]:
    record = result.record
    return {
        "twin": str(output),
        "hash": digest,
        "report": None if page is None else str(page),
        "verdict": record.verdict,
        "reason": record.describe(),
        "depends_on": result.depends_on,
        **record.model_dump(mode="json", exclude={"tests"}),
        "tests": [{**test.model_dump(mode="json"), "verdict": test.verdict} for test in record.tests],
    }


def _text(result: ClosedLoopResult, output: Path, digest: str, page: Path | None) -> Iterator[str]:
    record = result.record
    yield (
        f"the policy commands what was recorded in {record.command_agreement:.1%} of the control periods"
        + (f"; a command is logged {result.check.shift} samples after its measurement" if result.check.shift else "")
    )
    yield f"success: {record.criterion}; a complete run lasts {record.length_s:g} s"
    yield (
        f"success on the robot {record.real_successes} of {len(record.logs)}, in the twin {record.twin_successes} of "
        f"{record.twin_runs} ({record.draws} draws of its parameters); the {record.compared_runs} that "
        f"{record.compared} were compared further:"
    )
    head = ("property", "robot", "twin", "difference", "negligible", "p", "found with 80 %", "needed", "verdict")
    yield table(head, [_row(test) for test in record.tests])
    yield "in brackets: for information, does not decide"
    if result.depends_on:
        yield result.depends_on
    yield f"twin    {output} ({digest[:12]})"
    if page is not None:
        yield f"report  {page}"


def _row(test: ClosedLoopTest) -> tuple[str, ...]:
    from physai.twin.model.closed_loop_evidence import TRAJECTORIES

    twin = "none" if test.twin is None else f"{test.twin:.3g}"
    values = ("", "") if test.name == TRAJECTORIES else (f"{test.real:.3g}", twin)
    found = "none" if test.detectable is None else f"{test.detectable:.3g}"
    return (
        f"{test.name}{' [' + test.unit + ']' if test.unit else ''}",
        *values,
        f"{test.difference:+.3g}",
        f"{test.margin:.3g}",
        f"{test.p_value:.3g}",
        found,
        f"{test.needed:.3g}",
        test.verdict if test.decides else f"({test.verdict})",
    )


command = CliCommand(summary="test a twin with recorded runs of a policy", add_arguments=add_arguments, run=run)
"""The verb `sim closed-loop`."""
