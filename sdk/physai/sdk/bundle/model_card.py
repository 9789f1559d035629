"""The model card of a bundle: Markdown with YAML metadata, as on the Hugging Face Hub, from what the bundle is made of.

Format: https://huggingface.co/docs/hub/model-cards. Every text that comes from a file is escaped, so that no name of a
task, gate or run becomes markup, a link or a terminal's control sequence. Raters are counted, not named.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from physai.sdk.contract.gaps import contract_lacks
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.preferences import Preferences
from physai.sdk.evidence.verdict import GateResult, Measurement, Verdict
from physai.sdk.policy.header import POLICY_FILE, PolicyHeader
from physai.sdk.policy.run_identity import FACTS_KEY, ID_KEY, Run

MAX_VALUE = 300
"""Characters of a value from a file; longer ones are cut."""

MAX_ROWS = 64
"""Rows of a table; further ones are counted."""

# CommonMark 2.4: a backslash makes a punctuation character plain.
_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"} | {one: f"\\{one}" for one in "\\`*_{}[]()#|~!$"}
)
# What GitHub makes a link although it is no markup (GFM 6.9).
_ADDRESS = re.compile(r"(www(?=\.)|:(?=//))", re.IGNORECASE)
_SHOWN = ("seed", "iteration", "git_commit", "image", "python", "platform")
"""Entries of the provenance that a reader wants to see; the manifest has all."""


def model_card(header: PolicyHeader, policies: Mapping[str, str], verdict: Verdict | None) -> str:
    """The card, Markdown; version and time of packing are in the manifest.

    Args:
        header: of the float policy.
        policies: SHA-256 of each policy by file name.
        verdict: what is known when the bundle is packed; robots go by the signed one.

    Raises:
        StatedPreferencesError: what the policy states of preferences is malformed.
    """
    contract = header.contract
    preferences = Preferences.stated(header.provenance, source=POLICY_FILE)
    sections = (
        ("Model details", _details(header, policies)),
        ("Uses", _uses(contract)),
        ("Training details", _training(header.provenance)),
        *(() if preferences is None else (("Preferences", _preferences(preferences)),)),
        ("Evaluation", _evaluation(verdict)),
        ("Risks and limitations", _limits(contract, preferences)),
    )
    title = f"# {plain(contract.task)} on {plain(contract.robot.name)}"
    body = [line for name, lines in sections for line in ("", f"## {name}", "", *lines)]
    return "\n".join([*_metadata(contract, preferences), "", title, *body]) + "\n"


def plain(text: str) -> str:
    """Text as Markdown that shows it and nothing else, on one line."""
    shown = "".join(c if c.isprintable() else " " for c in text[: 2 * MAX_VALUE])
    line = " ".join(shown.split())
    line = line if len(line) <= MAX_VALUE else line[: MAX_VALUE - 1] + "…"
    return _ADDRESS.sub(r"\1\\", line.translate(_ESCAPES)) or "none"


def _metadata(contract: PolicyContract, preferences: Preferences | None) -> list[str]:
    tags = ["robotics", "physai", "onnx", *(() if preferences is None else ("preferences",))]
    # JSON is YAML: json.dumps quotes names that YAML would read as something else.
    return [
        "---",
        "library_name: physai",
        "pipeline_tag: robotics",
        f"tags: {json.dumps(tags)}",
        f"task: {json.dumps(contract.task)}",
        f"robot: {json.dumps(contract.robot.name)}",
        "---",
    ]


def _details(header: PolicyHeader, policies: Mapping[str, str]) -> list[str]:
    contract = header.contract
    rows = [
        ("task", contract.task),
        ("robot", contract.robot.name),
        ("joints", str(len(contract.robot.joints))),
        ("contract", contract.fingerprint),
        ("control period", f"{1e3 * contract.timing.control_dt:g} ms"),
        *((f"SHA-256 of {name}", sha256) for name, sha256 in policies.items()),
        ("run", header.provenance.get(ID_KEY, "unknown: the policy names none")),
    ]
    return _table(("what", "value"), rows)


def _uses(contract: PolicyContract) -> list[str]:
    task, robot = plain(contract.task), plain(contract.robot.name)
    return [
        f"Intended use: the task {task} on robots of the model {robot}, through a runtime that keeps contract.json and "
        "safety.json of this bundle.",
        "",
        "Out of scope: other robots, tasks and contracts, and robots whose owner does not accept the verdict.",
    ]


def _training(entries: Mapping[str, str]) -> list[str]:
    rows = [(name, entries[name]) for name in _SHOWN if entries.get(name)]
    rows += [(name, value) for name, value in sorted(entries.items()) if name.startswith("version.")]
    if FACTS_KEY in entries:
        run = Run.parse(entries[FACTS_KEY], source="the policy").facts
        rows += [("software", str(run.software)), ("settings", run.settings)]
        rows += [(f"made from {name}", sha256) for name, sha256 in sorted(run.files.items())]
    return _table(("what", "value"), rows)


def _preferences(learned: Preferences) -> list[str]:
    agreement = "unknown: no two raters answered the same pair"
    if learned.agreement is not None:
        agreement = f"Krippendorff's α = {learned.agreement:.2f}"
    accuracy = "unknown: no answer was held out"
    if learned.accuracy is not None:
        accuracy = f"predicts {learned.accuracy:.0%} of {learned.held_out} held-out answers"
        if learned.accuracy_lower is not None and learned.accuracy_upper is not None:
            accuracy += f" (95 %: {learned.accuracy_lower:.0%} to {learned.accuracy_upper:.0%})"
    rows = [
        ("database", learned.database),
        ("answers", str(learned.answers)),
        ("raters", f"{learned.rater_count}, {learned.simulated} of them simulated teachers by name"),
        ("raters' hash", learned.raters),
        ("agreement of raters", agreement),
        ("reward model", learned.reward_model),
        ("accuracy of the reward model", accuracy),
        ("fine-tuned from", learned.reference or "nothing: it learned by preferences alone"),
    ]
    return _table(("what", "value"), rows)


def _evaluation(verdict: Verdict | None) -> list[str]:
    if verdict is None:
        return ["No verdict was known when this was packed; `physai bundle inspect` shows one that was added later."]
    rows = [
        ("outcome", verdict.shown),
        ("policy", verdict.policy_sha256),
        ("twin", f"{verdict.twin_hash}, from {verdict.evidence.twin}"),
        ("latency", f"from {verdict.evidence.latency}"),
        ("gate settings", verdict.gates_sha256),
        ("created", f"{verdict.created} by physai {verdict.physai_version}"),
    ]
    gates = [
        (gate.gate, gate.shown, str(gate.episodes or ""), measured, gate.threshold)
        for gate in verdict.gates
        for measured in [_measured(gate)]
    ]
    return [
        *_table(("what", "value"), rows),
        "",
        *_table(("gate", "outcome", "episodes", "measured", "passes if"), gates),
        "",
        "This is what `physai sim validate` found before the bundle was packed. Robots go by verdict.dsse, which "
        "validators sign.",
    ]


def _measured(gate: GateResult) -> str:
    # All comparisons of this gate, and of others the number that decides.
    shown = gate.measured if gate.gate == "non-inferiority" else gate.measured[:1]
    return "; ".join(_measurement(one) for one in shown)


def _measurement(one: Measurement) -> str:
    text = f"{one.name} {one.value:.4g} {one.unit}".rstrip()
    if one.lower is not None and one.upper is not None and one.confidence is not None:
        text += f" ({one.confidence:.3g}: {one.lower:.4g} to {one.upper:.4g})"
    return text


def _limits(contract: PolicyContract, preferences: Preferences | None) -> list[str]:
    lines = [
        "- The gates are played in a simulated twin of the robot; see where it comes from under Evaluation.",
        "- A verdict is about the task of the contract. It does not say that a motion is pleasant or safe near people.",
    ]
    if preferences is None:
        lines.append("- The policy states no preferences. That does not prove that it learned from none.")
    else:
        lines.append("- Preferences are those of the raters who were asked; others may judge otherwise.")
    return [*lines, *(f"- Left open by the contract: {plain(lack)}" for lack in contract_lacks(contract))]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return list(_rows(header, rows)) if rows else ["Nothing is recorded."]


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows[:MAX_ROWS]:
        yield f"| {' | '.join(plain(cell) if cell else ' ' for cell in row)} |"
    if len(rows) > MAX_ROWS:
        yield f"| and {len(rows) - MAX_ROWS} more |{' |' * (len(header) - 1)}"
