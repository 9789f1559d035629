"""`physai sim closed-loop`: plays the policy of recorded runs in a twin and tests whether it fares alike."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from physai.compute.cli.progress_bars import share_bar
from physai.sdk.base.terminal import printable, say_on_stderr, styled, table
from physai.sdk.cli.shared.options import TrustedValidators, ValidatorSigning
from physai.sdk.cli.verb import AsJson, Option, verb
from physai.twin.closed_loop.check_closed_loop import check_closed_loop

if TYPE_CHECKING:
    from physai.twin.closed_loop.check_closed_loop import ClosedLoopCheck
    from physai.twin.model.closed_loop_evidence import ClosedLoopTest


@verb(check_closed_loop, summary="test a twin with recorded runs of a policy")
def command(
    call: Callable[..., ClosedLoopCheck],
    *,
    signing: Annotated[ValidatorSigning, Option(flatten=True)],
    trusted: Annotated[TrustedValidators, Option(flatten=True)],
    as_json: AsJson = False,
) -> int:
    """Present the tests.

    LOGS are recordings of runs in which POLICY drove the robot, one sample per control period. The result is written
    into the twin file: a twin in which the policy fares otherwise than on the robot is no longer credible.

    exit code: 0 reproduced, 1 contradicted or undecided, 2 the recordings do not fit the policy or the twin
    """
    key = signing.signing_key()
    validators = trusted.keys() if key is not None else ()
    with share_bar("playing in the twin") as progress:
        check = call(key=key, validators=validators, progress=progress, say=say_on_stderr)
    record = check.result.record
    if as_json:
        print(json.dumps(_as_json(check), ensure_ascii=False))
    else:
        print(printable("\n".join(_text(check))))
        colour = {"reproduced": "green", "contradicted": "red"}.get(record.verdict, "yellow")
        print(f"{styled(record.verdict, colour, sys.stdout)}: {printable(record.describe())}")
    return 0 if record.verdict == "reproduced" else 1


def _as_json(check: ClosedLoopCheck) -> dict[str, Any]:
    record = check.result.record
    return {
        "twin": str(check.file),
        "hash": check.twin.hash,
        "report": None if check.report is None else str(check.report),
        "verdict": record.verdict,
        "reason": record.describe(),
        "depends_on": check.result.depends_on,
        **record.model_dump(mode="json", exclude={"tests"}),
        "tests": [{**test.model_dump(mode="json"), "verdict": test.verdict} for test in record.tests],
    }


def _text(check: ClosedLoopCheck) -> Iterator[str]:
    result, record = check.result, check.result.record
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
    yield f"twin    {check.file} ({check.twin.hash[:12]})"
    if check.report is not None:
        yield f"report  {check.report}"


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
