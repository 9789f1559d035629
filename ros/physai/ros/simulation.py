"""The standard simulator services (package `simulation_interfaces`) for a virtual robot.

Services in the node's namespace: `get_simulator_features`, `get_simulation_state`, `set_simulation_state`,
`reset_simulation`, `step_simulation`, `get_entities`, `get_entity_info`, `get_entity_state`, `get_entities_states`.
Unsupported requests are answered with RESULT_FEATURE_UNSUPPORTED and a reason.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from simulation_interfaces.msg import EntityCategory, Result, SimulatorFeatures
from simulation_interfaces.msg import EntityState as EntityStateMessage
from simulation_interfaces.srv import (
    GetEntities,
    GetEntitiesStates,
    GetEntityInfo,
    GetEntityState,
    GetSimulationState,
    GetSimulatorFeatures,
    ResetSimulation,
    SetSimulationState,
    StepSimulation,
)

from physai.sdk.transport.simulation import MAX_STEPS, Entity, Simulation, SimulationError, SimulationState

WORLD = "world"
# Maximum length of a regular expression.
MAX_FILTER = 256

FEATURES = (
    SimulatorFeatures.ENTITY_CATEGORIES,
    SimulatorFeatures.ENTITY_STATE_GETTING,
    SimulatorFeatures.ENTITY_INFO_GETTING,
    SimulatorFeatures.SIMULATION_RESET,
    SimulatorFeatures.SIMULATION_RESET_STATE,
    SimulatorFeatures.SIMULATION_STATE_GETTING,
    SimulatorFeatures.SIMULATION_STATE_SETTING,
    SimulatorFeatures.SIMULATION_STATE_PAUSE,
    SimulatorFeatures.STEP_SIMULATION_SINGLE,
    SimulatorFeatures.STEP_SIMULATION_MULTIPLE,
)
CUSTOM_INFO = (
    f"physai's twin. A step is a control period of the contract, at most {MAX_STEPS} per call. Time is the system "
    "clock: it is not reset, and /clock is not published."
)


class SimulationServices:
    """Services on a node, which must be spun."""

    def __init__(self, node: Any, simulation: Simulation) -> None:
        """Creates the services.

        Args:
            node: rclpy node.
            simulation: the simulation to control.
        """
        self._simulation = simulation
        self._log: Any = node.get_logger()
        actions: dict[str, tuple[Any, Callable[[Any, Any], None]]] = {
            "get_simulator_features": (GetSimulatorFeatures, self._features),
            "get_simulation_state": (GetSimulationState, self._state),
            "set_simulation_state": (SetSimulationState, self._change),
            "reset_simulation": (ResetSimulation, self._reset),
            "step_simulation": (StepSimulation, self._step),
            "get_entities": (GetEntities, self._entities),
            "get_entity_info": (GetEntityInfo, self._info),
            "get_entity_state": (GetEntityState, self._entity_state),
            "get_entities_states": (GetEntitiesStates, self._entities_states),
        }
        services = [
            node.create_service(kind, name, partial(self._answer, action)) for name, (kind, action) in actions.items()
        ]
        self.names = tuple(str(service.service_name) for service in services)
        """Full names of the services."""

    def _answer(self, action: Callable[[Any, Any], None], request: Any, response: Any) -> Any:
        try:
            # Not every response has a result.
            if hasattr(response, "result"):
                response.result.result = Result.RESULT_OK
            action(request, response)
        except _RefusedError as error:
            response.result = Result(result=error.code, error_message=str(error))
        except SimulationError as error:
            response.result = Result(result=Result.RESULT_OPERATION_FAILED, error_message=str(error))
        return response

    def _features(self, request: Any, response: Any) -> None:
        response.features.features = list(FEATURES)
        response.features.custom_info = CUSTOM_INFO

    def _state(self, request: Any, response: Any) -> None:
        response.state.state = int(self._simulation.state)

    def _change(self, request: Any, response: Any) -> None:
        requested = int(request.state.state)
        if requested not in list(SimulationState):
            supported = ", ".join(f"{state.value} ({state.name})" for state in SimulationState)
            raise _RefusedError(Result.RESULT_FEATURE_UNSUPPORTED, f"state {requested}; expected {supported}")
        state = SimulationState(requested)
        if state is self._simulation.state:
            raise _RefusedError(
                SetSimulationState.Response.ALREADY_IN_TARGET_STATE, f"the simulation is already {state.name.lower()}"
            )
        self._simulation.change(state)
        self._log.info(f"simulation: {state.name.lower()}")

    def _reset(self, request: Any, response: Any) -> None:
        whole = request.scope in (ResetSimulation.Request.SCOPE_DEFAULT, ResetSimulation.Request.SCOPE_ALL)
        if not whole and request.scope != ResetSimulation.Request.SCOPE_STATE:
            raise _RefusedError(
                Result.RESULT_FEATURE_UNSUPPORTED,
                f"scope {request.scope}; expected 0 or 255 (first initial pose) or 2 (next random initial pose)",
            )
        self._simulation.reset(whole=whole)
        self._log.info("simulation: reset")

    def _step(self, request: Any, response: Any) -> None:
        self._simulation.step(int(request.steps))

    def _entities(self, request: Any, response: Any) -> None:
        response.entities = [entity.name for entity in self._select(request.filters)]

    def _info(self, request: Any, response: Any) -> None:
        self._named(request.entity)
        response.info.category.category = EntityCategory.CATEGORY_ROBOT
        response.info.description = self._simulation.description

    def _entity_state(self, request: Any, response: Any) -> None:
        response.state = _message(self._named(request.entity))

    def _entities_states(self, request: Any, response: Any) -> None:
        selected = self._select(request.filters)
        response.entities = [entity.name for entity in selected]
        response.states = [_message(entity) for entity in selected]

    def _named(self, name: str) -> Entity:
        robot = self._simulation.robot()
        if name != robot.name:
            raise _RefusedError(Result.RESULT_NOT_FOUND, f"there is no {name!r}, only {robot.name!r}")
        return robot

    def _select(self, filters: Any) -> tuple[Entity, ...]:
        """Entities that pass the filters: the robot, or none."""
        if filters.tags.tags or filters.bounds.type:
            raise _RefusedError(Result.RESULT_FEATURE_UNSUPPORTED, "entities have neither tags nor bounds")
        robot = self._simulation.robot()
        categories = [one.category for one in filters.categories]
        passes = not categories or EntityCategory.CATEGORY_ROBOT in categories
        return (robot,) if passes and _matches(filters.filter, robot.name) else ()


class _RefusedError(Exception):
    """A request is refused with a specific result code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def _matches(pattern: str, name: str) -> bool:
    """Whether a regular expression matches anywhere in a name; an empty one does."""
    # Anyone in the ROS domain may call the service.
    if len(pattern) > MAX_FILTER:
        raise SimulationError(f"filter has {len(pattern)} characters, expected at most {MAX_FILTER}")
    try:
        return re.search(pattern, name) is not None
    except re.error as error:
        raise SimulationError(f"filter {pattern!r} is not a regular expression: {error}") from error


def _message(entity: Entity) -> Any:
    message = EntityStateMessage()
    message.header.frame_id = WORLD
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(entity.stamp_ns, 1_000_000_000)
    pose, twist = message.pose, message.twist
    pose.position.x, pose.position.y, pose.position.z = entity.position
    turn = pose.orientation
    turn.w, turn.x, turn.y, turn.z = entity.orientation
    twist.linear.x, twist.linear.y, twist.linear.z = entity.linear
    twist.angular.x, twist.angular.y, twist.angular.z = entity.angular
    return message
