"""A verdict as JUnit XML, which every CI system shows: one test case per gate."""

from xml.etree import ElementTree

from physai.sdk.evidence.verdict import GateResult, Verdict, VerdictOutcome


def junit_xml(verdict: Verdict, *, name: str) -> bytes:
    """The verdict as JUnit XML, UTF-8.

    A gate that is INCONCLUSIVE is an error: a CI system must not show it as passed or as skipped.

    Args:
        verdict: what to show.
        name: of the test suite, such as the task's.
    """
    count = {outcome: sum(gate.outcome is outcome for gate in verdict.gates) for outcome in VerdictOutcome}
    attributes = {
        "name": f"physai sim validate {name}",
        "tests": str(len(verdict.gates)),
        "failures": str(count[VerdictOutcome.FAIL]),
        "errors": str(count[VerdictOutcome.INCONCLUSIVE]),
        "timestamp": verdict.created.removesuffix("Z"),
    }
    suites = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(suites, "testsuite", attributes)
    properties = ElementTree.SubElement(suite, "properties")
    for key in ("policy_sha256", "contract_fingerprint", "twin_hash", "gates_sha256", "physai_version"):
        ElementTree.SubElement(properties, "property", {"name": key, "value": str(getattr(verdict, key))})
    for gate in verdict.gates:
        _add_case(suite, gate)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)


def _add_case(suite: ElementTree.Element, gate: GateResult) -> None:
    case = ElementTree.SubElement(suite, "testcase", {"classname": "physai.gates", "name": gate.gate})
    if gate.outcome is not VerdictOutcome.PASS:
        tag = "failure" if gate.outcome is VerdictOutcome.FAIL else "error"
        cause = gate.cause.value if gate.cause else gate.outcome.value
        element = ElementTree.SubElement(case, tag, {"type": cause, "message": gate.message})
        element.text = f"{gate.question}\n{gate.threshold}\n{gate.message}\n{gate.next_step}"
    output = ElementTree.SubElement(case, "system-out")
    output.text = "\n".join(f"{m.name} = {m.value:g} {m.unit}".rstrip() for m in gate.measured)
