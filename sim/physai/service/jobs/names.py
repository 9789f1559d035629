"""Checks what a specification names when it is submitted, and not first when a worker takes the job."""

from physai.sdk.base.errors import PhysaiError, TaskError, unknown_name
from physai.service.jobs.kinds import CalibrateSpec, JobSpec, TrainSpec
from physai.service.problems import ProblemError, invalid
from physai.service.registry.blobs import BlobStore
from physai.service.registry.registry import Registry
from physai.sim.robots import robot_names
from physai.sim.tasks.registry import TEAMS, load_task, require_choices, task_names


def check_names(spec: JobSpec, registry: Registry, blobs: BlobStore) -> dict[str, str]:
    """Checks tasks, presets, robots, twins and files; returns what the twin of an uploaded robot adds: that robot.

    Raises:
        ProblemError: there is nothing of that name or hash, or two of them do not go together.
    """
    robot = _robot_of_twin(spec, registry)
    if spec.uploaded_robot:
        registry.robot_path(spec.uploaded_robot)
    for sha256 in spec.inputs().values():
        blobs.path(sha256)
    try:
        _check_task(spec, has_robot=bool(robot or spec.uploaded_robot))
        if isinstance(spec, CalibrateSpec):
            _check_calibrated(spec, registry)
    except PhysaiError as error:
        raise ProblemError(422, "unknown-name", str(error)) from error
    return robot


def _check_task(spec: JobSpec, *, has_robot: bool) -> None:
    task: str | None = getattr(spec, "task", None)
    preset: str | None = getattr(spec, "preset", None)
    if task is None:
        return
    if isinstance(spec, TrainSpec) and task in TEAMS:
        given = {"preset": preset is not None, "robot": has_robot}
        if any(given.values()):
            raise TaskError(f"{task} is a team, which takes no {' and no '.join(n for n, on in given.items() if on)}")
        return
    if task not in task_names():
        raise unknown_name("task", task, task_names())
    require_choices(task, robot=has_robot, preset=preset is not None)
    if preset is not None:
        load_task(task, preset=preset)


def _check_calibrated(spec: CalibrateSpec, registry: Registry) -> None:
    if spec.uploaded_robot is None and spec.robot not in robot_names():
        raise unknown_name("robot", spec.robot, robot_names())
    name: str = registry.get("robot", spec.uploaded_robot)["robot"] if spec.uploaded_robot else spec.robot
    of, _, unit = (spec.recorded_on or f"{name}/").partition("/")
    if of != name:
        raise PhysaiError(f"recorded_on {spec.recorded_on}: the robot is a {name}; give {name}/{unit}")


def _robot_of_twin(spec: JobSpec, registry: Registry) -> dict[str, str]:
    twin: str | None = getattr(spec, "twin", None)
    if twin is None:
        return {}
    # Any stored file could name a path of this machine as its robot; a registered twin does not.
    robot = registry.get("twin", twin).get("robot_sha256")
    if spec.uploaded_robot not in (None, robot):
        raise invalid(f"the twin {twin[:12]} is of the robot {str(robot)[:12]}, not of {spec.uploaded_robot:.12}")
    return {"robot": robot} if robot else {}
