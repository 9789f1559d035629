"""Render a verdict as JUnit XML for CI systems, one test case per gate."""

from xml.etree import ElementTree

from physai.sdk.evidence.verdict import GateResult, Verdict, VerdictOutcome


def junit_xml(verdict: Verdict, *, name: str) -> bytes:
    """Return the verdict as JUnit XML, UTF-8; `name` identifies the test suite, for instance the task."""
    # An INCONCLUSIVE gate is an error: CI systems ignore skipped tests.
    count = {outcome: sum(gate.outcome is outcome for gate in verdict.gates) for outcome in VerdictOutcome}
    attributes = {
        "name": f"physai sim validate {name}",
        "tests": str(len(verdict.gates)),
        "failures": str(count[VerdictOutcome.FAIL]),
        "errors": str(count[VerdictOutcome.INCONCLUSIVE]),
        "skipped": str(sum(not gate.applies for gate in verdict.gates)),
        # JUnit's schema has no time zone.
        "timestamp": verdict.created.removesuffix("Z"),
    }
    suites = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(suites, "testsuite", attributes)
    properties = ElementTree.SubElement(suite, "properties")
    for key in ("policy_sha256", "contract_fingerprint", "twin_hash", "gates_sha256", "physai_version"):
        ElementTree.SubElement(properties, "property", {"name": key, "value": str(getattr(verdict, key))})
    for key in ("device", "run", "software"):
        if (value := getattr(verdict, key)) is not None:
            ElementTree.SubElement(properties, "property", {"name": key, "value": str(value)})
    for gate in verdict.gates:
        _add_case(suite, gate)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)


def _add_case(suite: ElementTree.Element, gate: GateResult) -> None:
    case = ElementTree.SubElement(suite, "testcase", {"classname": "physai.gates", "name": gate.gate})
    if not gate.applies:
        ElementTree.SubElement(case, "skipped", {"message": gate.message})
    if gate.outcome is not VerdictOutcome.PASS:
        tag = "failure" if gate.outcome is VerdictOutcome.FAIL else "error"
        cause = gate.cause.value if gate.cause else gate.outcome.value
        element = ElementTree.SubElement(case, tag, {"type": cause, "message": gate.message})
        element.text = f"{gate.question}\n{gate.threshold}\n{gate.message}\n{gate.next_step}"
    output = ElementTree.SubElement(case, "system-out")
    output.text = "\n".join(f"{m.name} = {m.value:g} {m.unit}".rstrip() for m in gate.measured)
