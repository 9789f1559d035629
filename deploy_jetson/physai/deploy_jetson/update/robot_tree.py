"""The robot's tree of slots that a procedure works on. Imports nothing heavy: an upload must start at once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from physai.deploy_jetson.update.slots.layout import DEFAULT_ROOT
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.deploy_jetson.update.agent.agent import UpdateAgent

ROOT_VARIABLE = "PHYSAI_ROBOT_ROOT"
MAX_WAIT_S = 86400.0

Backend = Annotated[Literal["auto", "onnxruntime", "tensorrt"], Option(metavar="NAME")]


@dataclass(frozen=True, kw_only=True)
class RobotTree:
    """A robot's tree of slots, and the wait for other commands that work on it.

    Attributes:
        root: the robot's tree. None for PHYSAI_ROBOT_ROOT, or /var/lib/physai.
        config_root: the owner's files. None for /etc/physai of the default tree, in any other the tree.
        wait_s: wait for another command to end [s].
        warn: receives warnings that fail no command.
    """

    root: Annotated[Path | str | None, Option(metavar="DIR")] = None
    config_root: Annotated[Path | str | None, Option(metavar="DIR", old=("--config",))] = None
    wait_s: Annotated[float, Option(old=("--wait",))] = 0.0
    warn: Callable[[str], None] = lambda message: None

    def __post_init__(self) -> None:
        """Checks the wait."""
        # Also rejects NaN.
        if not (math.isfinite(self.wait_s) and 0.0 <= self.wait_s <= MAX_WAIT_S):
            raise PhysaiError(f"`wait_s` must lie in 0 … {MAX_WAIT_S:g} s, got {self.wait_s:g}")

    @property
    def path(self) -> Path:
        """The tree's folder."""
        return Path(self.root or os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)

    @property
    def config_path(self) -> Path | None:
        """Folder of the owner's files; None for the default of the tree."""
        return None if self.config_root is None else Path(self.config_root)

    def existing(self) -> Path:
        """The tree's folder.

        Raises:
            PhysaiError: there is no such folder.
        """
        if not self.path.is_dir():
            raise PhysaiError(
                f"{self.path}: no such folder; create it with `physai robot setup`, or name another with `root`"
            )
        return self.path


Tree = RobotTree | Path | str
"""A tree, or its folder."""
TreeOption = Annotated[Tree | None, Option(flatten=True)]


def tree_of(tree: Tree | None) -> RobotTree:
    """The tree that a procedure was given; None for the robot's own."""
    return tree if isinstance(tree, RobotTree) else RobotTree(root=tree)


def agent_of(tree: RobotTree, *, backend: Backend = "auto") -> UpdateAgent:
    """The update agent of a tree."""
    from physai.deploy_jetson.update.agent.agent import UpdateAgent

    return UpdateAgent(
        root=tree.path, config_root=tree.config_path, wait_s=tree.wait_s, backend=backend, warn=tree.warn
    )
