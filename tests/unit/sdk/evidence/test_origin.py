"""Where evidence comes from, and what is made of several pieces of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from physai.sdk.evidence.origin import KINDS, Origin, OriginError, combine_origins, machine_text, parse_accepted

ROBOTS = ("ur10e", "ur10e/cell-1", "ur10e/cell-3", "go2")
ORIGINS = st.builds(Origin, kind=st.sampled_from(KINDS), robot=st.sampled_from(ROBOTS))


@given(st.lists(ORIGINS, min_size=1, max_size=5))
def test_one_doubtful_piece_makes_the_whole_doubtful(origins: list[Origin]) -> None:
    whole = combine_origins(origins)
    kinds = [origin.kind for origin in origins]
    if "stand-in" in kinds:
        assert whole.kind == "stand-in"
    elif "unknown" in kinds:
        assert whole.kind == "unknown"
    if whole.kind == "robot":
        assert set(kinds) == {"robot"}
        assert whole.robot is not None
        assert all((origin.robot or "").startswith(whole.robot) for origin in origins)


@given(st.lists(ORIGINS, max_size=5))
def test_the_order_does_not_matter(origins: list[Origin]) -> None:
    assert combine_origins(origins) == combine_origins(reversed(origins)) == combine_origins([*origins, *origins])


@pytest.mark.parametrize(
    ("robots", "expected"),
    [
        (["ur10e/cell-1", "ur10e/cell-1"], "robot ur10e/cell-1"),
        (["ur10e/cell-1", "ur10e/cell-3"], "robot ur10e"),
        (["ur10e/cell-1", "go2"], "unknown"),
    ],
)
def test_the_robot_is_what_all_share(robots: list[str], expected: str) -> None:
    assert combine_origins(Origin(kind="robot", robot=robot) for robot in robots).mark == expected


def test_nothing_is_of_unknown_origin() -> None:
    assert combine_origins([]) == Origin() == Origin(kind="unknown")


@given(ORIGINS)
def test_marks_round_trip(origin: Origin) -> None:
    assert Origin.from_mark(origin.mark, source="test") == origin


@pytest.mark.parametrize(
    "text", ["robot", "martian", "robot ur10e cell", "robot \x00", "robot " + "a" * 200, "ROBOT a"]
)
def test_other_marks_are_refused(text: str) -> None:
    with pytest.raises(OriginError, match="is no origin; expected `robot MODEL/UNIT`"):
        Origin.from_mark(text, source="log.csv")


def test_a_robots_origin_names_the_robot() -> None:
    with pytest.raises(ValidationError, match="names the robot"):
        Origin(kind="robot")


def test_this_machine_has_a_name() -> None:
    assert Origin(kind="computer", machine=machine_text()).machine


def test_accepted_kinds() -> None:
    assert parse_accepted("computer, stand-in", option="--accept") == ("robot", "stand-in", "computer")
    with pytest.raises(OriginError, match=r"--accept 'desktop': 'desktop' is none of robot, stand-in"):
        parse_accepted("desktop", option="--accept")
