"""Gate `twin`: does the twin replay the robot's recordings well enough to be evidence?"""

from physai.sdk.evidence.requirements import REMEDIES
from physai.sdk.evidence.verdict import Cause, Measurement, VerdictOutcome
from physai.sim.gates.checks.gate import Context, DirectGate, GateFinding
from physai.sim.twin.record import Credibility
from physai.sim.twin.spot_check import spot_check


class TwinGate(DirectGate):
    """Checks the twin's credibility and the origin of its recordings."""

    name = "twin"
    question = "Does the twin replay held-out recordings?"

    def method(self, context: Context) -> str:
        return (
            "Open-loop replay of held-out recordings from measured states, from measured efforts and from commands, "
            "error per joint with a bootstrap 95 % interval, against the nominal robot and against the twin with one "
            "thing changed, on the same windows. A sample of the windows is replayed again."
        )

    def threshold(self, context: Context) -> str:
        return (
            "held-out error below its bound on every joint, significantly below the nominal robot's on one and above "
            "it on none; no changed twin replays them significantly better; command lag that of the held-out "
            "recordings where they identify one; the sample's error that of the twin file"
        )

    def check(self, context: Context) -> GateFinding:
        twin = context.subject.twin
        credibility = twin.credible()
        if credibility.holds and (changed := spot_check(twin, context.subject.task.robot)):
            credibility = Credibility(holds=False, reasons=(changed,))
        residuals = twin.residuals
        finding = GateFinding(outcome=VerdictOutcome.PASS, message="; ".join(credibility.reasons))
        if residuals is not None:
            finding.measured = [
                Measurement(
                    name=f"rmse.{joint}"[:64], value=error.value, lower=error.lo, upper=error.hi, confidence=0.95
                )
                for joint, error in zip(residuals.joint_names, residuals.twin, strict=True)
            ]
            finding.chart = {
                "window_s": residuals.window_s,
                "joints": list(residuals.joint_names),
                "twin": [[e.value, e.lo, e.hi] for e in residuals.twin],
                "nominal": [[e.value, e.lo, e.hi] for e in residuals.nominal],
            }
        doubt = context.doubt("twin", twin.origin)
        if not credibility.holds:
            finding.outcome, finding.cause = VerdictOutcome.INCONCLUSIVE, Cause.TWIN
            finding.message = (
                f"The twin is not credible: {finding.message}. A policy's behaviour in it is no evidence about the "
                "robot."
            )
            finding.next_step = (
                "record the robot moving through its range, then run physai sim calibrate "
                f"{twin.robot} LOGS… -o twin.json and validate with --twin twin.json"
            )
        elif doubt:
            finding.outcome, finding.cause, finding.message = VerdictOutcome.INCONCLUSIVE, Cause.TWIN, doubt
            finding.next_step = f"{REMEDIES['twin']}; or accept it: `--accept {twin.origin.kind}`"
        return finding
