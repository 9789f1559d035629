"""Where things lie in a robot's tree, and the seal of its records; imports nothing heavy, as the upload must begin at
once.

A tree (default /var/lib/physai):

    robot            who this robot is             state, state.copy   floor, trial, events (the same twice)
    trust.json       whom it believes              current             link to the active slot
    slots/a slots/b  bundle, engine, `installed`   previous            link to the slot to go back to, during a trial
    incoming         uploads, by SHA-256           lock
"""

from hashlib import sha256

from physai.deploy_jetson.slots.errors import SlotError

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
