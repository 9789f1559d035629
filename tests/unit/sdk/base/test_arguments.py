"""Checks of arguments of public functions."""

from pathlib import Path

import pytest

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import require_choice, several


def test_one_path_is_a_sequence_of_one() -> None:
    assert several("run.csv") == ("run.csv",)
    assert several(Path("run.csv")) == (Path("run.csv"),)
    assert several(["a", "b"]) == ("a", "b")
    assert several(()) == ()


def test_a_choice_is_checked_in_python_too() -> None:
    require_choice("engine", "warp", ("mujoco", "warp"))
    with pytest.raises(PhysaiError, match=r"^`engine` must be mujoco or warp, got 'wrap'$"):
        require_choice("engine", "wrap", ("mujoco", "warp"))
