"""`physai sim replay`: scores how well a twin, or any model, reproduces recordings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, verb
from physai.twin.calibration.replay.replay_logs import replay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from physai.twin.calibration.replay.replay import ReplayScore
    from physai.twin.calibration.replay.replay_logs import ReplayComparison
    from physai.twin.model.twin_file import Interval


@verb(replay, summary="score a twin or any model on recordings")
def command(
    call: Callable[..., ReplayComparison], *, twin: str, against: str | None = None, as_json: AsJson = False
) -> int:
    """Print the error per joint."""
    from physai.twin.calibration.replay.replay import score_record

    found = call()
    score, other = found.score, found.against
    if as_json:
        record = {"twin": twin, "robot": found.robot.name, **_flat("rmse", score.joint_names, score.rmse)}
        if other is not None:
            record["against"] = {"twin": against, **_comparison(score, other)}
        print(json.dumps({**record, **score_record(score)}))
    else:
        print(printable(_text(twin, score)))
        if against is not None and other is not None:
            print(printable(_against(twin, score, against, other)))
    return 0


def _flat(label: str, joints: Sequence[str], intervals: Sequence[Interval]) -> dict[str, Any]:
    return {
        f"{label}.{name}": {"value": interval.value, "lo": interval.lo, "hi": interval.hi}
        for name, interval in zip(joints, intervals, strict=True)
    }


def _comparison(score: ReplayScore, other: ReplayScore) -> dict[str, Any]:
    """The other's errors, their excess over ours on the same windows, and whether the intervals are disjoint."""
    joints = score.joint_names
    apart = {f"apart.{name}": disjoint for name, disjoint in zip(joints, score.apart_from(other), strict=True)}
    return {**_flat("rmse", joints, other.rmse), **_flat("excess", joints, score.gain_over(other)), **apart}


def _against(name: str, score: ReplayScore, other_name: str, other: ReplayScore) -> str:
    rows = [
        (
            joint,
            f"{error.value:.4f}",
            f"{error.lo:.4f} to {error.hi:.4f}",
            f"{gain.value:+.4f}",
            f"{gain.lo:+.4f} to {gain.hi:+.4f}",
            "yes" if apart else "no",
        )
        for joint, error, gain, apart in zip(
            score.joint_names, other.rmse, score.gain_over(other), score.apart_from(other), strict=True
        )
    ]
    head = ("joint", "error", "95 % interval", "excess", "95 % interval", "apart")
    return f"\n{other_name}, and its excess over {name} on the same windows:\n{table(head, rows)}"


def _text(name: str, score: ReplayScore) -> str:
    windows = score.windows
    rows = [
        (joint, f"{error.value:.4f}", f"{error.lo:.4f} to {error.hi:.4f}", f"{plain:.4f}", f"{moved:.3g}")
        for joint, error, plain, moved in zip(
            score.joint_names, score.rmse, score.rmse_at_zero, windows.motion(), strict=True
        )
    ]
    per_log = [(log, *(f"{x:.4f}" for x in errors)) for log, errors in score.per_log().items()]
    encoders = score.windows.logs[0].joint_names
    offsets = ["", table(("offset of joint_pos", *encoders), _offsets(score))] if encoders else []
    return "\n".join(
        [
            f"{name}: {len(windows)} windows of {windows.window_s:g} s from {len(windows.logs)} recordings, open loop "
            "from measured states; root mean square [rad or m]",
            table(("joint", "error", "95 % interval", "own zeros", "motion"), rows),
            "",
            table(("recording", *score.joint_names), per_log),
            *offsets,
        ]
    )


def _offsets(score: ReplayScore) -> list[tuple[str, ...]]:
    """The encoder's zero in each recording, with its 95 % interval."""
    return [
        (log.name, *(f"{value:+.4f} ± {1.96 * std:.4f}" for value, std in zip(values, stds, strict=True)))
        for log, values, stds in zip(score.windows.logs, score.offsets, score.offset_std, strict=True)
    ]
