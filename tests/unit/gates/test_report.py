"""The page and the JUnit file: the answer first, everything escaped, nothing to load."""

import re
import shlex
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from physai.gates.judgement import WOULD_PASS
from physai.gates.report.html import Page, html_report, measurement_text
from physai.gates.report.junit import junit_xml
from physai.gates.report.pictures import Filmstrip
from physai.gates.report.summary import field_line, reasons, replay_options
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.verdict import (
    Cause,
    Counterexample,
    Evidence,
    GateResult,
    Measurement,
    Verdict,
    VerdictOutcome,
    combine,
)
from physai.sdk.pages.svg import Axis, Bar, PlotInterval, PlotSeries, bars, histogram, intervals, lines, ticks
from physai.sim.policies.resolve import TaskSource


def gate(name: str, outcome: VerdictOutcome, **fields: Any) -> GateResult:
    usual: dict[str, Any] = {"question": f"Is {name} well?", "method": "by looking", "threshold": "it is"}
    if outcome is not VerdictOutcome.PASS:
        usual |= {"message": f"{name} is <b>not</b> well", "next_step": "look & see"}
    if outcome is VerdictOutcome.FAIL:
        usual |= {"cause": Cause.POLICY}
    return GateResult(gate=name, outcome=outcome, **{**usual, **fields})


ROBOT = Origin(kind="robot", robot="arm/one")


def verdict(*gates: GateResult) -> Verdict:
    return Verdict(
        evidence=Evidence(twin=ROBOT, latency=ROBOT),
        policy_sha256="1" * 64,
        contract_fingerprint="2" * 64,
        twin_hash="3" * 64,
        gates_sha256="4" * 64,
        created="2026-11-21T12:00:00Z",
        gates=gates,
        outcome=combine(g.outcome for g in gates),
        versions={"numpy": "2.0"},
        physai_version="0.1.0",
    )


MIXED = verdict(
    gate("contract", VerdictOutcome.PASS, episodes=7),
    gate(
        "success",
        VerdictOutcome.FAIL,
        counterexample=Counterexample(index=1, description="it <fell>", episode_seed="5"),
    ),
    gate("engine", VerdictOutcome.INCONCLUSIVE),
)
PAGE = Page(task="tower & <script>", criterion="it stands", policy="a/<b>.onnx", twin="nominal")


@pytest.mark.parametrize(
    ("shown", "word"),
    [
        (verdict(gate("contract", VerdictOutcome.PASS, episodes=12)), "Yes"),
        (MIXED, "No"),
        (verdict(gate("contract", VerdictOutcome.INCONCLUSIVE)), "Not yet"),
    ],
)
def test_the_page_answers_first(shown: Verdict, word: str) -> None:
    page = html_report(shown, PAGE)
    answer = page.index(f'<div class="word">{word}</div>')
    assert answer < page.index('<table class="gates">')
    assert f"May I flash it? {word}: tower" in page


def test_the_answer_says_which_robots_accept_the_evidence() -> None:
    passed = verdict(gate("contract", VerdictOutcome.PASS, episodes=12))
    stand_in = Evidence(twin=Origin(kind="stand-in", robot="arm"), latency=Origin(kind="computer", machine="x86"))
    page = html_report(passed.model_copy(update={"evidence": stand_in}), PAGE)
    assert "Only to robots that accept this evidence: computer, stand-in; by default none does." in page
    assert '<div class="answer conditional">' in page, "not green"
    assert '<div class="word">Not by default</div>' in page
    assert "May I flash it? Not by default: tower" in page
    assert "twin from a stand-in for arm" in page
    assert "Only to robots" not in html_report(passed, PAGE)


def test_a_gate_that_examined_nothing_is_not_applicable() -> None:
    """And does not count among those that pass."""
    idle = gate("non-inferiority", VerdictOutcome.PASS, message="Nothing to compare.")
    exact = gate("parity", VerdictOutcome.PASS, measured=(Measurement(name="differences", value=0.0),))
    passed = verdict(gate("success", VerdictOutcome.PASS, episodes=12), exact, idle)
    assert [one.applies for one in passed.gates] == [True, True, False]
    assert passed.passed == "2 of 2 gates pass over 12 episodes; not applicable: non-inferiority"
    page = html_report(passed, PAGE)
    assert f"<p>{passed.passed}.</p>" in page
    assert page.count('<span class="pill">not applicable</span>') == 2, "in the table and in the details"
    suite = ElementTree.fromstring(junit_xml(passed, name="tower"))[0]
    assert (suite.get("tests"), suite.get("skipped"), suite.get("errors")) == ("3", "1", "0")
    assert [case.get("name") for case in suite.iter("testcase") if case.find("skipped") is not None] == [idle.gate]
    failed = verdict(gate("success", VerdictOutcome.FAIL), gate("twin", VerdictOutcome.INCONCLUSIVE))
    assert [one.shown for one in failed.gates] == ["FAIL", "INCONCLUSIVE"]


