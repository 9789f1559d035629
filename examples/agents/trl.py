"""A served world as environment of TRL's `GRPOTrainer`: every public method is a tool of the model.

TRL reads signatures and docstrings and hands them to the model, so they are written for it. TRL itself is not imported.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from agents.reaching import Reach
from agents.skills import TwinSkills
from physai.sim import load_task


class TwinTools:
    """Tools for any task; make it with `environment_factory`."""

    def __init__(self, url: str, task: str, **options: Any) -> None:
        """Nothing is sent yet; arguments as for `agents.skills.TwinSkills`."""
        self._skills = TwinSkills(url, task, **options)

    def reset(self, **columns: Any) -> str:
        """Starts an episode; TRL appends the text to the prompt.

        Args:
            columns: the row of the data set; its integer `seed` selects the episode, 0 if there is none.

        Raises:
            ServiceError: the service refuses the task, or cannot be reached.
        """
        return self._skills.reset(int(columns.get("seed") or 0))

    def get_reward(self) -> float:
        """Share of the episode's commands that met the task's criterion, 0 to 1.

        Raises:
            ServiceError: the service could not be used in this episode, so that its reward would mean nothing.
        """
        if self._skills.failure is not None:
            raise self._skills.failure
        return self._skills.score

    def read_state(self) -> str:
        """Reads the sensors and the command without moving.

        Returns:
            JSON with the time, the sensor and command fields with their units, and how many goals were met.
        """
        return self._skills.call("read_state", {})

    def act(self, targets: list[float], seconds: float) -> str:
        """Holds joint targets for a time.

        Args:
            targets: One target per joint, in the order and within the bounds that the task states.
            seconds: How long to hold them, up to 10.

        Returns:
            The state afterwards, as read_state gives it.
        """
        return self._skills.call("act", {"targets": targets, "seconds": seconds})


class PoseTwinTools(TwinTools):
    """Tools for a task with a target pose."""

    def move_to(self, pose: list[float], seconds: float) -> str:
        """Moves the end effector to a pose and settles.

        Args:
            pose: x, y, z in m and quaternion w, x, y, z of the end effector in the base frame.
            seconds: How long it takes, up to 10.

        Returns:
            The state afterwards, as read_state gives it.
        """
        return self._skills.call("move_to", {"pose": pose, "seconds": seconds})


def environment_factory(url: str, task: str, **options: Any) -> Callable[[], TwinTools]:
    """The `environment_factory` of a trainer; it can be pickled.

    Args:
        url: address of the service.
        task: name of a built-in task.
        options: further ones of `agents.skills.TwinSkills`.

    Raises:
        PhysaiError: there is no such task or preset.
    """
    reach = Reach.of(load_task(task, preset=options.get("preset")).contract)
    return partial(TwinTools if reach is None else PoseTwinTools, url, task, **options)
