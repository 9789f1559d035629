"""The virtual robot: a twin behind a robot's transport endpoint."""

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Literal, TypeVar

from physai.sdk.transport.protocol import RobotEndpoint
from physai.sdk.transport.simulation import MAX_STEPS, Entity, SimulationError, SimulationState
from physai.twin.virtual_robot.paced_twin import NANOSECONDS, PacedTwin, RuntimeTally
from physai.twin.virtual_robot.robot_twin import RobotTwin

Clock = Literal["realtime", "lockstep"]
PATIENCE_S = 1.0
"""Command timeout in lockstep mode [s]."""
REPEAT_S = 0.1
"""Lockstep mode: period of resending an unanswered sample [s], which may have been lost or sent before discovery."""
PAUSED_LOOK_S = 0.02
"""Poll period for requests while paused [s]."""

T = TypeVar("T")


class Control:
    """A `physai.sdk.transport.simulation.Simulation`: the robot's thread executes queued requests between periods.

    Only that thread calls `asked`, `obey` and `close`.
    """

    def __init__(self, twin: PacedTwin, publish: Callable[[], None]) -> None:
        """Starts in state PLAYING.

        Args:
            twin: the robot.
            publish: sends its current sample.
        """
        self._twin, self._publish = twin, publish
        self._requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._closed = False
        self.state = SimulationState.PLAYING

    @property
    def description(self) -> str:
        """See `Simulation.description`."""
        contract = self._twin.twin.contract
        return f"{contract.robot.name}, the robot of task {contract.task}"

    def change(self, state: SimulationState) -> None:
        """See `Simulation.change`."""
        self._ask(lambda: self._change(state))

    def reset(self, *, whole: bool) -> None:
        """See `Simulation.reset`."""
        self._ask(lambda: self._restart(whole=whole))

    def step(self, periods: int) -> None:
        """See `Simulation.step`."""
        self._ask(lambda: self._step(periods))

    def robot(self) -> Entity:
        """See `Simulation.robot`."""
        return self._ask(lambda: self._twin.twin.entity(time.time_ns()))

    def paused(self) -> bool:
        """Whether the simulation clock is stopped."""
        return self.state is not SimulationState.PLAYING

    def _ask(self, action: Callable[[], T]) -> T:
        """Queues an action for the robot's thread and waits for its result."""
        answer: Future[T] = Future()
        self._requests.put((action, answer))
        # `close` may have emptied the queue just before this request was queued.
        if self._closed:
            self.close()
        return answer.result()

    def asked(self) -> bool:
        """Whether requests are pending."""
        return not self._requests.empty()

    def obey(self) -> None:
        """Executes the pending requests.

        Raises:
            PhysaiError: the physics diverged, or a sample could not be sent.
        """
        while self.asked():
            action, answer = self._requests.get()
            try:
                answer.set_result(action())
            except SimulationError as error:
                answer.set_exception(error)
            except Exception as error:
                # Fail the request and the robot's thread: a diverged simulation cannot continue.
                answer.set_exception(SimulationError(str(error)))
                raise

    def close(self) -> None:
        """Rejects pending and future requests."""
        self._closed = True
        with suppress(queue.Empty):
            while True:
                _, answer = self._requests.get_nowait()
                answer.set_exception(SimulationError("the simulation has ended"))

    def _change(self, state: SimulationState) -> None:
        playing = SimulationState.PLAYING
        if self.state is playing and state is not playing:
            self._twin.pause()
        if state is SimulationState.STOPPED:
            self._restart(whole=True)
        if state is playing and self.state is not playing:
            self._twin.resume(time.monotonic_ns())
        self.state = state

    def _restart(self, *, whole: bool) -> None:
        self._twin.restart(whole=whole)
        self._publish()

    def _step(self, periods: int) -> None:
        if self.state is not SimulationState.PAUSED:
            raise SimulationError(f"stepping needs a paused simulation; it is {self.state.name.lower()}")
        if not 1 <= periods <= MAX_STEPS:
            raise SimulationError(f"{periods} steps, expected 1 … {MAX_STEPS} control periods in one call")
        for _ in range(periods):
            self._twin.step()
            self._publish()


class VirtualRobot:
    """Simulates a robot for the runtime at the other end of a transport."""

    def __init__(self, twin: RobotTwin, link: RobotEndpoint, *, clock: Clock = "realtime", seed: int = 0) -> None:
        """Sends nothing before `run`.

        Args:
            twin: the robot.
            link: open endpoint for its samples and commands.
            clock: `realtime`, or `lockstep`: each command advances the simulation by one control period.
            seed: seed of the loop jitter.
        """
        self._link = link
        self._clock: Clock = clock
        self._twin = PacedTwin(twin, seed=seed, start_ns=time.monotonic_ns())
        self.control = Control(self._twin, self._publish)
        """Control of the running simulation from other threads."""

    @property
    def tally(self) -> RuntimeTally:
        return self._twin.tally

    def run(self, *, duration_s: float, stopped: Callable[[], bool] = lambda: False) -> RuntimeTally:
        """Runs for `duration_s`, until `stopped`, or until the state becomes QUITTING.

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
                self._advance(stopped)
        finally:
            self.control.close()
        return self.tally

    def _advance(self, stopped: Callable[[], bool]) -> None:
        if self.control.state is not SimulationState.PLAYING:
            self._wait_paused(stopped)
        elif self._clock == "realtime":
            self._run_period(stopped)
        else:
            self._run_lockstep_period(lambda: stopped() or self.control.asked())

    def _wait_paused(self, stopped: Callable[[], bool]) -> None:
        """Stores the newest command for the next step until a request arrives."""
        while not (stopped() or self.control.asked()):
            if self._link.wait(PAUSED_LOOK_S):
                command = self._link.command()
                self._twin.take_paused(command.targets, command.stamp_ns)

    def _publish(self) -> None:
        self._link.publish(self._twin.twin.fields, self._twin.stamp_ns)

    def _run_period(self, stopped: Callable[[], bool]) -> None:
        """Applies commands until the next sample is due, then sends it."""
        while not stopped():
            # Even when a sample is overdue, look once for a command that has already arrived.
            left_ns = self._twin.due_ns - time.monotonic_ns()
            if self._link.wait(max(0, left_ns) / NANOSECONDS):
                command = self._link.command()
                self._twin.take(command.targets, command.stamp_ns, command.received_ns)
            if left_ns <= 0:
                break
        self._twin.tick(time.monotonic_ns())
        self._publish()

    def _run_lockstep_period(self, stopped: Callable[[], bool]) -> None:
        """Waits for a command, advances by one control period and sends the sample."""
        since = time.monotonic()
        while not self._link.wait(REPEAT_S):
            if stopped():
                return
            if time.monotonic() - since > PATIENCE_S:
                self._twin.neglect()
                since = time.monotonic()
            self._twin.stand_still()
            self._publish()
        if self._twin.take_in_lockstep(self._link.command().targets):
            self._publish()
