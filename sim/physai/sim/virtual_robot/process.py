"""A process that stands in for a robot: the twin behind the wire a robot would be behind."""

import time
from collections.abc import Callable
from typing import Literal

from physai.sdk.transport.protocol import RobotEndpoint
from physai.sdk.transport.simulation import SimulationState
from physai.sim.virtual_robot.control import Control
from physai.sim.virtual_robot.paced_twin import NANOSECONDS, PacedTwin, RuntimeTally
from physai.sim.virtual_robot.robot_twin import RobotTwin

Clock = Literal["realtime", "lockstep"]
PATIENCE_S = 1.0
"""In lock-step: time without a command after which that counts as silence [s]."""
REPEAT_S = 0.1
"""In lock-step: time after which an unanswered sample is sent again [s]: it may have been sent to nobody."""
PAUSED_LOOK_S = 0.02
"""While paused: time between two looks at what others ask [s]."""


class VirtualRobot:
    """Plays a robot for whatever runtime is at the other end of a link."""

    def __init__(self, twin: RobotTwin, link: RobotEndpoint, *, clock: Clock = "realtime", seed: int = 0) -> None:
        """Nothing is sent before `run`.

        Args:
            twin: the robot.
            link: where its samples go and its commands come from, open.
            clock: `realtime`, or `lockstep`: a control period passes with each command, and none without.
            seed: draws the jitter of the robot's loop.
        """
        self._link = link
        self._clock: Clock = clock
        self._twin = PacedTwin(twin, seed=seed, start_ns=time.monotonic_ns())
        self.control = Control(self._twin, self._publish)
        """What other threads may do to it while it runs."""

    @property
    def tally(self) -> RuntimeTally:
        """What has happened so far."""
        return self._twin.tally

    def run(self, *, duration_s: float, stopped: Callable[[], bool] = lambda: False) -> RuntimeTally:
        """Plays until the time is over [s], until `stopped`, or until somebody lets the simulation quit.

        Raises:
            TransportError: the link failed.
            PhysaiError: the physics diverged.
        """
        end_ns = time.monotonic_ns() + round(duration_s * NANOSECONDS)
        self._publish()
        try:
            while time.monotonic_ns() < end_ns and not stopped():
                self.control.obey()
                if self.control.state is SimulationState.QUITTING:
                    break
                self._go_on(stopped)
        finally:
            self.control.close()
        return self.tally

    def _go_on(self, stopped: Callable[[], bool]) -> None:
        if self.control.state is not SimulationState.PLAYING:
            self._stand(stopped)
        elif self._clock == "realtime":
            self._pass_period(stopped)
        else:
            self._answer(lambda: stopped() or self.control.asked())

    def _stand(self, stopped: Callable[[], bool]) -> None:
        """Keeps the newest command, for when it is stepped, until somebody asks for something."""
        while not (stopped() or self.control.asked()):
            if self._link.wait(PAUSED_LOOK_S):
                command = self._link.command()
                self._twin.take_paused(command.targets, command.stamp_ns)

    def _publish(self) -> None:
        self._link.publish(self._twin.twin.fields, self._twin.stamp_ns)

    def _pass_period(self, stopped: Callable[[], bool]) -> None:
        """Takes commands until the next sample is due, then sends it."""
        while not stopped():
            left_ns = self._twin.due_ns - time.monotonic_ns()
            if self._link.wait(max(0, left_ns) / NANOSECONDS):
                command = self._link.command()
                self._twin.take(command.targets, command.stamp_ns, command.received_ns)
            if left_ns <= 0:
                break
        self._twin.tick(time.monotonic_ns())
        self._publish()

    def _answer(self, stopped: Callable[[], bool]) -> None:
        """Waits for a command, lets a control period pass under it, and sends what was measured then."""
        asked = time.monotonic()
        while not self._link.wait(REPEAT_S):
            if stopped():
                return
            if time.monotonic() - asked > PATIENCE_S:
                self._twin.neglect()
                asked = time.monotonic()
            self._twin.stand_still()
            self._publish()
        if self._twin.take_in_lockstep(self._link.command().targets):
            self._publish()
