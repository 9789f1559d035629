"""Where a robot's files lie, and the seal of its records; imports nothing heavy, as the upload must begin at once.

A tree (default /var/lib/physai) belongs to the account that runs the robot:

    slots/a slots/b  bundle, engine, `installed`   state, state.copy   floor, trial, events (the same twice)
    incoming         uploads, by SHA-256           current             link to the active slot
    lock                                           previous            link to the slot to go back to, during a trial

The owner's files lie in /etc/physai, which belongs to another account: whoever may flash a robot must not be able to
say whom it believes. In a tree elsewhere they lie in the tree, unless another folder is named.

    robot            who this robot is             limits              what a version on trial must show
    trust.json       whom it believes
"""

import os
from hashlib import sha256
from pathlib import Path

from physai.deploy_jetson.slots.errors import SlotError

DEFAULT_ROOT = Path("/var/lib/physai")
DEFAULT_CONFIG = Path("/etc/physai")
"""The owner's files of the default tree."""
CONFIG_VARIABLE = "PHYSAI_ROBOT_CONFIG"

CURRENT = "current"
PREVIOUS = "previous"
STATE_FILES = ("state", "state.copy")
SLOTS_FOLDER = "slots"
INCOMING = "incoming"
MARKER_FILE = "installed"
IDENTITY_FILE = "robot"

BUNDLE_FILE = "bundle.physai"
"""Name of the bundle in a slot."""

MAX_RECORD_BYTES = 1 << 18


def config_folder(root: Path, named: Path | None = None) -> Path:
    """Where the owner's files of a tree lie.

    Args:
        root: the tree.
        named: the folder, where one was named; it wins over the environment's.
    """
    said = os.environ.get(CONFIG_VARIABLE)
    if named is not None or said:
        return named or Path(said or "")
    return DEFAULT_CONFIG if root == DEFAULT_ROOT else root


def seal(text: bytes) -> bytes:
    """Two lines: a record, and the SHA-256 of that line, because disks forget bits."""
    return text + b"\n" + _digest(text) + b"\n"


def unseal(data: bytes, *, source: str) -> bytes:
    """The record in two lines.

    Raises:
        SlotError: it is damaged.
    """
    text, _, rest = data.partition(b"\n")
    if rest != _digest(text) + b"\n":
        raise SlotError(f"{source}: damaged: the second line is not the SHA-256 of the first")
    return text


def _digest(text: bytes) -> bytes:
    return sha256(text).hexdigest().encode()
