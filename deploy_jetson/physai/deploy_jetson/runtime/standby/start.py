"""The robot's settings at the start of a program, whether it activates at once, and its note for the next start."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from physai.deploy_jetson.runtime.loop.loop_result import LoopEnd
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.update.agent.config import open_config
from physai.deploy_jetson.update.revocation.revoked_drive import noted_revocation
from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem
from physai.deploy_jetson.update.slots.resume import leave_note, sign_note, take_note
from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.requirements import Requirements


def drives_at_once(options: RunOptions, say: Callable[[str], None]) -> bool:
    """Whether a run activates without a request.

    Args:
        options: of the run.
        say: reports settings that cannot be read, and a revocation.
    """
    # Taken in any case, so that no later start finds it.
    drove = take_note(options.root)
    if options.stand_by or (options.service and _awaits_operator(options, say)):
        return False
    return not options.service or drove or _drives_after_boot(options, say)


def note_driving(root: Path, end: LoopEnd) -> None:
    """Let the next run go on after one whose policy drove, if an update ended it.

    Args:
        root: the robot's tree.
        end: why the loop ended.
    """
    if end is LoopEnd.OTHER_CONTRACT:
        # Without the note the next run waits for `activate`.
        with suppress(OSError):
            leave_note(root, drove=True)
    elif end is LoopEnd.SHUTDOWN:
        sign_note(root)


def settings_of(options: RunOptions) -> Requirements:
    """Return the robot's settings.

    Raises:
        PhysaiError: they cannot be read.
    """
    return open_config(options.root, options.config, PosixFileSystem(options.root)).requirements()


def _drives_after_boot(options: RunOptions, say: Callable[[str], None]) -> bool:
    try:
        return settings_of(options).drive_after_boot
    except PhysaiError as error:
        say(f"warning: not driven at the start: {error}")
        return False


def _awaits_operator(options: RunOptions, say: Callable[[str], None]) -> bool:
    """Whether a verdict was revoked since an operator last had the robot driven, and the settings do not say go on."""
    why = noted_revocation(options.root)
    if why:
        with suppress(PhysaiError):
            status = settings_of(options).status
            if status is not None and status.drive_after_revoked:
                return False
        say(f"warning: not driven at the start: {why}; `activate` begins to drive")
    return bool(why)
