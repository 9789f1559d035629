"""Watch recordings for what a robot's twin does not say of it any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.drift.report import DriftReport
from physai.sdk.base.parameters.arguments import require_range, several, writable_file, write_page
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.drift.monitor.recordings import DatedLog
    from physai.drift.report import DriftSources
    from physai.sim.robots import Robot
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
    file = None if report is None else writable_file(report, "drift.html")
    given = watched_inputs(recordings, twin=twin, verdict=verdict, columns=columns, alarm_share=alarm_share, page=file)
    result = judged(given, progress)
    if file is not None:
        from physai.drift.page import drift_page

        write_page(file, drift_page(result))
    return result


@dataclass(frozen=True, kw_only=True)
class WatchedInputs:
    """All that a monitor judges, read and checked."""

    twin: Twin
    robot: Robot
    given: tuple[DatedLog, ...]
    """Recordings in the order of time."""
    own: tuple[RobotLog, ...]
    """Recordings of the calibration."""
    sources: DriftSources
    alarm_share: float


def watched_inputs(
    recordings: Sequence[str | Path] | Sequence[RobotLog],
    *,
    twin: str | Path | Twin,
    verdict: Path | str | None,
    columns: Path | str | None,
    alarm_share: float,
    page: Path | None = None,
) -> WatchedInputs:
    """Read what a monitor judges; `drift` describes the arguments and errors."""
    from physai.drift.monitor.recordings import judged_twin, read_recordings
    from physai.drift.report import DriftSources
    from physai.twin.model.twin import load_twin

    require_range("alarm_share", alarm_share, ALARM_MIN, ALARM_MAX)
    loaded = load_twin(twin) if isinstance(twin, str | Path) else twin
    stated = None if verdict is None else judged_twin(verdict, loaded)
    robot = loaded.nominal()
    given, own = read_recordings(several(recordings), robot, loaded, None if columns is None else Path(columns))
    return WatchedInputs(
        twin=loaded,
        robot=robot,
        given=given,
        own=own,
        sources=DriftSources(
            twin=str(twin) if isinstance(twin, str | Path) else "twin.json", verdict=stated, page=page
        ),
        alarm_share=alarm_share,
    )


def judged(inputs: WatchedInputs, progress: Callable[[float], None]) -> DriftReport:
    """Judge all blocks; `drift` describes the answer."""
    from physai.drift.equations.frame import Frame
    from physai.drift.monitor.blocks import blocks_of
    from physai.drift.monitor.findings import find, usual_of
    from physai.drift.report import report_of

    logs = [one.log for one in inputs.given]
    frame = Frame(inputs.robot, inputs.twin, [*logs, *inputs.own])
    usual = usual_of(len(frame.changes), list(blocks_of(frame, inputs.own)))
    blocks: list[Any] = []
    for block in blocks_of(frame, logs):
        blocks.append(block)
        progress((block.log + block.start_s / max(logs[block.log].duration_s, 1e-9)) / len(logs))
    finding = find(frame.changes, blocks, inputs.alarm_share, usual)
    return report_of(
        frame,
        inputs.given,
        blocks,
        finding,
        remarks=_remarks(inputs.own),
        alarm_share=inputs.alarm_share,
        sources=inputs.sources,
    )


def _remarks(own: Sequence[RobotLog]) -> list[str]:
    if own:
        return [f"what {len(own)} recordings of the calibration differ by from the twin counts as usual"]
    return ["no recordings of the calibration given: what the twin lacks may look like a drift"]
