"""The pictures of a report are those of an episode of its policy, or it says why there are none."""

from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.opengl import needs_opengl

from physai.gates.report.pictures import SHOWN, filmstrip

ADDRESS = "data:image/png;base64,"


@needs_opengl
@pytest.mark.slow
def test_moments_of_an_episode_from_its_start_to_its_end(bench: Any, write_policy: Callable[..., Path]) -> None:
    subject = bench.subject(write_policy())
    film = filmstrip(subject)
    assert len(film.pictures) == len(film.times_s) == SHOWN
    assert (film.times_s[0], film.times_s[-1]) == (0.0, pytest.approx(subject.task.episode_length_s))
    assert list(film.times_s) == sorted(film.times_s)
    assert all(picture.startswith(ADDRESS) for picture in film.pictures)
    files = [b64decode(picture.removeprefix(ADDRESS)) for picture in film.pictures]
    assert all(file.startswith(b"\x89PNG\r\n\x1a\n") for file in files)
    assert files[0] != files[-1], "the robot has moved"
    assert "one episode of this policy" in film.caption


def test_a_policy_that_cannot_be_played_has_none(bench: Any, write_policy: Callable[..., Path]) -> None:
    subject = bench.subject(write_policy())
    subject.arms["policy"] = b"no policy"
    film = filmstrip(subject)
    assert list(film.pictures) == []
    assert film.caption.startswith("No picture: ")
