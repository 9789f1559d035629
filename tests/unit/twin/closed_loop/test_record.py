"""The record in the twin file: what it says, what it does to the credibility, and that it belongs to the twin."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.evidence.origin import Origin
from physai.sim.robots import load_robot
from physai.twin.closed_loop.closed_loop import DRAWS, with_record
from physai.twin.closed_loop.commands import AGREEMENT, SHIFTS, TOLERANCE
from physai.twin.closed_loop.compare import MARGIN, NEEDED, RATE_NEEDED
from physai.twin.model.closed_loop_evidence import POWER, SIGNIFICANCE, ClosedLoop, ClosedLoopTest, ClosedLoopVerdict
from physai.twin.model.twin import Twin, load_twin, moved_twin, nominal_twin, save_twin
from physai.twin.model.twin_file import Interval, LogRecord, Logs, Residuals


def one_test(verdict: ClosedLoopVerdict = "reproduced", *, decides: bool = True) -> ClosedLoopTest:
    """A test of the time with this verdict: 2.0 s recorded, 0.2 s negligible, 0.4 s needed."""
    return ClosedLoopTest(
        name="time",
        unit="s",
        real=2.0,
        twin=2.3,
        difference=0.3,
        p_value=0.01 if verdict == "contradicted" else 0.5,
        margin=0.2,
        detectable=0.9 if verdict == "undecided" else 0.3,
        needed=0.4,
        decides=decides,
    )


def record(twin: Twin, verdict: ClosedLoopVerdict = "reproduced", *, logs: str = "cd", policy: str = "e") -> ClosedLoop:
    return ClosedLoop(
        twin_sha256=twin.open_loop_hash,
        policy_sha256=policy * 64,
        contract_fingerprint="f" * 64,
        task="reach",
        logs=tuple(LogRecord(name=name, sha256=name * 64) for name in logs),
        command_agreement=0.99,
        length_s=4.0,
        real_successes=len(logs),
        twin_successes=90,
        twin_runs=100,
        draws=50,
        compared="succeeded",
        compared_runs=len(logs),
        tests=(one_test(verdict),),
    )


@pytest.fixture
def twin() -> Twin:
    """Credible by open-loop replay."""
    of = Origin(kind="robot", robot="simple_pendulum/1")
    good, bad = Interval(value=0.002, lo=0.001, hi=0.003), Interval(value=0.02, lo=0.018, hi=0.022)
    return replace(
        nominal_twin(load_robot("simple_pendulum")),
        residuals=Residuals(
            window_s=0.25,
            joint_names=("shoulder",),
            twin=(good,),
            nominal=(bad,),
            gain=(Interval(value=0.018, lo=0.016, hi=0.02),),
            motion=(0.2,),
        ),
        logs=Logs(
            train=(LogRecord(name="a", sha256="a" * 64, origin=of),),
            held_out=tuple(LogRecord(name=name, sha256=name * 64, origin=of, duration_s=10.0) for name in "b1"),
        ),
    )


def test_a_test_decides_by_significance_margin_and_power() -> None:
    assert one_test("contradicted").verdict == "contradicted"
    assert one_test("reproduced").verdict == "reproduced"
    assert one_test("undecided").verdict == "undecided"
    negligible = one_test("contradicted").model_copy(update={"difference": 0.19})
    assert negligible.verdict == "reproduced"
    powerless = one_test().model_copy(update={"detectable": None})
    assert powerless.verdict == "undecided"


@given(st.lists(st.sampled_from(["reproduced", "contradicted", "undecided"]), min_size=1, max_size=5), st.randoms())
def test_the_worst_deciding_test_is_the_verdict(verdicts: list[ClosedLoopVerdict], random: object) -> None:
    made = record(nominal_twin(load_robot("simple_pendulum")))
    tests = tuple(one_test(verdict) for verdict in verdicts)
    order: list[ClosedLoopVerdict] = ["contradicted", "undecided", "reproduced"]
    expected = next(verdict for verdict in order if verdict in verdicts)
    informing = (one_test("contradicted", decides=False),)
    assert made.model_copy(update={"tests": (*informing, *tests)}).verdict == expected


def test_a_contradicted_twin_is_not_credible(twin: Twin) -> None:
    assert twin.credible().holds
    assert twin.evidence_kinds == ("effort replay",)
    tested = with_record(twin, record(twin, "contradicted"))
    credibility = tested.credible()
    assert not credibility.holds
    assert "contradicted (success 2 of 2 on the robot, 90% in the twin)" in credibility.reasons[0]
    assert "time: 2 on the robot, 2.3 in the twin, s (p = 0.01, 0.2 s would be negligible)" in credibility.reasons[0]
    assert tested.evidence_kinds == ("effort replay",)


def test_a_reproduced_policy_is_a_kind_of_evidence(twin: Twin) -> None:
    tested = with_record(twin, record(twin))
    assert tested.credible().holds
    assert tested.evidence_kinds == ("effort replay", "closed loop")
    assert any("reproduced" in reason for reason in tested.credible().reasons)


def test_an_undecided_test_does_not_speak_against_a_twin(twin: Twin) -> None:
    tested = with_record(twin, record(twin, "undecided"))
    assert tested.credible().holds
    assert tested.evidence_kinds == ("effort replay",)
    assert "only differences above 0.9 s, 0.4 s are needed" in tested.credible().reasons[-1]


def test_a_record_of_another_twin_does_not_count(twin: Twin) -> None:
    other = replace(twin, notes=("another",))
    tested = with_record(twin, record(other))
    assert not tested.credible().holds
    assert "of another twin" in tested.credible().reasons[0]
    assert tested.evidence_kinds == ("effort replay",)


def test_fewer_recordings_do_not_replace_a_contradiction(twin: Twin) -> None:
    contradicted = with_record(twin, record(twin, "contradicted", logs="cde"))
    chosen = with_record(contradicted, record(twin, "reproduced", logs="cd"))
    assert len(chosen.closed_loop) == 2
    assert not chosen.credible().holds
    more = with_record(contradicted, record(twin, "reproduced", logs="cdef"))
    assert len(more.closed_loop) == 1
    assert more.credible().holds
    assert len(with_record(more, record(twin, policy="d")).closed_loop) == 2


def test_records_are_part_of_the_file_and_of_the_hash(twin: Twin, tmp_path: Path) -> None:
    tested = with_record(twin, record(twin))
    assert tested.hash != twin.hash
    assert tested.open_loop_hash == twin.hash
    save_twin(tested, tmp_path / "twin.json")
    read = load_twin(tmp_path / "twin.json")
    assert read.closed_loop == tested.closed_loop
    # Twins that were never tested have no such field, so that files from before keep their hash.
    save_twin(twin, tmp_path / "old.json")
    assert "closed_loop" not in (tmp_path / "old.json").read_text()


def test_recordings_of_unknown_origin_count_for_the_origin(twin: Twin) -> None:
    assert twin.origin.kind == "robot"
    assert with_record(twin, record(twin)).origin.kind == "unknown"


def test_a_twin_of_a_robots_file_keeps_its_records_when_moved(tmp_path: Path, twin: Twin) -> None:
    robot = tmp_path / "pendulum.xml"
    robot.write_text(load_robot("simple_pendulum").path.read_text())
    here = replace(twin, robot=robot.name, folder=str(tmp_path))
    tested = with_record(here, record(here))
    (tmp_path / "sub").mkdir()
    moved = moved_twin(tested, tmp_path / "sub")
    assert moved.robot == "../pendulum.xml"
    assert moved.nominal().spec == here.nominal().spec
    assert moved.evidence_kinds == tested.evidence_kinds == ("effort replay", "closed loop")


def test_the_documentation_states_the_rule() -> None:
    text = (Path(__file__).parents[4] / "docs" / "explanation" / "closed-loop.md").read_text()
    section = " ".join(text.split())
    assert TOLERANCE == 0.1
    assert "within a tenth of the commands' root mean square" in section
    assert f"at least {100 * AGREEMENT:.0f} % of the control periods" in section
    assert SHIFTS - 1 == 3
    assert "up to three samples after" in section
    assert f"Each of {DRAWS} draws" in section
    assert f"a difference of {RATE_NEEDED:g}" in section
    assert f"{100 * MARGIN:.0f} % of the recorded time | {100 * NEEDED * MARGIN:.0f} %" in section
    assert f"{100 * MARGIN:.0f} % of the motion | {100 * NEEDED * MARGIN:.0f} %" in section
    assert f"below {SIGNIFICANCE:g}" in section
    assert f"{100 * POWER:.0f} % probability" in section