def test_a_verdict_is_shown_with_its_condition() -> None:
    stand_in = Evidence(twin=Origin(kind="stand-in", robot="arm"), latency=ROBOT)
    passed = verdict(gate("success", VerdictOutcome.PASS, episodes=12))
    assert passed.shown == "PASS"
    assert passed.model_copy(update={"evidence": stand_in}).shown == "PASS, only accepting stand-in"
    assert passed.model_copy(update={"evidence": Evidence()}).shown == "PASS, only accepting unknown"
    assert MIXED.model_copy(update={"evidence": stand_in}).shown == "FAIL"


def test_pictures_stand_on_the_page_or_the_reason_why_not() -> None:
    film = Filmstrip(pictures=["data:image/png;base64,AAAA"] * 2, times_s=[0.0, 1.5], caption="tower & crane")
    page = html_report(MIXED, replace(PAGE, film=film))
    assert page.count('<img src="data:image/png;base64,AAAA"') == 2
    assert "picture 2 of 2, after 1.5 s" in page
    assert "tower &amp; crane" in page
    page = html_report(MIXED, replace(PAGE, film=Filmstrip(caption="No picture: <no OpenGL>")))
    assert "<img" not in page
    assert "No picture: &lt;no OpenGL&gt;" in page


def test_nothing_is_loaded_and_nothing_slips_in() -> None:
    page = html_report(MIXED, PAGE)
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "url(" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "tower &amp; &lt;script&gt;" in page
    assert "success is &lt;b&gt;not&lt;/b&gt; well" in page
    assert "it &lt;fell&gt;" in page
    assert "a/&lt;b&gt;.onnx" in page


def test_failures_hide_what_is_only_undecided_and_say_what_to_do() -> None:
    page = html_report(MIXED, PAGE)
    answer = page[: page.index('<table class="gates">')]
    assert "<b>success</b>" in answer
    assert "look &amp; see" in answer
    assert "<b>engine</b>" not in answer


def test_gates_that_only_wait_for_the_twin_share_a_line() -> None:
    shown = verdict(
        gate("twin", VerdictOutcome.INCONCLUSIVE),
        gate("success", VerdictOutcome.INCONCLUSIVE, message=f"{WOULD_PASS} So there."),
        gate("safety", VerdictOutcome.INCONCLUSIVE, message=WOULD_PASS),
    )
    found = reasons(shown)
    assert [blocking.gate for blocking in found.blocking] == ["twin"]
    assert found.waiting == ("success", "safety")
    assert "success, safety: would pass in a credible twin" in html_report(shown, PAGE)


def test_the_plots_draw_what_the_gates_kept(tmp_path: Path) -> None:
    charts: dict[str, Any] = {
        "twin": {"window_s": 0.25, "joints": ["hip"], "twin": [[0.1, 0.05, 0.2]], "nominal": [[0.4, 0.3, 0.5]]},
        "success": {"success": [1, 1, 0]},
        "robustness": {"conditions": {"measured": [3, 4]}},
        "safety": {"joints": ["hip"], "used": {"speed": [[0.5, 1.2]], "effort": [None]}, "saturated": 0.1},
        "latency": {"counts": [5, 0, 1], "edges_s": [0.0, 0.001, 0.002, 0.003], "deadline_s": 0.002},
        "falsification": {"history": [[1.0, 1.5], [0.5, 1.4]], "size": 2.0},
        "engine": {"pairs": [1, 2, 64], "early_difference": 1e-4},
    }
    page = html_report(MIXED, Page(task="t", criterion="c", policy="p", twin="n", charts=charts, folder=tmp_path))
    assert page.count("<svg") == 6
    for title in ("logs", "perturbation", "limits used", "Tick", "Search", "engines"):
        assert re.search(rf"<h3>[^<]*{title}[^<]*</h3>", page), title
    assert "2 of 3, 95 % interval" in page
    assert "hip speed: median 50%, greatest 120%" in page


