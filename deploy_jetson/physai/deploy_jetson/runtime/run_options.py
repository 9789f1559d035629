"""Options for running a policy on a robot."""

from dataclasses import dataclass, field
from pathlib import Path

from physai.deploy_jetson.runtime.system.realtime import Realtime


@dataclass(frozen=True)
class OptionNames:
    """Names of options in the program that starts the runtime, for error messages."""

    unsafe_no_verdict: str = "--unsafe-no-verdict"
    rate: str = "--rate-hz"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of one run."""

    root: Path
    """The robot's tree of slots."""
    config: Path | None = None
    """Folder of the owner's files; None for the default of that tree."""
    realtime: Realtime = field(default_factory=Realtime)
    unsafe_no_verdict: bool = False
    """Whether a policy that was installed without a valid verdict may run."""
    rate_hz: float | None = None
    """Required rate of the policy [Hz]; None for that of its contract."""
    heartbeat_s: float | None = None
    """Longest silence of the operator before HOLD [s]; None if no operator is required."""
    seconds: float | None = None
    """Duration [s]; None to drive until requested to end."""
    service: bool = False
    """Whether a service manager starts the run: the robot is driven only if its settings say so
    (`Requirements.drive_after_boot`), or if it was driven when an update ended the run before."""
    stand_by: bool = False
    """Whether to wait for the request `activate` before the first command."""
    hot_swap: bool = True
    """Whether to switch to a policy that is activated during the run."""
    watchdog: bool = True
    """Whether a second process brakes the robot if this one hangs or dies, if the transport supports it."""
    shadow: Path | None = None
    """Bundle that computes on the same samples and commands nothing; None for none."""
    names: OptionNames = OptionNames()
