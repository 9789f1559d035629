"""The observation terms of a contract as a part of the policy graph."""

import math
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from physai.sdk.contract.interface import CLOCK_PREFIX, HISTORY_PREFIX, PREVIOUS_ACTION, last_memory
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.position_limits import POSITION_TARGET
from physai.sdk.contract.robot import JOINT_SENSORS
from physai.sdk.contract.terms import ObservationTerm
from physai.train.models.kinematics import ForwardKinematics, Pick, pose_error, projected_gravity
from physai.train.models.observation_functions import load_function

State = dict[str, Tensor]
"""Explicit state of the graph, first axis the world; `started` is 0 before the first call."""


class ObservationTerms(nn.Module):
    """The contract's observation terms."""

    _default_pos: Tensor

    def __init__(self, contract: PolicyContract) -> None:
        """Resolves names to columns once."""
        super().__init__()
        robot = contract.robot
        self._terms = contract.observation.terms
        # By index: the name of a term, as that of a chain, may contain a dot, which torch does not allow here.
        self._picks = nn.ModuleList(
            Pick(robot.joint_index(t.joints or robot.joint_names), len(robot.joints)) for t in self._terms
        )
        default = torch.tensor([joint.default_pos for joint in robot.joints])
        self.register_buffer("_default_pos", default, persistent=False)
        self._sizes = {t.name: contract.term_width(t) for t in self._terms}
        self._targets = [t.target_name for t in contract.action.terms]
        self._commanded = nn.ModuleList(
            Pick(robot.joint_index(t.joints), len(robot.joints)) for t in contract.action.terms
        )
        chains = {chain.name: chain for chain in robot.chains}
        used = dict.fromkeys(t.chain for t in self._terms if t.chain is not None)
        self._chains = {name: index for index, name in enumerate(used)}
        self._kinematics = nn.ModuleList(ForwardKinematics(chains[name], robot.joint_names) for name in used)
        fields = {field.name: field.size for field in (*robot.sensors, *contract.command.fields)}
        self._clocks = {t.name: (t.clock, t.source) for t in self._terms if t.clock is not None}
        self._period = contract.timing.control_dt
        self._spec = contract.observation
        self._functions = {t.name: load_function(t, fields[t.source or ""]) for t in self._terms if t.function}
        self.size = contract.observation_size

    def history_sizes(self) -> dict[str, int]:
        """State inputs that hold past samples and angles of clocks, and their widths."""
        sizes = {HISTORY_PREFIX + t.name: self._sizes[t.name] * t.history for t in self._terms if t.history > 1}
        return {**sizes, **{CLOCK_PREFIX + name: 1 for name in self._clocks}}

    def forward(
        self, sensors: Mapping[str, Tensor], commands: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> tuple[Tensor, State]:
        """Observation vector, shape (n, size), and the histories after this sample."""
        blocks: list[Tensor] = []
        histories: State = {}
        for term, pick in zip(self._terms, self._picks, strict=True):
            if term.name in self._clocks:
                value, histories[CLOCK_PREFIX + term.name] = self._gait(term.name, commands, state)
            else:
                value = self._value(term, pick, sensors, commands, state)
            if term.clip is not None:
                value = value.clamp(-term.clip, term.clip)
            if term.offset != 0.0 or term.scale != 1.0:
                value = (value - term.offset) * term.scale
            if term.history > 1:
                value = self._shifted(state[HISTORY_PREFIX + term.name], value, state["started"], term.history)
                histories[HISTORY_PREFIX + term.name] = value
            blocks.append(value)
        if self._spec.layout == "time":
            length = self._terms[0].history
            # One term's samples lie in a row of its own width each; the last axis joins those of one time.
            samples = [block.reshape(-1, length, block.shape[1] // length) for block in blocks]
            return torch.cat(samples, dim=2).reshape(-1, self.size), histories
        return torch.cat(blocks, dim=1), histories

    def _shifted(self, past: Tensor, value: Tensor, started: Tensor, length: int) -> Tensor:
        """A term's history after a sample, which fills the whole history if it is the first."""
        width = value.shape[1]
        fill = [value] * (length - 1) if self._spec.first_fill == "repeat" else [0.0 * value] * (length - 1)
        if self._spec.newest == "first":
            after, first = [value, past[:, :-width]], [value, *fill]
        else:
            after, first = [past[:, width:], value], [*fill, value]
        return torch.where(started > 0.5, torch.cat(after, dim=1), torch.cat(first, dim=1))

    def _gait(self, name: str, commands: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Values of a clock, shape (n, phases), and its angle for the next sample, -1 while the robot stands."""
        clock, source = self._clocks[name]
        before = state[CLOCK_PREFIX + name]
        turn = 2.0 * math.pi
        angle = before + turn * self._period / clock.period_s
        # In [0, 2π): float32 would lose the phase of a large angle.
        angle = torch.where(before < 0.0, 0.0 * before, torch.where(angle >= turn, angle - turn, angle))
        wave = torch.sin if clock.wave == "sin" else torch.cos
        values = wave(angle + angle.new_tensor(clock.phases))
        if source is None or not clock.gate:
            return values, angle
        command = commands[source]
        stands = torch.sqrt((command * command).sum(dim=1, keepdim=True)) < clock.gate
        resting = 0.0 if clock.standing_phase is None else float(wave(torch.tensor(clock.standing_phase)))
        return torch.where(stands, 0.0 * values + resting, values), torch.where(stands, 0.0 * angle - 1.0, angle)

    def _value(
        self,
        term: ObservationTerm,
        pick: nn.Module,
        sensors: Mapping[str, Tensor],
        commands: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
    ) -> Tensor:
        source = term.source or ""
        if term.kind == "sensor":
            return pick(sensors[source]) if source in JOINT_SENSORS else self._chosen(term, sensors[source])
        if term.kind == "function":
            return self._functions[term.name](sensors[source] if source in sensors else commands[source])
        if term.kind == "joint_pos_rel":
            return pick(sensors["joint_pos"] - self._default_pos)
        if term.kind == "sin_cos":
            angle = pick(sensors["joint_pos"])
            return torch.cat([torch.sin(angle), torch.cos(angle)], dim=1)
        if term.kind == "projected_gravity":
            return projected_gravity(sensors["imu_quat"])
        if term.kind == "command":
            return self._chosen(term, commands[source])
        if term.values is not None:
            started = state["started"]
            return 0.0 * started + started.new_tensor(term.values)
        if term.chain is not None:
            kinematics = cast("ForwardKinematics", self._kinematics[self._chains[term.chain]])
            position, quat = kinematics.forward(sensors["joint_pos"])
            if term.kind == "position_error":
                return (sensors[source] if source in sensors else commands[source]) - position
            return pose_error(commands[source], position, quat, kinematics.error_product)
        if term.kind == "last_target":
            targets = zip(self._targets, self._commanded, strict=True)
            return torch.cat([self._last_target(name, joints, sensors, state) for name, joints in targets], 1)
        return state[PREVIOUS_ACTION]

    @staticmethod
    def _chosen(term: ObservationTerm, value: Tensor) -> Tensor:
        if term.elements is None:
            return value
        return torch.cat([value[:, element : element + 1] for element in term.elements], dim=1)

    @staticmethod
    def _last_target(
        name: str, joints: nn.Module, sensors: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> Tensor:
        """Last command of one action term, for positions relative to the measured ones; 0 before the first command."""
        last = state[last_memory(name)]
        if name == POSITION_TARGET:
            last = torch.where(state["started"] > 0.5, last - joints(sensors["joint_pos"]), 0.0 * last)
        return last
