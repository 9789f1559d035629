"""Finds tasks: those of physai and of installed packages by name, your own by the path of a Python file."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint
from pathlib import Path
from types import CodeType
from typing import Any

from pydantic import ValidationError

from physai.sdk.base.errors import PhysaiError, TaskError, unknown_name
from physai.sdk.base.plugins import contributions
from physai.sdk.contract.io import contract_error
from physai.sim.robots import load_robot
from physai.sim.tasks.probe import require_sound_functions
from physai.sim.tasks.task import Task

GROUP = "physai.tasks"
BUILT_IN: Mapping[str, EntryPoint] = contributions(GROUP)
"""Functions that make a task, by the task's name: physai's own, and those of installed packages."""

TEAMS: dict[str, tuple[str, str]] = {
    "cartpoles-tethered": ("physai.sim.teams.cartpoles", "tethered_cartpoles"),
}
"""The same of teams of robots, see `physai.sim.teams`."""

FILE_FUNCTION = "make_task"
"""Function that a task file must define; returns a Task; may take `robot` (a Robot) and `preset` (a name)."""


MAX_PROBLEMS = 3
"""Greatest number of reasons why a robot does not fit a task that a message gives."""
MAX_SHOWN = 256
"""Greatest number of characters of an untrusted name that a message repeats."""


def task_names() -> tuple[str, ...]:
    """Names of the tasks of physai and of installed packages."""
    return tuple(BUILT_IN)


def require_no_team(name: str) -> None:
    """Raises TaskError for the name of a team where the task of one robot is needed."""
    if name in TEAMS:
        raise TaskError(
            f"{name} is a team of several robots: physai train {name} trains it, physai play and eval play it; this "
            "takes the task of one robot"
        )


def load_task(name_or_path: str | Path, *, robot: str | None = None, preset: str | None = None) -> Task:
    """Makes a task.

    Args:
        name_or_path: a built-in task's name, or the path of a Python file that defines `make_task`.
        robot: built-in name, MJCF or URDF file of a robot that replaces the task's own.
        preset: variant of the task.

    Raises:
        UnknownNameError: there is no such task, robot or preset.
        TaskError: it is a team, the task file is missing or invalid, one of its functions fails or returns another
            shape than it should, or the task does not accept another robot.
        ModelError: the robot's file is missing or invalid.
    """
    name_or_path = str(name_or_path)
    if name_or_path.endswith(".py"):
        with _located(Path(name_or_path)):
            task = _made(_from_file(Path(name_or_path)), name_or_path, robot=robot, preset=preset)
            require_sound_functions(task)
            return task
    require_no_team(name_or_path)
    if name_or_path not in BUILT_IN:
        raise unknown_name("task", name_or_path, BUILT_IN)
    factory = _factory(name_or_path)
    try:
        return _made(factory, name_or_path, robot=robot, preset=preset)
    except ValidationError as error:
        # Only a robot that somebody else made does not fit a built-in task's contract.
        said, *problems = str(contract_error(error, source=f"task {name_or_path} for robot {robot}")).splitlines()
        more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
        reasons = "; ".join([problem.strip() for problem in problems[:MAX_PROBLEMS]] + more)
        raise TaskError(f"{said}: {reasons}" if reasons else said) from error


def require_choices(name: str, *, robot: bool, preset: bool) -> None:
    """Checks that a built-in task lets its robot or preset be chosen.

    Raises:
        TaskError: it does not.
    """
    accepted = inspect.signature(_factory(name)).parameters
    for option, given in (("robot", robot), ("preset", preset)):
        if given and option not in accepted:
            raise TaskError(f"task {name} has no {option}s to choose from; leave the {option} out")


def _factory(name: str) -> Callable[..., Any]:
    """The function that makes a task.

    Raises:
        TaskError: the package that contributes the task cannot be imported, or has no such function.
    """
    entry = BUILT_IN[name]
    try:
        factory: Callable[..., Any] = entry.load()
    except (ImportError, AttributeError, SyntaxError) as error:
        if entry.module.startswith("physai."):
            raise
        raise TaskError(f"task {name}: {entry.value} of an installed package cannot be loaded: {error}") from error
    return factory


def _made(factory: Callable[..., Any], name: str, *, robot: str | None, preset: str | None) -> Task:
    task = factory(**_options(factory, name, robot=robot, preset=preset))
    if isinstance(task, Task):
        return task
    if inspect.iscoroutine(task):
        task.close()  # avoids the warning that it was never awaited
    raise TaskError(f"{name}: {FILE_FUNCTION}() returned {type(task).__name__}, expected a physai Task")


def built_in_task(name: str, *, source: str) -> str:
    """Returns a task name from a file if it is a built-in one, so that a file cannot choose code to run.

    Raises:
        TaskError: it is not built in.
    """
    if name in BUILT_IN:
        return name
    raise TaskError(
        f"{source} says it is for the task {name[:MAX_SHOWN]!r}, which is not built in, and no Python file is run "
        f"because another file names it; name it with --task PATH, or a built-in one ({', '.join(BUILT_IN)})"
    )


def _options(factory: Callable[..., Any], name: str, *, robot: str | None, preset: str | None) -> dict[str, Any]:
    """Keyword arguments for a task's function."""
    accepted = inspect.signature(factory).parameters
    options: dict[str, Any] = {}
    for option, value in (("robot", robot), ("preset", preset)):
        if value is None:
            continue
        if option not in accepted:
            shown = repr(value)[1:-1][:MAX_SHOWN]
            flag = "--model" if option == "robot" else f"--{option}"
            raise TaskError(f"task {name} has no {option}s to choose from; leave {flag} {shown} out")
        options[option] = load_robot(value) if option == "robot" else value
    return options


@contextmanager
def _located(path: Path) -> Generator[None]:
    """Converts errors in a task file, including SystemExit, to a TaskError with the line; passes PhysaiError on."""
    try:
        yield
    except PhysaiError:
        raise
    except (Exception, SystemExit) as error:
        file = str(path.absolute())
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        if isinstance(error, SyntaxError) and error.filename == file:
            lines.append(error.lineno)
        where = f"task file {path}" + (f", line {lines[-1]}" if lines else "")
        if isinstance(error, ValidationError):
            raise TaskError(str(contract_error(error, source=where))) from error
        raise TaskError(f"{where}: {type(error).__name__}: {error}") from error


class _SourceOnly(SourceFileLoader):
    """Runs what the file says: `__pycache__` next to it may hold other code, and writing there changes a run folder."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _from_file(path: Path) -> Callable[..., Any]:
    if not path.is_file():
        raise TaskError(f"task file {path} does not exist")
    name = f"physai_task_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, str(path), loader=_SourceOnly(name, str(path)))
    if spec is None or spec.loader is None:
        raise TaskError(f"task file {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickle look their module up by name while the file is executed.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    # A file that failed must not be found half-initialised by the next import.
    except BaseException:
        sys.modules.pop(name, None)
        raise
    factory = getattr(module, FILE_FUNCTION, None)
    if not callable(factory):
        raise TaskError(f"task file {path} defines no function {FILE_FUNCTION}()")
    return factory
