"""Configuration of the watchdog process, and its time limits."""

import json
import os
from dataclasses import asdict, dataclass

from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import WatchdogEndpoint

# A command takes time to be scheduled and sent, however short the period is.
LEAST_SILENCE_S = 0.025
# More than 2, so that one skipped control period does not trigger the watchdog.
SILENT_PERIODS = 2.5

LEAST_BOUND_S = 0.050
BOUND_PERIODS = 3

# Time after which a silent runtime is killed as hung [s].
HUNG_S = 2.0

# Longest time the watchdog commands a robot whose runtime is gone [s].
LONGEST_S = 5.0


def silence_s(contract: PolicyContract) -> float:
    """Return the time without a command after which the watchdog takes over [s]."""
    return max(LEAST_SILENCE_S, SILENT_PERIODS * contract.timing.control_dt)


def bound_s(contract: PolicyContract) -> float:
    """Return the upper bound from a hanging call of the policy to the first safe command [s]."""
    return max(LEAST_BOUND_S, BOUND_PERIODS * contract.timing.control_dt)


@dataclass(frozen=True)
class WatchdogPlan:
    """Configuration handed to the watchdog process."""

    contract: PolicyContract
    companion: WatchdogEndpoint
    realtime: Realtime
    """Settings of the loop; the watchdog runs at a higher priority."""
    runtime: int
    """Process id of the runtime."""

    def write(self) -> int:
        """Write the plan to an anonymous file; return its descriptor."""
        document = {
            "contract": canonical_json(self.contract).decode(),
            "transport": self.companion.transport,
            "options": dict(self.companion.options),
            "realtime": asdict(self.realtime),
            "runtime": self.runtime,
        }
        # A file without a name, which other users cannot read and which leaves nothing behind.
        descriptor = os.memfd_create("physai-watchdog-plan")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(json.dumps(document).encode())
        return descriptor

    @classmethod
    def read(cls, descriptor: int) -> "WatchdogPlan":
        """Read the plan from a descriptor of `write`."""
        with open(descriptor, "rb") as file:
            file.seek(0)
            document = json.loads(file.read())
        return cls(
            contract=parse_contract(document["contract"], source="the watchdog's plan"),
            companion=WatchdogEndpoint(document["transport"], document["options"]),
            realtime=Realtime(**document["realtime"]),
            runtime=document["runtime"],
        )
