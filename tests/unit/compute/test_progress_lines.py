"""Where no bar is visible, as in a file, progress is printed as lines with the time left."""

import pytest

from physai.compute.cli import progress_bars
from physai.compute.cli.progress_bars import LINE_S, ShareLines, share_bar


def test_lines_come_at_intervals_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress_bars.time, "monotonic", lambda: now[0])
    lines = ShareLines()
    for now[0], share in ((101.0, 0.1), (102.0, 0.0), (103.0, 0.2), (110.0, 0.25), (111.9, 0.3)):
        lines("playing", share)
    # A quarter took 10 s.
    assert capsys.readouterr().err == "playing: 0%\nplaying: 25%, about 30 s left\n"
    assert LINE_S == 2.0


def test_what_ends_at_once_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with share_bar("playing") as progress:
        progress(0.5)
        progress(1.0)
    assert capsys.readouterr().err == ""


def test_a_job_that_lasts_longer_is_heard(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress_bars, "LINE_S", 0.0)
    with share_bar("playing") as progress:
        progress(0.5)
    assert capsys.readouterr().err.startswith("playing: 50%, about ")
