"""Whether a plan as a whole may be followed."""

import numpy as np

from physai.sdk.base.errors import ContractError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.limits import Array, guard_limits
from physai.sdk.safety.plan.path import PlannedPath
from physai.sdk.safety.plan.plan import PlanAnswer


class PlanJudge:
    """Compares all steps of a plan with the guard's limits, before the first one is sent."""

    def __init__(self, contract: PolicyContract) -> None:
        """Derive the limits per step of a plan.

        Raises:
            ContractError: the contract has no plans.
            GuardError: its limits leave no allowed command for a joint.
        """
        spec = contract.action.plan
        if spec is None:
            raise ContractError(f"the contract of task {contract.task} has no action.plan to follow")
        limits = guard_limits(contract)
        periods = spec.step_s / contract.timing.control_dt
        self._shape = (spec.steps, len(limits.joints))
        self._lower, self._upper = limits.lower - limits.slack, limits.upper + limits.slack
        # Three roundings of float32 take part in a second difference, weighted 1, 2 and 1.
        self._greatest_step = limits.rate * periods + 2.0 * limits.slack
        with np.errstate(over="ignore"):
            self._greatest_change = limits.change * periods**2 + 4.0 * limits.slack
        self._seam = np.array(spec.seam)

    def problem(self, targets: Array) -> PlanAnswer | None:
        """Return the first reason not to follow steps of shape (steps, joints); None if there is none."""
        if targets.shape != self._shape:
            return PlanAnswer.WRONG_SHAPE
        if not np.isfinite(targets).all():
            return PlanAnswer.NOT_FINITE
        moves = np.diff(targets, axis=0)
        inside = (
            (self._lower <= targets).all()
            and (targets <= self._upper).all()
            and (np.abs(moves) <= self._greatest_step).all()
            and (np.abs(np.diff(moves, axis=0)) <= self._greatest_change).all()
        )
        return None if inside else PlanAnswer.OUT_OF_LIMITS

    def fits(self, old: PlannedPath, new: PlannedPath, times: Array) -> bool:
        """Whether two paths are within the contract's seam of each other at all of the times, shape (n,)."""
        return bool((np.abs(new.at(times) - old.at(times)) <= self._seam).all())
