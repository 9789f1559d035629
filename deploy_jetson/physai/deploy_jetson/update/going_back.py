"""Process that activates the version before one whose verdict was revoked."""

import sys
from pathlib import Path

from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.revocation.kept_words import KeptWords, revocation_of
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.tree import printable_reason
from physai.sdk.base.errors import PhysaiError

WAIT_S = 60.0
"""Longest wait for another command on the slots [s]."""


def go_back(agent: UpdateAgent, bundle_sha256: str, reason: str) -> str:
    """Roll back a trial, or activate the version in the other slot; return what happened.

    Args:
        agent: the robot's agent.
        bundle_sha256: bundle whose verdict was revoked; nothing changes if another one is active.
        reason: the reason, for the log.

    Raises:
        SlotError: there is no version before, or it is revoked, too.
        RevocationError: the verdict on the version before is revoked, too.
        PhysaiError: it may not be activated for another reason.
    """
    store = agent.store
    active = store.active()
    marker = None if active is None else store.marker(active)
    if marker is None or marker.bundle_sha256 != bundle_sha256:
        return "another version is active already"
    trial = store.state().trial
    if trial is None:
        return f"went back to version {agent.activate(back=True).version}, on trial: `reset` and `start` let it drive"
    before = None if trial.previous is None else store.marker(trial.previous)
    if before is None:
        raise SlotError("there is no version before the one on trial")
    why = revocation_of(KeptWords(agent.root, agent.fs).load().parsed(), before.bundle_sha256, before.bundle_id)
    if why:
        raise SlotError(f"the verdict on version {before.version} is revoked {why}")
    agent.rollback(printable_reason(reason))
    return f"went back to version {before.version}: `reset` and `start` let it drive"


def main(root: str, config: str, bundle_sha256: str, reason: str) -> None:
    """`python -m physai.deploy_jetson.update.going_back ROOT CONFIG SHA256 REASON`; exit code 1 if it cannot."""
    agent = UpdateAgent(root=Path(root), config_root=Path(config) if config else None, wait_s=WAIT_S)
    try:
        print(go_back(agent, bundle_sha256, reason))
    except PhysaiError as error:
        print(f"warning: the robot stays in HOLD, it cannot go back: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
