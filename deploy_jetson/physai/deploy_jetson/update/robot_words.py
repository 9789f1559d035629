"""`physai robot revocations` as a function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.deploy_jetson.update.robot_tree import TreeOption, agent_of, tree_of
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sdk.evidence.status_rules import StatusRules
    from physai.sdk.signing.status.status_document import StatusPredicate


@dataclass(frozen=True)
class RobotRevocations:
    """The word of validators on the verdicts of a robot."""

    words: tuple[StatusPredicate, ...]
    """The newest word for the robot's model, and the newest for the unit."""
    revoked: tuple[str, ...]
    """Each installed version whose verdict is revoked, and why."""
    rules: StatusRules
    """The owner's rules, or the defaults."""


def robot_revocations(
    *, statement: Annotated[Path | str | bytes | None, Option(metavar="FILE")] = None, tree: TreeOption = None
) -> RobotRevocations:
    """Read which verdicts validators revoked or narrowed; a runtime that drives this robot obeys at its next poll.

    Args:
        statement: accept a status document of `physai bundle revoke`, or those of a folder, such as a mounted stick.
        tree: the robot's tree.

    Raises:
        StatusError: a document is refused: not signed as required, older than the one that is kept, or for others.
        RevocationError: the robot's own record is damaged.
        SlotError: the robot is not set up, or the tree cannot be written.
    """
    from physai.deploy_jetson.update.revocation.kept_words import KeptWords, accept_and_keep, revocation_of
    from physai.deploy_jetson.update.slots.slot_errors import SlotError
    from physai.deploy_jetson.update.slots.slot_records import SLOTS
    from physai.sdk.base.files import oserror_as
    from physai.sdk.evidence.status_rules import StatusRules

    found = tree_of(tree)
    root = found.existing()
    agent = agent_of(found)
    config = agent.config
    if statement is not None:
        for data in _documents(statement, config.identity().robot):
            with oserror_as(SlotError, f"{root}: the document is not kept"):
                accept_and_keep(root, data, trust=config.trust(), robot=config.identity().robot)
    words = KeptWords(root).load().parsed()
    revoked: list[str] = []
    for slot in SLOTS:
        marker = agent.store.marker(slot)
        why = "" if marker is None else revocation_of(words, marker.bundle_sha256, marker.bundle_id)
        if marker is not None and why:
            revoked.append(f"version {marker.version} in slot {slot} is revoked {why}")
    return RobotRevocations(words, tuple(revoked), config.requirements().status or StatusRules())


def _documents(statement: Path | str | bytes, robot: str) -> Iterator[bytes]:
    from physai.deploy_jetson.update.revocation.status_sources import names_in_folder, read_source
    from physai.sdk.signing.status.status_document import StatusError

    if isinstance(statement, bytes):
        yield statement
        return
    path = Path(statement).absolute()
    found = False
    for _, data in read_source(str(path), robot):
        found = True
        yield data
    if not found:
        names = " or ".join(names_in_folder(robot))
        raise StatusError(f"{path}: no status document: no such file; in a folder it is named {names}")
