"""Paths of a robot's files, and the checksum of its records. Imports nothing heavy: an upload must start at once.

A tree (default /var/lib/physai) belongs to the account that runs the robot:

    slots/a slots/b  bundle, engine, `installed`   state, state.copy   floor, trial, events (two equal copies)
    incoming         uploads, by SHA-256           current             link to the active slot
    lock                                           previous            link to the slot to roll back to, during a trial
    robot.key        the robot's private key       shadow              evidence of shadows, signed with it
    revocations      kept words of validators      revoked             note that a verdict was revoked

The owner's files are in /etc/physai, which belongs to another account: an account that may flash a robot must not be
able to change its trust file. With a tree at another path, they are in the tree unless a folder is given.

    robot            the robot's identity          limits              health limits for a trial
    trust.json       trusted keys                  settings.json       requirements on verdicts
"""

import os
from hashlib import sha256
from pathlib import Path

from physai.deploy_jetson.update.slots.slot_errors import SlotError

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
ROBOT_KEY_FILE = "robot.key"
SHADOW_FOLDER = "shadow"

BUNDLE_FILE = "bundle.physai"
"""File name of the bundle in a slot."""

MAX_RECORD_BYTES = 1 << 18


def config_folder(root: Path, named: Path | None = None) -> Path:
    """Folder of the owner's files of a tree.

    Args:
        root: the tree.
        named: an explicit folder; overrides the environment variable.
    """
    if named is not None:
        return named
    if variable := os.environ.get(CONFIG_VARIABLE):
        return Path(variable)
    return DEFAULT_CONFIG if root == DEFAULT_ROOT else root


def seal(text: bytes) -> bytes:
    """Appends a line with the SHA-256 of a one-line record, to detect disk errors."""
    return text + b"\n" + _digest(text) + b"\n"


def unseal(data: bytes, *, source: str) -> bytes:
    """Checks and removes the checksum line.

    Raises:
        SlotError: the record is damaged.
    """
    text, _, rest = data.partition(b"\n")
    if rest != _digest(text) + b"\n":
        raise SlotError(f"{source}: damaged: the second line is not the SHA-256 of the first")
    return text


def _digest(text: bytes) -> bytes:
    return sha256(text).hexdigest().encode()
