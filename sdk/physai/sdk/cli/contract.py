"""`physai contract`: show a contract, compare two, print the schema."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.verb import AsJson, noun, verb

if TYPE_CHECKING:
    from physai.sdk.contract.policy_contract import PolicyContract
    from physai.sdk.contract.terms import ObservationTerm


@verb(summary="print a contract")
def _show(file: str, *, as_json: AsJson = False) -> int:
    """Print a contract.

    Args:
        file: a contract.json, a folder with one (a run), or an .onnx file with an embedded contract.
    """
    from physai.sdk.contract.gaps import contract_lacks
    from physai.sdk.contract.io import load_contract

    contract = load_contract(file)
    lacks = contract_lacks(contract)
    if as_json:
        slices = {name: [part.start, part.stop] for name, part in contract.observation_slices.items()}
        record = {
            "fingerprint": contract.fingerprint,
            "observation_size": contract.observation_size,
            "observation_slices": slices,
            "lacks": lacks,
            "contract": contract.model_dump(mode="json"),
        }
        print(json.dumps(record, indent=2))
    else:
        unprotected = _section(f"lacks ({len(lacks)})", "\n".join(f"  {sentence}" for sentence in lacks))
        print("\n".join([*_sections(contract), *unprotected]))
    return 0


@verb(summary="list the differences between two contracts")
def _diff(left: str, right: str, *, as_json: AsJson = False) -> int:
    """Compare two contracts.

    exit code: 0 they are the same, 1 they differ

    Args:
        left: a contract.json, a folder with one (a run), or an .onnx file with an embedded contract.
        right: another.
    """
    from dataclasses import asdict

    from physai.sdk.contract.contract_diff import diff, format_diff
    from physai.sdk.contract.io import load_contract

    a, b = load_contract(left), load_contract(right)
    differences = diff(a, b)
    if as_json:
        record = {
            "same": not differences,
            "left": {"file": left, "fingerprint": a.fingerprint},
            "right": {"file": right, "fingerprint": b.fingerprint},
            "differences": [asdict(difference) for difference in differences],
        }
        print(json.dumps(record, indent=2))
    elif differences:
        print(printable(f"{left} ({a.fingerprint[:12]}) and {right} ({b.fingerprint[:12]}) differ:"))
        print(printable(format_diff(differences, left=left, right=right)))
    else:
        print(f"same contract, fingerprint {a.fingerprint}")
    return 1 if differences else 0


@verb(summary="print the JSON Schema of contract files")
def _schema() -> int:
    """Print the schema."""
    from physai.sdk.contract.contract_schema import schema_text

    sys.stdout.write(schema_text())
    return 0


def _sections(contract: PolicyContract) -> list[str]:
    timing, robot = contract.timing, contract.robot
    return [
        f"task         {contract.task}",
        f"robot        {robot.name}, {robot.base} base",
        f"fingerprint  {contract.fingerprint}",
        f"format       {contract.format_version}",
        *_section(f"joints ({len(robot.joints)})", _joints(contract)),
        *_section(f"sensors ({len(robot.sensors)})", _sensors(contract)),
        *_section(f"commands ({len(contract.command.fields)})", _commands(contract)),
        *_section(f"observation ({contract.observation_size})", _observation(contract)),
        *_section(f"action ({contract.action.size})", _action(contract)),
        *_section(
            "timing",
            f"  control period {_number(timing.control_dt)} s ({1.0 / timing.control_dt:.6g} Hz) = "
            f"{timing.decimation} physics steps of {_number(timing.physics_dt)} s\n"
            f"  deadline {_number(timing.deadline_s)} s, "
            f"observations at most {_number(timing.max_observation_age_s)} s old",
        ),
        *_section("safety", _safety(contract)),
    ]


def _section(title: str, body: str) -> list[str]:
    return ["", styled(title, "bold", sys.stdout), body or "  none"]


def _joints(contract: PolicyContract) -> str:
    rows = [
        (
            str(index),
            joint.name,
            joint.kind,
            _range(joint.position_lower, joint.position_upper),
            _number(joint.velocity_limit),
            _number(joint.effort_limit),
            _number(joint.stiffness),
            _number(joint.damping),
            _number(joint.default_pos),
        )
        for index, joint in enumerate(contract.robot.joints)
    ]
    return table(("#", "name", "kind", "position", "velocity", "effort", "kp", "kd", "default"), rows)


def _sensors(contract: PolicyContract) -> str:
    rows = [(s.name, str(s.size), s.unit or "-", s.frame or "-") for s in contract.robot.sensors]
    return table(("name", "size", "unit", "frame"), rows)


def _commands(contract: PolicyContract) -> str:
    rows = [
        (f.name, str(f.size), f.unit or "-", f.frame or "-", _vector(f.lower), _vector(f.upper))
        for f in contract.command.fields
    ]
    return table(("name", "size", "unit", "frame", "lower", "upper"), rows)


def _observation(contract: PolicyContract) -> str:
    slices = contract.observation_slices
    rows = [
        (
            f"{slices[term.name].start}:{slices[term.name].stop}",
            term.name,
            _origin(term),
            _number(term.scale),
            _number(term.offset),
            _number(term.clip),
            str(term.history),
        )
        for term in contract.observation.terms
    ]
    shown = table(("range", "name", "of", "scale", "offset", "clip", "history"), rows)
    spec = contract.observation
    if (spec.layout, spec.newest, spec.first_fill) == ("term", "last", "repeat"):
        return shown
    return f"{shown}\n  history by {spec.layout}, newest {spec.newest}, filled with {spec.first_fill} at first"


def _origin(term: ObservationTerm) -> str:
    words = [term.function or term.kind, term.source or "", f"along {term.chain}" if term.chain else ""]
    if term.joints is not None:
        words.append(f"of {', '.join(term.joints)}")
    if term.elements is not None:
        words.append(f"[{', '.join(map(str, term.elements))}]")
    if term.clock is not None:
        words.append(f"{term.clock.wave} every {_number(term.clock.period_s)} s, phases {_vector(term.clock.phases)}")
    if term.values is not None:
        words.append(_vector(term.values))
    return " ".join(word for word in words if word)


def _action(contract: PolicyContract) -> str:
    rows: list[tuple[str, ...]] = []
    for term in contract.action.terms:
        for joint, scale, offset, lower, upper in zip(
            term.joints, term.scale, term.offset, term.lower, term.upper, strict=True
        ):
            zero = "-" if term.kind.endswith("_incremental") else _number(offset)
            rows.append((str(len(rows)), joint, term.kind, _number(scale), zero, _range(lower, upper)))
    shown = table(("#", "joint", "kind", "scale", "offset", "range"), rows)
    limits = {term.target_name: term.output_limit for term in contract.action.terms if term.output_limit != 1.0}
    lines = [
        f"  {name}: network output {f'±{_number(limit)}' if limit else 'unbounded'}" for name, limit in limits.items()
    ]
    return "\n".join([shown, *lines])


def _safety(contract: PolicyContract) -> str:
    safety = contract.safety
    rows = [
        (
            j.joint,
            _range(j.position_lower, j.position_upper),
            _number(j.velocity_limit),
            _number(j.effort_limit),
            _number(j.acceleration_limit),
            _number(j.following_error_limit),
            _number(j.velocity_mismatch_limit),
        )
        for j in safety.joints
    ]
    lines = [
        table(("joint", "position", "velocity", "effort", "acceleration", "following", "mismatch"), rows),
        f"  last command repeated at most {safety.max_reused_commands} periods",
        f"  quantised and float commands differ by at most {_number(safety.parity_tolerance)}",
    ]
    if safety.frozen_samples is not None:
        lines.append(f"  frozen after {safety.frozen_samples} unchanged samples")
    if safety.status_max_age_s is not None:
        lines.append(f"  runs with a validator's word that is at most {_number(safety.status_max_age_s)} s old")
    lines += [f"  {r.name} plausible from {_vector(r.lower)} to {_vector(r.upper)}" for r in safety.sensor_ranges or ()]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _range(lower: float | None, upper: float | None) -> str:
    return "-" if lower is None and upper is None else f"[{_number(lower)}, {_number(upper)}]"


def _vector(values: tuple[float | None, ...]) -> str:
    return "[" + ", ".join(map(_number, values)) + "]"


command = noun(
    "show a policy contract, compare two, print the schema", {"show": _show, "diff": _diff, "schema": _schema}
)
