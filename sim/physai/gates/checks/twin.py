"""Gate `twin`: does the twin replay the robot's recordings, and reproduce its runs, well enough to be evidence?"""

from physai.gates.checks.gate import Context, DirectGate, GateFinding
from physai.sdk.evidence.verdict import Cause, Measurement, VerdictOutcome
from physai.sdk.stats.statistics import clopper_pearson
from physai.twin.claims.claims import contradiction
from physai.twin.model.closed_loop_evidence import ClosedLoop
from physai.twin.model.twin_file import Credibility


class TwinGate(DirectGate):
    """Checks the twin's credibility and the origin of its recordings."""

    name = "twin"
    question = "Does the twin replay held-out recordings?"

    def method(self, context: Context) -> str:
        return (
            "Open-loop replay of held-out recordings from measured states, from measured efforts and from commands, "
            "error per joint with a bootstrap 95 % interval, against the nominal robot and against the twin with one "
            "thing changed, on the same windows. A sample of the windows is replayed again. Recorded runs of a policy "
            "against its runs in the twin, from the same starts: success, time and trajectories, with their power."
        )

    def threshold(self, context: Context) -> str:
        return (
            "held-out error below its bound on every joint, significantly below the nominal robot's on one and above "
            "it on none; all changed twins that its robot asks for were compared, and none replays them significantly "
            "better; command lag that of the held-out recordings where they identify one; the sample's error that of "
            "the twin file, in motion of every joint; where recorded runs of policies were compared with runs in the "
            "twin, none contradicts it and at least one is reproduced"
        )

    def check(self, context: Context) -> GateFinding:
        twin = context.subject.twin
        credibility = twin.credible()
        robot = context.subject.task.robot
        if credibility.holds and (differs := contradiction(twin, robot)):
            credibility = Credibility(holds=False, reasons=(differs,))
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
        finding.measured += [part for number, record in enumerate(twin.closed_loop) for part in _rates(record, number)]
        if credibility.holds:
            finding.message = f"evidence: {', '.join(twin.evidence_kinds)}; {finding.message}"
        doubt, remedy = context.doubt("twin", twin.origin, context.twin_origin)
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
            if twin.closed_loop:
                finding.next_step += "; test the new twin, too: physai sim closed-loop twin.json POLICY LOGS…"
        elif twin.closed_loop and "closed loop" not in twin.evidence_kinds:
            finding.outcome, finding.cause = VerdictOutcome.INCONCLUSIVE, Cause.TWIN
            finding.next_step = (
                "record more runs of the policy on the robot, then run physai sim closed-loop TWIN POLICY LOGS… with "
                "all of its recordings"
            )
        elif doubt:
            finding.outcome, finding.cause, finding.message = VerdictOutcome.INCONCLUSIVE, Cause.TWIN, doubt
            finding.next_step = remedy
        return finding


def _rates(record: ClosedLoop, number: int) -> list[Measurement]:
    """Success of a recorded policy on the robot and in the twin."""
    successes, trials = record.real_successes, len(record.logs)
    lower, upper = clopper_pearson(successes, trials)
    name = f"closed_loop{number + 1}"
    return [
        Measurement(name=f"{name}.robot", value=successes / trials, lower=lower, upper=upper, confidence=0.95),
        Measurement(name=f"{name}.twin", value=record.twin_successes / max(1, record.twin_runs)),
    ]