def test_an_episode_that_two_gates_show_is_one_panel_with_a_command_to_paste() -> None:
    case = Counterexample(index=1, description="calibrated: fell", episode_seed="5", recording="counterexamples/1.mcap")
    shown = verdict(
        gate("success", VerdictOutcome.FAIL, counterexample=case),
        gate("robustness", VerdictOutcome.FAIL, counterexample=case.model_copy(update={"description": "pushed: fell"})),
    )
    origin = TaskSource(task="my tasks/tower.py", robot="arms/it's.urdf", preset="tall")
    page = replace(PAGE, folder=Path("out put"), options=replay_options(origin))
    text = html_report(shown, page)
    assert text.count("<h3>1 · success, robustness</h3>") == 1
    assert "<p>calibrated: fell</p><p>pushed: fell</p>" in text
    command = unescape(re.findall(r"<code>(.*?)</code>", text)[0])
    assert shlex.split(command) == [
        *("physai", "play", "--counterexample", "1", "out put"),
        *("--task", "my tasks/tower.py", "--model", "arms/it's.urdf"),
    ]
    assert replay_options(TaskSource(task="ur10e-reach", robot="ur10e")) == ()


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        (Measurement(name="success_rate", value=0.5, lower=0.25, upper=0.75, confidence=0.95), "success rate 50.0%"),
        (Measurement(name="drop.quantised", value=-0.01, upper=0.04, confidence=0.9), "drop (quantised) -1.0%"),
        (Measurement(name="p99", value=0.0021, unit="s", threshold=0.01), "p99 2.1 ms"),
        (Measurement(name="missed_in_a_row", value=3.0, threshold=2.0), "missed in a row 3"),
    ],
)
def test_numbers_are_written_as_people_read_them(measured: Measurement, text: str) -> None:
    assert measurement_text(measured).startswith(text)


def test_junit_counts_what_is_undecided_as_an_error() -> None:
    root = ElementTree.fromstring(junit_xml(MIXED, name="t"))
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert cases["contract"].find("failure") is None
    failure = cases["success"].find("failure")
    assert failure is not None
    assert failure.get("type") == "policy"
    assert "success is <b>not</b> well" in (failure.text or "")
    assert cases["engine"].find("error") is not None


def test_an_axis_is_linear_and_ends() -> None:
    axis = Axis(0.0, 2.0, 100.0, 300.0)
    assert [axis.at(value) for value in (-1.0, 0.0, 0.5, 2.0, 9.0)] == [100.0, 100.0, 150.0, 300.0, 300.0]
    assert Axis(1.0, 1.0, 0.0, 10.0).at(1.0) == 0.0


@pytest.mark.parametrize(
    ("lower", "upper", "values"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 20.0, [0.0, 5.0, 10.0, 15.0, 20.0]),
        (-3.0, 4.0, [-2.0, 0.0, 2.0, 4.0]),
    ],
)
def test_ticks_are_round(lower: float, upper: float, values: list[float]) -> None:
    assert ticks(lower, upper) == pytest.approx(values)


def test_charts_bear_empty_and_odd_numbers() -> None:
    drawings = (
        intervals([PlotInterval("a<b", 0.5, 0.0, 1.0)], title="t", unit="", lower=0.0, upper=0.0),
        histogram([0, 0], [0.0, 1.0, 2.0], title="t", unit="ms", limit=5.0),
        bars([Bar("x", 0.0, 3.0)], title="t", limit=1.0, upper=2.0),
        lines([PlotSeries("s", [0.0, 1.0], [float("nan"), 1.0], "mark")], title="t", x_unit="s", y_unit="rad"),
        lines([], title="t", x_unit="s", y_unit="rad"),
    )
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert root.tag == "svg"
        assert "nan" not in drawing


def test_the_rate_on_the_robot_has_a_line_of_its_own() -> None:
    def of(*measured: Measurement) -> str:
        return field_line(verdict(gate("success", VerdictOutcome.PASS, measured=measured, episodes=320)))

    def rate(name: str, value: float, lower: float, upper: float) -> Measurement:
        return Measurement(name=name, value=value, lower=lower, upper=upper, confidence=0.95)

    alone = rate("success_rate.field_alone", 0.94, 0.835, 0.987)
    facts = [Measurement(name=f"success_rate.{name}", value=value) for name, value in (("replays", 0.6), ("twin", 0.9))]
    count = Measurement(name="field_episodes", value=50)
    worth = Measurement(name="field_episodes.effective", value=84.2)
    combined = rate("success_rate.field", 0.949, 0.878, 0.985)
    assert of(combined, alone, rate("field_correlation", 0.857, 0.391, 0.966), *facts, count, worth) == (
        "47 of 50, replays agree ρ = 0.86 [0.39, 0.97], rate 0.95 [0.88, 0.98], alone 0.94 [0.83, 0.99]"
    )
    unused = worth.model_copy(update={"value": 50.0})
    assert of(alone.model_copy(update={"name": "success_rate.field"}), alone, *facts, count, unused) == (
        "47 of 50, ρ unknown: robot or replays always did the same, rate 0.94 [0.83, 0.99] from the robot alone "
        "(replays 0.60, twin 0.90)"
    )
    assert of(combined) == ""
