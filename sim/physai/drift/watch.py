"""Watch recordings for what a robot's twin does not say of it any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.drift.report import DriftReport
from physai.sdk.base.parameters.arguments import require_range, several, writable_file, write_page
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.twin.logs import RobotLog
    from physai.twin.model.twin import Twin

ALARM_SHARE = 0.05
ALARM_MIN, ALARM_MAX = 1e-6, 0.5


def drift(
    recordings: Annotated[Sequence[str | Path], Option(metavar="RECORDING")] | Sequence[RobotLog],
    *,
    twin: str | Path | Twin,
    verdict: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    columns: Annotated[Path | str | None, Option(metavar="YAML")] = None,
    alarm_share: float = ALARM_SHARE,
    report: Annotated[Path | str | None, Option(flags=("--out",), metavar="FILE")] = None,
    progress: Callable[[float], None] = lambda share: None,
) -> DriftReport:
    """Tell whether a robot is still the one that its twin describes, from recordings of its work.

    Each block of 2.5 s is compared with the equations of motion of the twin. A change is one of the mass of a link,
    the friction of a joint, the gain of a servo or motor, the lag of commands, or the zero of an encoder. Blocks
    without commanded motion, and blocks that no such change explains, say nothing.

    Args:
        recordings: recordings since the calibration (see `physai logs check --help`), in the order of time unless their
            clocks tell it. Those of the calibration among them show what the twin lacks without any drift.
        twin: the robot's twin.json.
        verdict: verdict.json that rests on the twin, for the next steps.
        columns: column map for all recordings.
        alarm_share: largest share of unchanged runs of 10 minutes that may be said to have drifted.
        report: page to write, with each change over time.
        progress: called with the share of the recordings that is done.

    Returns:
        The answer, with each change's amount, and the next step.

    Raises:
        LogError: a recording cannot be read, or is of another robot.
        DriftError: recordings are copies of each other or overlap in time, or the verdict is of another twin.
        TwinError: the twin cannot be read, or its robot has changed.
        PhysaiError: an argument is out of range, or the page cannot be written.
    """
    from physai.drift.equations.frame import Frame
    from physai.drift.monitor.blocks import blocks_of
    from physai.drift.monitor.findings import find, usual_of
    from physai.drift.monitor.recordings import judged_twin, read_recordings
    from physai.drift.page import drift_page
    from physai.drift.report import DriftSources, report_of
    from physai.twin.model.twin import load_twin

    require_range("alarm_share", alarm_share, ALARM_MIN, ALARM_MAX)
    file = None if report is None else writable_file(report, "drift.html")
    loaded = load_twin(twin) if isinstance(twin, str | Path) else twin
    stated = None if verdict is None else judged_twin(verdict, loaded)
    robot = loaded.nominal()
    given, own = read_recordings(several(recordings), robot, loaded, None if columns is None else Path(columns))
    logs = [one.log for one in given]
    frame = Frame(robot, loaded, [*logs, *own])
    usual = usual_of(len(frame.changes), list(blocks_of(frame, own)))
    blocks: list[Any] = []
    for block in blocks_of(frame, logs):
        blocks.append(block)
        progress((block.log + block.start_s / max(logs[block.log].duration_s, 1e-9)) / len(logs))
    finding = find(frame.changes, blocks, alarm_share, usual)
    sources = DriftSources(twin=str(twin) if isinstance(twin, str | Path) else "twin.json", verdict=stated, page=file)
    result = report_of(frame, given, blocks, finding, remarks=_remarks(own), alarm_share=alarm_share, sources=sources)
    if file is not None:
        write_page(file, drift_page(result))
    return result


def _remarks(own: Sequence[RobotLog]) -> list[str]:
    if own:
        return [f"what {len(own)} recordings of the calibration differ by from the twin counts as usual"]
    return ["no recordings of the calibration given: what the twin lacks may look like a drift"]
