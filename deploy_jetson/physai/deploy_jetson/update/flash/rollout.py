"""Staged rollout to a fleet: canaries first, then the others in parallel; stops when too many have failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from physai.deploy_jetson.update.flash.deliver import Flashed, FlashOutcome
from physai.deploy_jetson.update.flash.flash_errors import RefusedError
from physai.deploy_jetson.update.flash.target import Target
from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    from physai.deploy_jetson.update.flash.fleet import Fleet

FlashOne = Callable[[Target, bool], Awaitable[Flashed]]
"""Flashes a robot; the second argument is whether to wait for the end of its trial."""


@dataclass(frozen=True)
class RobotReport:
    """Result for one robot."""

    target: Target
    outcome: FlashOutcome | Literal["failed", "skipped"]
    reason: str = ""
    kind: str = ""
    """Name of the error, if one was raised."""
    flashed: Flashed | None = None

    @property
    def is_failure(self) -> bool:
        """Whether the robot does not run the new bundle."""
        return self.outcome in ("failed", "rolled-back")


async def attempt(target: Target, flash_one: FlashOne, *, wait: bool) -> RobotReport:
    """Flashes a robot and reports errors instead of raising them."""
    try:
        flashed = await flash_one(target, wait)
    except PhysaiError as error:
        kind = error.kind if isinstance(error, RefusedError) else type(error).__name__
        return RobotReport(target, "failed", str(error), kind)
    return RobotReport(target, flashed.outcome, flashed.reason, flashed=flashed)


async def roll_out(
    fleet: Fleet, flash_one: FlashOne, *, wait: bool, tell: Callable[[RobotReport], None] = lambda report: None
) -> list[RobotReport]:
    """Flashes a fleet.

    Canaries must be committed by their health windows before any other robot is flashed. After that, another robot is
    started only while the share of failed robots does not exceed the fleet's limit.

    Args:
        fleet: the robots.
        flash_one: flashes one robot.
        wait: whether to wait for the trials of the other robots, too.
        tell: called with each robot's report.

    Returns:
        A report of every robot, in the order of the fleet.
    """
    reports: dict[Target, RobotReport] = {}
    turns = asyncio.Semaphore(fleet.parallel)

    def stop_reason(bound: float) -> str:
        failed = sum(report.is_failure for report in reports.values())
        share = failed / len(fleet.targets)
        return "" if share <= bound else f"{failed} of {len(fleet.targets)} robots had failed"

    async def turn(target: Target, *, waits: bool, bound: float) -> None:
        async with turns:
            reason = stop_reason(bound)
            if reason:
                reports[target] = RobotReport(target, "skipped", reason)
            else:
                reports[target] = await attempt(target, flash_one, wait=waits)
            tell(reports[target])

    async def wave(targets: Sequence[Target], *, waits: bool, bound: float) -> None:
        await asyncio.gather(*(turn(target, waits=waits, bound=bound) for target in targets))

    await wave(fleet.canaries, waits=True, bound=0.0)
    if any(report.is_failure for report in reports.values()):
        for target in fleet.others:
            reports[target] = RobotReport(target, "skipped", "a canary failed")
            tell(reports[target])
    else:
        await wave(fleet.others, waits=wait, bound=fleet.max_failure_share)
    return [reports[target] for target in fleet.targets]
