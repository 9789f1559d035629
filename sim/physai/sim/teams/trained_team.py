"""Run folders of teams, and options that are not for a team."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    from physai.sdk.onnx.device import PolicyDevice
    from physai.sim.policies.onnx import OnnxPolicy
    from physai.sim.teams.team import Team


def require_one_robot(what: object, given: Mapping[str, object]) -> None:
    """Check that no option of one robot is given for a team.

    Args:
        what: name of the team or its run folder, for the message.
        given: values of these options; None for those that are not given.

    Raises:
        PhysaiError: one is given.
    """
    for name, value in given.items():
        if value is not None:
            raise PhysaiError(f"`{name}` is for one robot, and {what} is a team; omit it, or name the run of one robot")


def trained_team(folder: Path, device: PolicyDevice) -> tuple[Team, dict[str, OnnxPolicy]]:
    """The team of a run folder, and its members' exported policies.

    Raises:
        TaskError: the folder's record cannot be read, or its team is not built in.
        PhysaiError: a member has no exported policy.
    """
    from physai.sim.policies.devices import make_policy
    from physai.sim.policies.onnx import read_policy
    from physai.sim.policies.resolve import find_policy
    from physai.sim.teams.team_registry import team_of

    team = team_of(folder)
    files = {name: find_policy(folder / name) for name in team.members}
    return team, {name: make_policy(read_policy(path), source=str(path), device=device) for name, path in files.items()}
