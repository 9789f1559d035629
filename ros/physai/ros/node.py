"""The active policy as a ROS 2 managed node: same loop, guard and telemetry as `physai robot run`.

The control loop has its own thread and takes sensor messages itself (`physai.ros.wire`). rclpy's executor runs the
rest: transitions, parameters, services, diagnostics. Transitions are serialised; nothing else waits for them.

Topics are those of the robot's binding. Services (std_srvs/Trigger) under the node's name: `hold`, `damp`, `estop`,
`reset` (to standstill), `start` (back to the policy; also `resume`), `heartbeat`, `load_slot` (switch to the version in
the idle slot, as `physai robot activate`). Each reports the outcome; success means that the request was
fulfilled. `~/status` (std_msgs/String, latched) is the runtime's status as JSON, published on change; `/diagnostics`
is published once a second.
"""

import json
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import ParameterException
from rclpy.lifecycle import LifecycleNodeMixin, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import String
from std_srvs.srv import Trigger

from physai.deploy_jetson.runtime.commands.queue import Command
from physai.deploy_jetson.runtime.loop.loop import LoopEnd
from physai.deploy_jetson.telemetry.diagnosis import diagnose
from physai.deploy_jetson.ticks.lifecycle import Lifecycle
from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.ros.arguments import require_names
from physai.ros.drive import ANSWER_S, STOP_S, Drive, DriveError, record_stop
from physai.ros.parameters import (
    PARAMETERS,
    NodeParameter,
    ParameterError,
    Value,
    check_change,
    expected,
    run_options,
    telemetry,
    transport_options,
)
from physai.ros.pauses import Pauses
from physai.ros.transport import RosTransport
from physai.sdk.base.errors import PhysaiError
from physai.sdk.safety import GuardState
from physai.transport.dds.domain import one_line

NODE_NAME = "physai_policy"

# Period of the timer that monitors the runtime [s].
LOOK_S = 0.05

# Timeout until all joints are measured at rest after an emergency stop [s].
STOP_CONFIRM_S = 3.0

# Timeout of a transition in progress at the end of the process [s].
FINISH_S = STOP_S + 1.0

# Services that brake: command, and minimum guard state it leads to.
BRAKES = {"hold": (Command.HOLD, GuardState.HOLD), "damp": (Command.DAMP, GuardState.DAMP)}

# Services that lead back to motion.
RELEASES = {"reset": Command.RESET, "start": Command.START, "resume": Command.START}

ACTIVE, INACTIVE = "active", "inactive"
SUCCESS, FAILURE, ERROR = (
    TransitionCallbackReturn.SUCCESS,
    TransitionCallbackReturn.FAILURE,
    TransitionCallbackReturn.ERROR,
)


