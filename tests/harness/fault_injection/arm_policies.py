"""Position-commanded sample policies with memory, for small robots that use every limit and monitor of a contract.

Their networks have random weights and pull each joint towards a commanded goal. The graphs have the structure of
trained ones: histories, last commands and steps are explicit state, and position commands keep the contract's velocity
and acceleration limits by the rule of `physai.sdk.safety.trajectory`, implemented independently here.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.harness.fixtures.onnx_writer import GraphWriter

from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionTerm
from physai.sdk.policy.header import PolicyHeader

HISTORY = 3
HIDDEN = 8
RECURRENT = "absolute"
"""The kind with a recurrent network."""

ARMS = ("incremental", "absolute", "careless", "mixed", "unlimited")
"""`careless` is `absolute` without limits in its graph, so that the guard has work; `mixed` has a joint that is
commanded by effort; `unlimited` has contract format 1."""
EASED = "eased"
"""One more kind: its commands turn from those at rest into the policy's within 0.3 s, and its goal has a slew and a
gate."""


def _joint(name: str, lower: float, upper: float, **fields: Any) -> dict[str, Any]:
    limits = {"position_lower": lower, "position_upper": upper, "velocity_limit": 3.0, "effort_limit": 50.0}
    return {"name": name, "kind": "revolute", "stiffness": 80.0, "damping": 4.0, **limits, **fields}


_JOINTS = [
    _joint("shoulder", -2.0, 2.0, default_pos=0.2),
    _joint("elbow", -1.5, 1.6, default_pos=-0.3),
    _joint("slide", 0.0, 0.6, kind="prismatic", default_pos=0.3, velocity_limit=1.0),
]
_WHEEL = {"name": "wheel", "kind": "continuous", "velocity_limit": 20.0, "effort_limit": 8.0}


def _envelope(joint: dict[str, Any], *, limited: bool) -> dict[str, Any]:
    envelope = {
        "joint": joint["name"],
        "velocity_limit": 0.8 * joint["velocity_limit"],
        "effort_limit": joint["effort_limit"],
    }
    if "position_lower" in joint:
        envelope |= {"position_lower": joint["position_lower"], "position_upper": joint["position_upper"]}
        if limited:
            envelope |= {"acceleration_limit": 8.0 * joint["velocity_limit"], "following_error_limit": 0.25}
    if limited:
        envelope |= {"velocity_mismatch_limit": 0.1}
    # One drive may give less than it can, so that its targets are limited by the effort that they ask for.
    return envelope | ({"effort_limit": 25.0} if joint["name"] == "elbow" else {})


def _position_term(kind: str) -> dict[str, Any]:
    incremental = kind == "incremental"
    return {
        "kind": "joint_pos_incremental" if incremental else "joint_pos",
        "joints": ["elbow", "shoulder", "slide"],
        "scale": [0.04, 0.04, 0.012] if incremental else [1.4, 1.6, 0.25],
        "offset": [0.0, 0.1, 0.3],
        "lower": [-1.4, -1.5, 0.05],
        "upper": [1.4, 1.7, 0.55],
    }


_EFFORT_TERM = {
    "kind": "joint_effort_incremental",
    "joints": ["wheel"],
    "scale": [1.0],
    "offset": [0.0],
    "lower": [-6.0],
    "upper": [6.0],
}


_GOAL = {"name": "goal", "size": 3, "unit": "", "lower": [-1.3, -1.4, 0.1], "upper": [1.3, 1.6, 0.5]}


def arm_contract(kind: str) -> PolicyContract:
    """The contract of one of `ARMS`."""
    limited = kind != "unlimited"
    joints = [*_JOINTS, _WHEEL] if kind == "mixed" else _JOINTS
    size = len(joints)
    safety: dict[str, Any] = {
        "joints": [_envelope(joint, limited=limited) for joint in joints],
        "max_reused_commands": 2,
    }
    if limited:
        ranges = {
            "name": "joint_pos",
            "lower": [-4.0] * 3 + [None] * (size - 3),
            "upper": [4.0] * 3 + [None] * (size - 3),
        }
        safety |= {"frozen_samples": 8, "sensor_ranges": [ranges]}
    goal: dict[str, Any] = _GOAL
    if kind == EASED:
        safety |= {"start": {"ramp_s": 0.3}}
        goal = _GOAL | {"lower": [-1.3, -1.4, -0.5], "slew": [1.0, 0.8, 0.25], "gate": 0.6}
    document = {
        "format_version": (3 if kind == EASED else 2) if limited else 1,
        "task": f"{kind}-reach",
        "robot": {
            "name": f"{kind}_arm",
            "base": "fixed",
            "joints": joints,
            "sensors": [{"name": name, "size": size, "unit": ""} for name in ("joint_pos", "joint_vel")],
        },
        "observation": {
            "terms": [
                {"name": "q", "kind": "joint_pos_rel", "history": HISTORY},
                {"name": "v", "kind": "sensor", "source": "joint_vel", "scale": 0.2},
                {"name": "goal", "kind": "command", "source": "goal"},
                {"name": "a", "kind": "previous_action"},
                {"name": "u", "kind": "last_target"},
            ]
        },
        "action": {"terms": [_position_term(kind), *([_EFFORT_TERM] if kind == "mixed" else [])]},
        "command": {"fields": [goal]},
        "timing": {
            "control_dt": 0.02,
            "physics_dt": 0.005,
            "decimation": 4,
            "deadline_s": 0.015,
            "max_observation_age_s": 0.05,
        },
        "safety": safety,
    }
    return parse_contract(json.dumps(document), source=f"{kind} arm")


def arm_policy(kind: str, *, seed: int = 0) -> bytes:
    """The ONNX file of one of `ARMS`."""
    contract = arm_contract(kind)
    joints, actions = len(contract.robot.joints), contract.action.size
    states = {"started": 1, "history_q": HISTORY * joints}
    for term in contract.action.terms:
        states[f"last_{term.target_name}"] = len(term.joints)
        if _keeps_limits(kind, term):
            states[f"step_{term.target_name}"] = len(term.joints)
    states["previous_action"] = actions
    if kind == RECURRENT:
        states["hidden"] = HIDDEN
    header = PolicyHeader(contract, states, {"seed": str(seed)})
    return _Arm(contract, kind, np.random.default_rng(seed)).write().model(header)


def _keeps_limits(kind: str, term: ActionTerm) -> bool:
    return kind not in ("careless", "unlimited") and term.target_name == "joint_pos_target"


@dataclass
class _Limits:
    """Constants of the position limits in a graph, one row each."""

    lower: str
    upper: str
    rate: str
    change: str


class _Arm:
    """Builds the graph."""

    def __init__(self, contract: PolicyContract, kind: str, random: np.random.Generator) -> None:
        self._contract, self._kind, self._random = contract, kind, random
        self._graph = GraphWriter()
        self._half, self._zero, self._one = (self._row([value]) for value in (0.5, 0.0, 1.0))
        self._eight = self._row([8.0])

    def write(self) -> GraphWriter:
        graph, joints = self._graph, len(self._contract.robot.joints)
        started = graph.node("Greater", "state.started", self._half)
        default = self._row([joint.default_pos for joint in self._contract.robot.joints])
        value = graph.node("Sub", "joint_pos", default)
        older = graph.node("Concat", self._columns("state.history_q", range(joints, HISTORY * joints)), value, axis=1)
        first = graph.node("Concat", *[value] * HISTORY, axis=1)
        history = graph.node("Where", started, older, first, output="next.history_q")
        speed = graph.node("Mul", "joint_vel", self._row([0.2]))
        last = [self._last(term, started) for term in self._contract.action.terms]
        seen = [self._seen(term, one, started) for term, one in zip(self._contract.action.terms, last, strict=True)]
        observation = graph.node("Concat", history, speed, "goal", "state.previous_action", *seen, axis=1)
        noise = self._network(observation, HISTORY * joints + joints + 3 + 2 * self._contract.action.size)
        actions: list[str] = []
        start = 0
        for term, before in zip(self._contract.action.terms, last, strict=True):
            part = self._columns(noise, range(start, start + len(term.joints)))
            start += len(term.joints)
            actions.append(self._command(term, before, part, started))
        graph.node("Concat", *actions, axis=1, output="next.previous_action")
        graph.node("Add", graph.node("Mul", "state.started", self._zero), self._one, output="next.started")
        return graph

    def _row(self, values: list[float]) -> str:
        return self._graph.constant(np.array([values], np.float32))

    def _columns(self, source: str, columns: range | list[int]) -> str:
        return self._graph.node("Gather", source, self._graph.constant(np.array(list(columns), np.int64)), axis=1)

    def _clip(self, value: str, lower: str, upper: str) -> str:
        return self._graph.node("Min", self._graph.node("Max", value, lower), upper)

    def _network(self, observation: str, size: int) -> str:
        """A small contribution of all observations, so that each of them affects the output."""
        graph, actions = self._graph, self._contract.action.size
        shapes = ((size, HIDDEN), (HIDDEN, actions), (HIDDEN, HIDDEN))
        weights = [(self._random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32) for shape in shapes]
        drive, name = graph.node("MatMul", observation, graph.constant(weights[0])), ""
        if self._kind == RECURRENT:
            drive = graph.node("Add", drive, graph.node("MatMul", "state.hidden", graph.constant(weights[2])))
            name = "next.hidden"
        hidden = graph.node("Tanh", drive, output=name)
        return graph.node("Mul", graph.node("MatMul", hidden, graph.constant(weights[1])), self._row([0.2]))

    def _last(self, term: ActionTerm, started: str) -> str:
        """Last command; before the first one, the measured position or effort 0."""
        last = f"state.last_{term.target_name}"
        if term.target_name != "joint_pos_target":
            return last
        measured = self._columns("joint_pos", list(self._contract.robot.joint_index(term.joints)))
        measured = self._clip(measured, self._row(list(term.lower)), self._row(list(term.upper)))
        return self._graph.node("Where", started, last, measured)

    def _seen(self, term: ActionTerm, last: str, started: str) -> str:
        """Last command as observed: positions relative to the measured one."""
        if term.target_name != "joint_pos_target":
            return last
        measured = self._columns("joint_pos", list(self._contract.robot.joint_index(term.joints)))
        return self._graph.node("Where", started, self._graph.node("Sub", last, measured), self._zero)

    def _command(self, term: ActionTerm, last: str, noise: str, started: str) -> str:
        """Adds a term's outputs; returns the corresponding action in [-1, 1]."""
        graph, incremental = self._graph, term.kind.endswith("_incremental")
        scale, lower, upper = (self._row(list(values)) for values in (term.scale, term.lower, term.upper))
        base = last if incremental else self._row(list(term.offset))
        pull = noise
        if term.target_name == "joint_pos_target":
            order = [self._contract.robot.joint_names.index(name) for name in term.joints]
            wish = graph.node("Sub", self._columns("goal", [(1, 0, 2)[index] for index in order]), base)
            pull = graph.node("Add", graph.node("Div", wish, scale), noise)
        action = self._clip(pull, self._row([-1.0]), self._one)
        name = term.target_name
        moved = graph.node("Mul", scale, action)
        if not _keeps_limits(self._kind, term):
            target = self._clip(graph.node("Add", base, moved), lower, upper)
            target = graph.node("Add", target, self._zero, output=name)
        else:
            wanted = graph.node("Sub", graph.node("Add", base, moved), last)
            step = self._limited(term, wanted, last, started)
            target = graph.node("Add", last, step, output=name)
            graph.node("Sub", target, last, output=f"next.step_{name}")
        graph.node("Add", target, self._zero, output=f"next.last_{name}")
        return action

    def _limited(self, term: ActionTerm, wanted: str, last: str, started: str) -> str:
        graph, limits = self._graph, self._limits(term)
        before = graph.node("Where", started, f"state.step_{term.target_name}", self._zero)
        up = self._largest(graph.node("Sub", limits.upper, last), limits)
        down = self._largest(graph.node("Sub", last, limits.lower), limits)
        step = self._clip(wanted, graph.node("Neg", down), up)
        step = self._clip(step, graph.node("Sub", before, limits.change), graph.node("Add", before, limits.change))
        return self._clip(step, graph.node("Neg", limits.rate), limits.rate)

    def _largest(self, room: str, limits: _Limits) -> str:
        """The largest step from which the joint can stop within the given distance."""
        graph = self._graph
        share = graph.node("Div", graph.node("Mul", graph.node("Max", room, self._zero), self._eight), limits.change)
        root = graph.node("Sub", graph.node("Sqrt", graph.node("Add", share, self._one)), self._one)
        periods = graph.node("Max", graph.node("Ceil", graph.node("Mul", root, self._half)), self._one)
        slope = graph.node("Mul", graph.node("Mul", graph.node("Sub", periods, self._one), self._half), limits.change)
        step = graph.node("Add", graph.node("Div", room, periods), slope)
        return graph.node("Where", graph.node("Greater", room, self._zero), step, room)

    def _limits(self, term: ActionTerm) -> _Limits:
        """Limits of the contract; the speed of an incremental term is also limited by its scale."""
        dt = self._contract.timing.control_dt
        envelopes = {one.joint: one for one in self._contract.safety.joints}
        rates: list[float] = []
        changes: list[float] = []
        for name, scale in zip(term.joints, term.scale, strict=True):
            speed = (envelopes[name].velocity_limit or 1e9) * dt
            rates.append(min(speed, scale) if term.kind.endswith("_incremental") else speed)
            changes.append((envelopes[name].acceleration_limit or 1e9) * dt**2)
        return _Limits(self._row(list(term.lower)), self._row(list(term.upper)), self._row(rates), self._row(changes))
