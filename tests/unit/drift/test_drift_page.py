"""The page of a drift monitor: answer first, nothing loaded or run."""

from dataclasses import replace

from physai.drift import DriftReport, drift
from physai.drift.page import drift_page
from physai.drift.report import DriftMoment, DriftParameter, DriftStep
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin


def drifted(found: DriftReport) -> DriftReport:
    one = DriftParameter(
        name="link2.mass",
        kind="mass",
        owner="link2",
        unit="kg",
        amount=0.3,
        lower=0.2,
        upper=0.4,
        text="mass at <link2> +0.3 kg",
        usable_s=75.0,
        seen_from=0.06,
        watched=True,
        time_s=(0.0, 2.5),
        amounts=(0.29, 0.31),
    )
    moment = DriftMoment(recording="<b>heavy", sha256="0" * 64, time_s=5.0, clock_s=None)
    step = DriftStep(text="judge", command="physai sim validate 'a<b.onnx'")
    return replace(
        found,
        outcome="DRIFTED",
        reason=one.text,
        named=(one,),
        parameters=(one,),
        since=moment,
        since_s=5.0,
        steps=(step,),
    )


def test_names_of_files_are_text_and_the_page_runs_nothing(still_log: RobotLog, pendulum_twin: Twin) -> None:
    found = drift([replace(still_log, source="<script>alert(1)</script>.csv")], twin=pendulum_twin)
    page = drift_page(drifted(found))
    assert "<script" not in page
    assert "mass at &lt;link2&gt; +0.3 kg" in page
    assert "physai sim validate &#x27;a&lt;b.onnx&#x27;" in page
    assert "default-src 'none'" in page
    assert page.index("DRIFTED") < page.index("Changes over time") < page.index("Provenance")


def test_no_evidence_shows_what_the_time_went_to(still_log: RobotLog, pendulum_twin: Twin) -> None:
    page = drift_page(drift([still_log], twin=pendulum_twin))
    assert "NO EVIDENCE" in page
    assert "no motion commanded" in page
    assert "10.0 s" in page
