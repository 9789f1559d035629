"""The windows that go into a twin file show every joint in motion."""

import numpy as np

from physai.twin.calibration.replay.sample import moving_windows
from physai.twin.calibration.replay.windows import cut
from physai.twin.claims.spot_check import WINDOWS
from physai.twin.logs import RobotLog


def test_a_joint_that_moves_only_once_is_in_the_sample() -> None:
    """20 s, of which the second joint moves by 0.3 rad within 0.3 s and rests otherwise; the first never rests."""
    time = np.linspace(0.0, 20.0, 4001)
    once = 0.3 * np.clip((time - 7.1) / 0.3, 0.0, 1.0)
    position = np.array([np.sin(6.0 * time), once], np.float64).T
    log = RobotLog(
        name="log", joint_names=("a", "b"), time=time, joint_pos=position, joint_vel=None, joint_effort=None,
        command=position, command_kind="joint_pos", source="log.csv", sha256="0" * 64,
    )  # fmt: skip
    windows = cut([log], 0.25, stride_s=0.0625)
    assert windows.thinned(WINDOWS).motion()[1] < 0.01 * windows.motion()[1], "evenly spaced windows show it, too"
    chosen = moving_windows(windows, WINDOWS)
    assert len(chosen) <= WINDOWS
    assert (chosen.motion() > 0.3 * windows.motion()).all()
