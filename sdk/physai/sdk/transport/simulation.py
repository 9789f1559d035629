"""What others may do to a simulated robot while it runs: look, pause, step, reset.

The words and numbers are those of ROS 2's standard interfaces for simulators, package `simulation_interfaces` 1.x
(https://github.com/ros-simulation/simulation_interfaces), so that whoever serves them has nothing to translate.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, runtime_checkable

from physai.sdk.base.errors import PhysaiError

MAX_STEPS = 10_000
"""Most control periods that one call steps through; it cannot be interrupted."""


class SimulationError(PhysaiError):
    """A simulation cannot do what was asked of it, or not now."""


class SimulationState(IntEnum):
    """Of simulation_interfaces/msg/SimulationState, those without worlds to load."""

    STOPPED = 0
    """Paused, and reset to the start."""
    PLAYING = 1
    PAUSED = 2
    QUITTING = 3
    """Its process ends."""


@dataclass(frozen=True)
class Entity:
    """Ground truth of a thing in the scene, in the frame `world` (z up, metres, SI units)."""

    name: str
    stamp_ns: int
    """When, CLOCK_REALTIME [ns]."""
    position: tuple[float, float, float]
    """Of its root link's origin [m]."""
    orientation: tuple[float, float, float, float]
    """Unit quaternion of its root link, (w, x, y, z)."""
    linear: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Velocity of its root link's origin [m/s]."""
    angular: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Angular velocity [rad/s]."""


class Simulation(Protocol):
    """A simulated robot; may be called from any thread but its own."""

    @property
    def description(self) -> str:
        """What it is, in one line."""
        ...

    @property
    def state(self) -> SimulationState:
        """What it does now."""
        ...

    def change(self, state: SimulationState) -> None:
        """Plays, pauses, stops or quits.

        Raises:
            SimulationError: it has ended.
        """
        ...

    def reset(self, *, whole: bool) -> None:
        """Puts the robot into a starting pose.

        Args:
            whole: the very first one, with the first random numbers; else the next one that is drawn.

        Raises:
            SimulationError: it has ended.
        """
        ...

    def step(self, periods: int) -> None:
        """Lets control periods pass while it is paused, each under the newest command, each ending with a sample.

        Raises:
            SimulationError: it is not paused, or these are none or more than `MAX_STEPS`, or it has ended.
        """
        ...

    def robot(self) -> Entity:
        """Where the robot is.

        Raises:
            SimulationError: it has ended.
        """
        ...


@runtime_checkable
class ServesSimulation(Protocol):
    """A robot link that lets others control the simulation behind it."""

    def serve(self, simulation: Simulation) -> str:
        """Starts to serve it, until the link is closed; the link must be open.

        Returns:
            What is served, or why nothing is, in one line.
        """
        ...
