"""Thread-safe control of a virtual robot: its own thread executes queued requests between control periods."""

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from physai.sdk.transport.simulation import MAX_STEPS, Entity, SimulationError, SimulationState
from physai.sim.virtual_robot.paced_twin import PacedTwin

T = TypeVar("T")


@dataclass(frozen=True)
class _Request:
    execute: Callable[[], None]
    reject: Callable[[], None]


class Control:
    """A `physai.sdk.transport.simulation.Simulation`; only the robot's thread calls `obey`, `asked` and `close`."""

    def __init__(self, twin: PacedTwin, publish: Callable[[], None]) -> None:
        """Starts in state PLAYING.

        Args:
            twin: the robot.
            publish: sends its current sample.
        """
        self._twin, self._publish = twin, publish
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
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

        def execute() -> None:
            try:
                answer.set_result(action())
            except SimulationError as error:
                answer.set_exception(error)
            except Exception as error:
                # Fail the request and the robot's thread: a diverged simulation cannot continue.
                answer.set_exception(SimulationError(str(error)))
                raise

        def reject() -> None:
            answer.set_exception(SimulationError("the simulation has ended"))

        self._requests.put(_Request(execute, reject))
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
            self._requests.get().execute()

    def close(self) -> None:
        """Rejects pending and future requests."""
        self._closed = True
        with suppress(queue.Empty):
            while True:
                self._requests.get_nowait().reject()

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
