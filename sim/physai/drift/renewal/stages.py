"""Stages of a renewal after a drift was found: twin, verdict, and the signature or revocation."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from physai.drift.errors import DriftError
from physai.gates.report.validation_options import REPORT_FOLDER, ValidationOptions

if TYPE_CHECKING:
    from physai.drift.renewal.judged_policy import JudgedPolicy
    from physai.drift.renewal.steps import RenewalSteps
    from physai.drift.watch import WatchedInputs
    from physai.gates.checks.gate import Context
    from physai.gates.report.validation import Progress
    from physai.gates.runner import ProgressLine
    from physai.sdk.bundle.manifest import Bundle
    from physai.sdk.evidence.verdict import GateResult, Verdict
    from physai.sdk.signing.ed25519 import SigningKey
    from physai.sdk.signing.files.rederivation import VerdictTerms
    from physai.twin.calibration.fit.fit import FitProgress
    from physai.twin.logs import RobotLog

TWIN_FILE = "twin.json"
MAX_REASON = 480
"""Characters of the reason in a status document."""
GIVEN = ("parity", "engine", "latency")
"""Gates that are undecided if a file or a package is missing; so is non-inferiority, which then plays no episode."""
LINE_SHARE = 0.1
"""Share of a stage between two lines about it."""


class RenewalAct(NamedTuple):
    """Last stage of a renewal."""

    file: Path | None
    """Bundle or status document that was signed; None without a key."""
    command: str
    """Command that is left to run, for a shell; empty if there is none."""


@dataclass(frozen=True, kw_only=True)
class RenewalStages:
    """Steps after a drift was found."""

    steps: RenewalSteps
    inputs: WatchedInputs
    policy: JudgedPolicy
    key: SigningKey | None
    say: Callable[[str], None]

    @property
    def _key_id(self) -> str:
        return "" if self.key is None else self.key.key_id

    def twin(
        self, drift: Mapping[str, object], logs: Sequence[RobotLog], budget_steps: int, recorded_on: str | None
    ) -> Path:
        """Fit a twin to recordings since the change; return its file."""
        from physai.twin.calibration.from_recordings import calibrate

        file = self.steps.folder / TWIN_FILE
        of: dict[str, object] = {
            "drift": drift,
            "logs": [log.sha256 for log in logs],
            "budget_steps": budget_steps,
            "recorded_on": recorded_on,
            "key": self._key_id,
        }
        if self.steps.is_done("twin", of, file):
            self.say(f"2/4 twin: done before, {file}")
            return file
        tell = share_lines("2/4 twin", self.say)

        def progress(step: FitProgress) -> None:
            tell(step.share)

        found = calibrate(
            self.inputs.robot,
            logs,
            out=file,
            budget_steps=budget_steps,
            recorded_on=recorded_on,
            key=self.key,
            progress=progress,
            say=self.say,
        )
        self.steps.keep("twin", of, file)
        credibility = found.twin.credible()
        word = "credible" if credibility.holds else "not credible"
        self.say(f"2/4 twin: {word}: {'; '.join(credibility.reasons)}")
        return file

    def verdict(self, twin: Path, options: ValidationOptions) -> Verdict:
        """Judge the policy in a twin; return the verdict, whose report is in the folder."""
        from physai.drift.renewal.steps import file_sha256, option_hashes
        from physai.gates.report.validation import validate
        from physai.sdk.evidence.verdict import VERDICT_FILE, load_verdict

        folder = self.steps.folder / REPORT_FOLDER
        of = {"twin": file_sha256(twin), "policy": self.policy.sha256, "options": option_hashes(options)}
        if self.steps.is_done("verdict", of, folder / VERDICT_FILE):
            verdict = load_verdict(folder)
            self.say(f"3/4 verdict: done before, {verdict.outcome}")
            return verdict
        file = self.policy.file(self.steps.folder)
        verdict = validate(file, twin, report=folder, options=options, progress=_gates(self.say))
        require_judged(verdict, self.policy.path)
        self.steps.keep("verdict", of, folder / VERDICT_FILE)
        if self.policy.verdict is not None and self.policy.verdict.gates_sha256 != verdict.gates_sha256:
            self.say("note: the present verdict was reached with other settings of the gates")
        self.say(f"3/4 verdict: {verdict.outcome}")
        return verdict

    def signed(self, verdict: Verdict, terms: VerdictTerms, status: Path) -> RenewalAct:
        """Sign the new verdict in a copy of the bundle, or say how."""
        from physai.drift.renewal.steps import option_hashes
        from physai.sdk.signing.files.bundles import sign_as_validator

        path, report = self.policy.path, self.steps.folder / REPORT_FOLDER
        out, verb = self.steps.folder / path.name, "pack" if self.policy.bundle is None else "sign"
        if self.key is None or self.policy.bundle is None:
            words = ["physai", "bundle", verb, str(path), "--verdict", str(report), "--robot", str(terms.robot)]
            more = [] if self.policy.bundle is None else ["--replace", "--out", str(out)]
            return RenewalAct(None, shlex.join([*words, *more]))
        of = {"of": self._of(verdict), "terms": option_hashes(terms)}
        if not self.steps.is_done("bundle", of, out):
            sign_as_validator(path, self.key, report, terms=terms, out=out, replace=True)
            self.steps.keep("bundle", of, out)
        return RenewalAct(out, self._lifting(self.policy.bundle, str(terms.robot), status))

    def _lifting(self, bundle: Bundle, robot: str, status: Path) -> str:
        """Return the command that takes back an earlier revocation of the same bundle; empty if there is none."""
        from physai.sdk.base.files import read_bounded
        from physai.sdk.signing.status.status_document import MAX_STATUS_BYTES, StatusError, parse_status

        if not status.is_file():
            return ""
        word = parse_status(read_bounded(status, limit=MAX_STATUS_BYTES, error=StatusError))
        if word == word.without(bundle.id, bundle.sha256):
            return ""
        return shlex.join([*self._revoke(robot, status), "--lift"])

    def _revoke(self, robot: str, status: Path) -> list[str]:
        bundle = "BUNDLE" if self.policy.bundle is None else str(self.policy.path)
        return ["physai", "bundle", "revoke", bundle, "--robot", robot, "--out", str(status)]

    def revoked(self, verdict: Verdict, reason: str, terms: VerdictTerms, status: Path) -> RenewalAct:
        """Revoke the bundle in a status document, or say how."""
        from physai.sdk.signing.files.status_files import revoke_verdict

        robot = str(terms.robot)
        reason = " ".join(f"drift: {reason}; judged again: {verdict.outcome}".split())[:MAX_REASON]
        if self.key is None or self.policy.bundle is None:
            return RenewalAct(None, shlex.join([*self._revoke(robot, status), "--reason", reason]))
        of = {"of": self._of(verdict), "robot": robot}
        if not self.steps.is_done("status", of, status):
            revoke_verdict([self.key], self.policy.path, robot=robot, reason=reason, out=status, trust=terms.trust)
            self.steps.keep("status", of, status)
        return RenewalAct(status, "")

    def _of(self, verdict: Verdict) -> list[str]:
        return [verdict.sha256, self.policy.sha256, self._key_id]


def require_judged(verdict: Verdict, path: Path) -> None:
    """Require that a verdict which is no PASS speaks against the policy, and not for other arguments.

    Raises:
        DriftError: the policy is of another task, or all that is missing is what a user gives or installs.
    """
    held = [gate for gate in verdict.gates if gate.outcome != "PASS"]
    # The contract gate passed for the same bytes before, and after it no gate ran.
    wrong = [gate for gate in held if gate.gate == "contract"] or held
    if wrong and all(gate.gate == "contract" or _is_missing(gate) for gate in wrong):
        told = "; ".join(f"{gate.gate}: {gate.message} {gate.next_step}" for gate in wrong)
        raise DriftError(f"{path} was not judged, and nothing was signed or revoked: {told}")


def _is_missing(gate: GateResult) -> bool:
    idle = gate.gate == "non-inferiority" and not gate.episodes
    return gate.outcome == "INCONCLUSIVE" and (idle or gate.gate in GIVEN)


def share_lines(label: str, say: Callable[[str], None]) -> Callable[[float], None]:
    """Return what says a share that is done, a line for each tenth."""
    said = 0.0

    def tell(share: float) -> None:
        nonlocal said
        if share >= said + LINE_SHARE:
            said = share
            say(f"{label}: {share:.0%}")

    return tell


def _gates(say: Callable[[str], None]) -> Progress:
    """Return progress of a validation with a line for each gate that is done."""

    @contextlib.contextmanager
    def opened(context: Context) -> Generator[Callable[[Sequence[ProgressLine]], None]]:
        said: set[str] = set()

        def tell(lines: Sequence[ProgressLine]) -> None:
            for line in lines:
                if line.finding is not None and line.gate.name not in said:
                    said.add(line.gate.name)
                    say(f"3/4 {line.gate.name}: {line.finding.shown}")

        yield tell

    return opened
