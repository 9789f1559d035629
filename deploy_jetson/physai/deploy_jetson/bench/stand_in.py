"""Stands in for a runtime: keeps health counters for whatever slot is active, and faults on one bundle.

usage: python -m physai.deploy_jetson.bench.stand_in ROOT [SHA-256 of the bundle it faults on]
"""

import json
import sys
import time
from pathlib import Path

from physai.deploy_jetson.slots.health import HealthWriter, health_path
from physai.deploy_jetson.slots.layout import CURRENT, MARKER_FILE

FAULT = "the arm does not follow its commands"
_TICK_S = 0.005


def active_bundle(root: Path) -> str | None:
    """SHA-256 of the bundle whose slot is active."""
    try:
        return str(json.loads((root / CURRENT / MARKER_FILE).read_bytes().splitlines()[0])["bundle_sha256"])
    except FileNotFoundError:
        return None


def tick_forever(root: Path, faulty: str) -> None:
    """Ticks until the process is ended.

    Args:
        root: the robot's tree.
        faulty: SHA-256 of the bundle that does not work.
    """
    running: str | None = None
    writer: HealthWriter | None = None
    while True:
        active = active_bundle(root)
        if active is not None and active != running:
            writer = HealthWriter(health_path(root), bundle_sha256=active, now_ns=time.monotonic_ns())
            if active == faulty:
                writer.fault(time.monotonic_ns(), FAULT)
        running = active
        if writer is not None and active != faulty:
            writer.tick(time.monotonic_ns())
        time.sleep(_TICK_S)


if __name__ == "__main__":
    tick_forever(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
