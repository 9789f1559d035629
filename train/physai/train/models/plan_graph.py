"""A policy that plans, as one graph: sensors, commands and images in, joint positions of the whole plan out.

Stages: observation terms → normaliser, images → `ImageFront`, then the network, then positions within the contract's
limits at the resolution of the plan, so that a follower that judges plans by them finds nothing to refuse.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from physai.sdk.base.errors import ContractError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.position_limits import position_limits
from physai.train.models.image_terms import ImageFront
from physai.train.models.kinematics import Pick
from physai.train.models.observation_terms import ObservationTerms
from physai.train.models.policy_graph import Normaliser, limited
from physai.train.models.position_limits import PositionLimiter

GREY_LEVELS = 255.0
"""Images reach the network as numbers from 0 to 1."""


@dataclass(frozen=True)
class PlanInputs:
    """Inputs of the network of a planning policy; n is the number of worlds."""

    observation: Tensor
    """Normalised observation terms, shape (n, size)."""
    images: tuple[Tensor, ...]
    """Of each image term, from 0 to 1, shape (n, channels, height, width)."""
    instruction: Tensor
    """1 for the instruction that holds and 0 for the others, shape (n, instructions); no columns without a list."""
    committed: Tensor
    """Outputs of the network that the committed steps stand for, shape (n, committed, joints)."""
    noise: Tensor
    """Standard normal values, shape (n, noise)."""


class Planner(Protocol):
    """A network from what a policy reads to a plan."""

    def __call__(self, inputs: PlanInputs) -> Tensor:
        """Outputs of every step, shape (n, steps, joints)."""
        ...


class PlanGraph(nn.Module):
    """Observation terms, images, normaliser, network and limits of one policy that plans."""

    lower: Tensor
    upper: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(self, contract: PolicyContract, planner: nn.Module) -> None:
        """Connect a network (see `Planner`) to a contract.

        Raises:
            ContractError: the contract has no plans.
        """
        super().__init__()
        spec = contract.action.plan
        if spec is None:
            raise ContractError(f"the contract of task {contract.task} has no action.plan")
        self.contract, self.spec = contract, spec
        self.observation = ObservationTerms(contract)
        self.normaliser = Normaliser(self.observation.size)
        cameras = {camera.name: camera for camera in contract.robot.cameras}
        terms = contract.observation.images
        self.names = [term.name for term in terms]
        self.fronts = nn.ModuleList(ImageFront(term, cameras[term.camera]) for term in terms)
        self.planner = planner
        self._term = term = contract.action.terms[0]
        self._measured = Pick(contract.robot.joint_index(term.joints), len(contract.robot.joints))
        for label in ("scale", "offset", "lower", "upper"):
            self.register_buffer(label, torch.tensor(getattr(term, label)), persistent=False)
        limits = position_limits(contract, spec.step_s)
        self._limiter = None if limits is None else PositionLimiter(limits)

    def inputs(
        self,
        sensors: Mapping[str, Tensor],
        commands: Mapping[str, Tensor],
        images: Mapping[str, Tensor],
        instruction: Tensor,
        committed: Tensor,
        noise: Tensor,
    ) -> PlanInputs:
        """Return what the network reads.

        Args:
            sensors: by name, shape (n, size).
            commands: by name, shape (n, size).
            images: bytes by the name of their term, shape (n, camera height, camera width, channels).
            instruction: shape (n, instructions).
            committed: positions that are sent until the plan arrives, shape (n, committed, joints) [rad or m].
            noise: shape (n, noise).
        """
        # No term of a plan depends on the periods before, see `physai.sdk.contract.checks`.
        first = {"started": torch.zeros_like(next(iter(sensors.values()))[:, :1])}
        observation, _ = self.observation(sensors, commands, first)
        seen = tuple(
            front(images[name]) * (1.0 / GREY_LEVELS) for name, front in zip(self.names, self.fronts, strict=True)
        )
        outputs = (committed - self.origin(sensors)[:, None]) / self.scale
        return PlanInputs(self.normaliser(observation), seen, instruction, outputs, noise)

    def origin(self, sensors: Mapping[str, Tensor]) -> Tensor:
        """Return the positions at outputs of 0, shape (n, joints): the offset, or the measured ones."""
        measured = self._measured(sensors["joint_pos"])
        return measured if self.spec.anchor == "measured" else self.offset.expand_as(measured)

    def positions(self, outputs: Tensor, sensors: Mapping[str, Tensor]) -> Tensor:
        """Return the plan of some outputs of the network, within the contract's limits, shape (n, steps, joints)."""
        wanted = self.origin(sensors)[:, None] + self.scale * limited(outputs, self._term)
        if self._limiter is None:
            return wanted.clamp(self.lower, self.upper)
        # The first step is the follower's business, which knows where the robot is by then.
        last = wanted[:, 0].clamp(self.lower, self.upper).clamp(self._limiter.lower, self._limiter.upper)
        steps, before = [last], None
        for number in range(1, self.spec.steps):
            step = wanted[:, number] - last
            after = self._limiter.first(step, last) if before is None else self._limiter(step, last, before)
            before, last = after - last, after
            steps.append(last)
        return torch.stack(steps, dim=1)

    def forward(
        self,
        sensors: Mapping[str, Tensor],
        commands: Mapping[str, Tensor],
        images: Mapping[str, Tensor],
        instruction: Tensor,
        committed: Tensor,
        noise: Tensor,
    ) -> Tensor:
        """Return a plan, shape (n, steps, joints) [rad or m]; see `inputs`."""
        read = self.inputs(sensors, commands, images, instruction, committed, noise)
        return self.positions(self.planner(read), sensors)
