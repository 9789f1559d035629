"""How to run a policy on a robot."""

from dataclasses import dataclass, field
from pathlib import Path

from physai.deploy_jetson.runtime.hot_swap.candidate import CandidateError
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.sdk.contract.policy_contract import PolicyContract

RATE_TOLERANCE = 1e-3
"""Share by which a rate may differ from 1 / control_dt and still be it."""


@dataclass(frozen=True)
class OptionNames:
    """What options are called where this runtime is started, for messages that recommend them."""

    unsafe_no_verdict: str = "--unsafe-no-verdict"
    rate: str = "--rate"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run."""

    root: Path
    """The robot's tree of slots."""
    config: Path | None = None
    """Folder of the owner's files; None for the usual one of that tree."""
    realtime: Realtime = field(default_factory=Realtime)
    unsafe_no_verdict: bool = False
    """Whether a policy that was installed without a valid verdict may run."""
    rate_hz: float | None = None
    """Rate the policy must have [Hz]; None for whatever its contract says."""
    heartbeat_s: float | None = None
    """Maximum time without a command of the operator before HOLD [s]; None if no operator is required."""
    seconds: float | None = None
    """How long to drive [s]; None for until it is told."""
    stand_by: bool = False
    """Whether to wait for the request `activate` before the first command."""
    hot_swap: bool = True
    """Whether to take over policies that are activated meanwhile."""
    watchdog: bool = True
    """Whether a second process brakes the robot should this one hang or die, where the transport lets it."""
    names: OptionNames = OptionNames()


def require_rate(options: RunOptions, contract: PolicyContract) -> None:
    """Raises CandidateError where the policy has another rate than it must have."""
    wanted, found = options.rate_hz, 1.0 / contract.timing.control_dt
    if wanted is not None and not abs(wanted / found - 1.0) <= RATE_TOLERANCE:
        raise CandidateError(
            f"the policy was trained at {found:g} Hz and means something else at {wanted:g} Hz; leave out "
            f"{options.names.rate}, or train and export for that rate"
        )
