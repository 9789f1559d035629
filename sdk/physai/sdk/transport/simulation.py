"""Control of a running simulated robot: get its state, pause, step and reset it.

Names and values follow ROS 2's standard simulator interfaces, package `simulation_interfaces` 1.x
(https://github.com/ros-simulation/simulation_interfaces), so that a server can pass them on unchanged.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, runtime_checkable

from physai.sdk.base.errors import PhysaiError

MAX_STEPS = 10_000
"""Maximum number of control periods per call of `step`, which cannot be interrupted."""


class SimulationError(PhysaiError):
    """The simulation cannot do what was requested, or not in its present state."""


class SimulationState(IntEnum):
    """States of simulation_interfaces/msg/SimulationState, except those for loading worlds."""

    STOPPED = 0
    """Paused and reset to the start."""
    PLAYING = 1
    PAUSED = 2
    QUITTING = 3
    """The process is ending."""


@dataclass(frozen=True)
class Entity:
    """Ground truth of an entity in the frame `world` (z up, SI units)."""

    name: str
    stamp_ns: int
    """Time of the state, CLOCK_REALTIME [ns]."""
    position: tuple[float, float, float]
    """Position of the origin of its root link [m]."""
    orientation: tuple[float, float, float, float]
    """Orientation of its root link, unit quaternion (w, x, y, z)."""
    linear: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Velocity of the origin of its root link [m/s]."""
    angular: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Angular velocity [rad/s]."""


class Simulation(Protocol):
    """A simulated robot; its methods may be called from any thread except its own."""

    @property
    def description(self) -> str:
        """One-line description."""
        ...

    @property
    def state(self) -> SimulationState:
        """Current state."""
        ...

    def change(self, state: SimulationState) -> None:
        """Play, pause, stop or quit.

        Raises:
            SimulationError: the simulation has ended.
        """
        ...

    def reset(self, *, whole: bool) -> None:
        """Reset the robot to a starting pose.

        Args:
            whole: True for the first pose and random numbers of the run, False for the next draw.

        Raises:
            SimulationError: the simulation has ended.
        """
        ...

    def step(self, periods: int) -> None:
        """Step a paused simulation by control periods; each applies the latest command and publishes a sample.

        Raises:
            SimulationError: it is not paused or has ended, or the count is not between 1 and `MAX_STEPS`.
        """
        ...

    def robot(self) -> Entity:
        """Return the state of the robot.

        Raises:
            SimulationError: the simulation has ended.
        """
        ...


@runtime_checkable
class ServesSimulation(Protocol):
    """A robot endpoint that can expose the control of its simulation."""

    def serve(self, simulation: Simulation) -> str:
        """Serve the simulation until the endpoint is closed; the endpoint must be open.

        Returns:
            One line that says what is served, or why nothing is.
        """
        ...