class PolicyNode(LifecycleNodeMixin, Node):
    """configure loads and verifies, activate drives, deactivate ramps to HOLD, cleanup disconnects."""

    def __init__(self, **options: Any) -> None:
        """Declares parameters, services and publishers; nothing is loaded.

        Args:
            options: further arguments of rclpy's Node.
        """
        # Reentrant: neither a stop nor a query of the node's state must wait for a transition.
        operator = ReentrantCallbackGroup()
        Node.__init__(self, NODE_NAME, **options)
        LifecycleNodeMixin.__init__(self, callback_group=operator)
        # Held by the transition in progress.
        self._transition_lock = threading.Lock()
        self._change_state = self._service_change_state.callback
        # rclpy has no hook around a transition, so its service's callback is replaced.
        self._service_change_state.callback = self._on_change_state
        self._drive: Drive | None = None
        self._reached = ""
        self._published_status = ""
        self._published_s = 0.0
        self._pauses = Pauses(time.monotonic_ns())
        for name, parameter in PARAMETERS.items():
            self._declare(name, parameter)
        require_names(self._parameter_overrides)
        self.add_on_set_parameters_callback(self._on_parameters)
        services: dict[str, Callable[[], str]] = {
            **{name: partial(self._brake, *brake) for name, brake in BRAKES.items()},
            **{name: partial(self._release, command) for name, command in RELEASES.items()},
            "estop": self._stop,
            "heartbeat": self._heartbeat,
            "load_slot": self._load_slot,
        }
        for name, action in services.items():
            self.create_service(Trigger, f"~/{name}", partial(self._answer, action), callback_group=operator)
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._status = self.create_publisher(String, "~/status", latched)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 1)
        # Steady time: independent of use_sim_time and of changes to the system clock.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        looking = MutuallyExclusiveCallbackGroup()
        self._look = self.create_timer(LOOK_S, self._on_look, callback_group=looking, clock=steady)

    def _declare(self, name: str, parameter: NodeParameter) -> None:
        try:
            self.declare_parameter(name, parameter.default, _descriptor(parameter))
        except ParameterException as error:
            raise ParameterError(f"parameter {name}: {one_line(error)}; expected {expected(name)}") from error

    def finish(self, spin: Callable[[], None]) -> None:
        """Ramps to HOLD and finalises, even during a transition.

        Args:
            spin: runs the executor once.
        """
        drive = self._drive
        if drive is not None:
            self._transition("shutdown", drive.stop, "")
        deadline = time.monotonic() + FINISH_S
        while not self._transition_lock.acquire(blocking=False):
            if time.monotonic() > deadline:
                return
            spin()
        try:
            self.trigger_shutdown()
        except RuntimeError:
            self.get_logger().debug("already finalised")
        finally:
            self._transition_lock.release()

    def _on_change_state(self, request: Any, response: Any) -> Any:
        """Wraps rclpy's handler, which would run two transitions concurrently and raise on an invalid one."""
        response.success = False
        if not self._transition_lock.acquire(blocking=False):
            self.get_logger().warning("refused: another transition is in progress")
            return response
        try:
            return self._change_state(request, response)
        except RuntimeError as error:
            self.get_logger().warning(
                f"refused: transition {request.transition.id} is not valid in this state: {one_line(error)}"
            )
            return response
        finally:
            self._transition_lock.release()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Loads and verifies the active bundle, starts its engine, connects the topics."""
        return self._transition("configure", self._configure, INACTIVE)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Starts driving the robot once its sensor samples are sound."""
        timeout_s = float(self._value("activation_timeout_s"))

        def activate() -> Any:
            self._require_awake()
            return self._loaded().activate(timeout_s)

        return self._transition("activate", activate, ACTIVE)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Ramps to HOLD, then stops sending."""
        return self._transition("deactivate", self._deactivate, INACTIVE)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Disconnects and unloads the policy."""
        return self._transition("cleanup", self._unload, "")

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Ramps to HOLD if active, then unloads the policy."""
        return self._transition("shutdown", self._unload, "")

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Damps, then unloads the policy."""
        if self._drive is not None:
            # It may not be active any more.
            with suppress(DriveError):
                self._drive.brake(Command.DAMP)
        return self._transition("error processing", self._unload, "")

    def _transition(self, name: str, action: Callable[[], None], to: str) -> TransitionCallbackReturn:
        """Runs the action of a transition; an expected error is logged and leaves the node in its state."""
        try:
            action()
        except PhysaiError as error:
            self.get_logger().error(f"{name}: {error}")
            return FAILURE
        except Exception as error:
            # rclpy would enter error processing without logging it.
            self.get_logger().error(f"{name}: {type(error).__name__}: {one_line(error)}\n{traceback.format_exc()}")
            return ERROR
        self._reached = to
        return SUCCESS

    def _configure(self) -> None:
        if self._use_sim_time():
            raise ParameterError(
                "use_sim_time is true, but the control loop uses the system clock, also for the age of samples; set "
                "use_sim_time to false, and run the simulator in real time"
            )
        values = {name: self._value(name) for name in PARAMETERS}
        options = run_options(values)
        transport = RosTransport(transport_options(values), self)
        drive = Drive(options, transport, say=self._log, telemetry=telemetry(values))
        # Set before `start`, so that an emergency stop reaches it while it loads.
        self._drive = drive
        try:
            drive.start()
        except BaseException:
            self._drive = None
            raise

    def _deactivate(self) -> None:
        # After the loop has ended by itself there is nothing to deactivate.
        if self._drive is not None:
            self._drive.deactivate()

    def _unload(self) -> None:
        try:
            if self._drive is not None:
                self._drive.stop()
        finally:
            # Only now: an emergency stop must reach it while it ramps down.
            self._drive = None

    def _loaded(self) -> Drive:
        if self._drive is None:
            raise DriveError("no policy is loaded; configure the node first")
        return self._drive

    def _log(self, text: str) -> None:
        # Two call sites, because rclpy allows only one severity per calling line.
        if text.startswith(("warning:", "HOLD", "DAMP", "PROTECTIVE_STOP")):
            self.get_logger().warning(text)
        else:
            self.get_logger().info(text)

    def _value(self, name: str) -> Value:
        value: Value = self.get_parameter(name).value
        return value

    def _use_sim_time(self) -> bool:
        return bool(self.has_parameter("use_sim_time") and self.get_parameter("use_sim_time").value)

    def _on_parameters(self, changed: list[Any]) -> SetParametersResult:
        try:
            for parameter in changed:
                if parameter.name in PARAMETERS:
                    check_change(parameter.name, parameter.value, loaded=self._drive is not None)
                elif parameter.name == "use_sim_time" and parameter.value and self._drive is not None:
                    raise ParameterError("use_sim_time: the control loop uses the system clock")
        except ParameterError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _brake(self, command: Command, state: GuardState) -> str:
        return self._loaded().braked(command, state)

    def _release(self, command: Command) -> str:
        self._require_awake(f"{command}: ")
        return f"{command}: {self._loaded().request(command)}"

    def _require_awake(self, about: str = "") -> None:
        """Raise DriveError if a request may be older than its sender waits for an answer."""
        if late := self._pauses.late(time.monotonic_ns(), ANSWER_S):
            raise DriveError(f"{about}refused: {late}")

    def _stop(self) -> str:
        """Stops; returns only once every joint is measured at rest."""
        drive = self._drive
        if drive is None:
            root = Path(str(self._value("root")))
            raise DriveError(f"no policy is loaded, so nothing is driven; {record_stop(root)}")
        return drive.confirmed_stop(STOP_CONFIRM_S)

    def _heartbeat(self) -> str:
        drive = self._loaded()
        if not drive.running:
            raise DriveError("the control loop has ended; configure the node again")
        # A node that stood still reads old requests, so they count from when it was last seen alive.
        drive.runtime.commands.heartbeat_ns = self._pauses.read_since_ns(time.monotonic_ns())
        return "received"

    def _load_slot(self) -> str:
        """Activates the version in the idle slot; a running loop swaps to it between two ticks."""
        trial = UpdateAgent(root=Path(str(self._value("root")))).activate()
        swaps = self._drive is not None and self._value("hot_swap")
        loading = "the loop swaps to it, or logs why not" if swaps else "configure loads it"
        return f"version {trial.version} is active in slot {trial.slot}, on trial; {loading}"

    def _answer(self, action: Callable[[], str], request: Any, response: Any) -> Any:
        try:
            response.message, response.success = action(), True
        except PhysaiError as error:
            response.message, response.success = str(error), False
            self.get_logger().error(str(error))
        return response

    def _on_look(self) -> None:
        # This timer may come before the requests that waited meanwhile.
        self._pauses.look(time.monotonic_ns())
        drive = self._drive
        if drive is not None and self._transition_lock.acquire(blocking=False):
            try:
                if not drive.running:
                    self._on_loop_end(drive)
                elif self._reached == ACTIVE and drive.runtime.state is not Lifecycle.ACTIVE:
                    # Another commander has taken the robot; `activate` requests it again.
                    self.trigger_deactivate()
            finally:
                self._transition_lock.release()
        status: dict[str, Any] = {} if self._drive is None else self._drive.runtime.status()
        diagnosis = diagnose(status)
        # Published when this changes, not with every tick's counters.
        digest = f"{diagnosis.level} {diagnosis.message} {status.get('version')}"
        now_s = time.monotonic()
        if digest != self._published_status:
            self._published_status = digest
            self._status.publish(String(data=json.dumps(status | {"message": diagnosis.message})))
        # Otherwise at the period of /diagnostics, so that tools do not count it as stale.
        elif now_s - self._published_s < float(self._value("diagnostics_period_s")):
            return
        self._published_s = now_s
        message = DiagnosticArray()
        message.header.stamp = self.get_clock().now().to_msg()
        values = [KeyValue(key=key, value=value) for key, value in diagnosis.values.items()]
        message.status = [
            DiagnosticStatus(
                level=bytes([diagnosis.level]),
                name=f"{self.get_fully_qualified_name()}: runtime",
                message=diagnosis.message,
                hardware_id=str(status.get("robot", "")),
                values=values,
            )
        ]
        self._diagnostics.publish(message)

    def _on_loop_end(self, drive: Drive) -> None:
        """Deactivates and cleans up the node after the loop has ended by itself."""
        if drive.end is LoopEnd.OTHER_CONTRACT:
            self.get_logger().warning(
                "a policy with another contract was activated; configure the node again to load it"
            )
        else:
            self.get_logger().error(f"the control loop has ended: {drive.error or drive.end}")
        self._drive = None
        if self._reached == ACTIVE:
            self.trigger_deactivate()
        if self._reached == INACTIVE:
            self.trigger_cleanup()


def _descriptor(parameter: NodeParameter) -> ParameterDescriptor:
    bounds: dict[str, Any] = {}
    if isinstance(parameter.default, float):
        bounds["floating_point_range"] = [FloatingPointRange(from_value=parameter.lower, to_value=parameter.upper)]
    elif isinstance(parameter.default, int) and not isinstance(parameter.default, bool):
        bounds["integer_range"] = [IntegerRange(from_value=int(parameter.lower), to_value=int(parameter.upper), step=1)]
    return ParameterDescriptor(description=parameter.description, **bounds)
