"""Finding tasks: the built-in ones by name, a user's own by the path of a Python file."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from physai.sdk.errors import TaskError, unknown_name
from physai.sim.tasks.task import Task

BUILT_IN: dict[str, tuple[str, str]] = {
    "cartpole-swingup": ("physai.sim.tasks.cartpole", "cartpole_swingup"),
    "pendubot-swingup": ("physai.sim.tasks.double_pendulum", "pendubot_swingup"),
    "acrobot-swingup": ("physai.sim.tasks.double_pendulum", "acrobot_swingup"),
    "ur10e-reach": ("physai.sim.tasks.reach", "ur10e_reach"),
    "go2-velocity": ("physai.sim.tasks.velocity", "go2_velocity"),
}
"""Task name to the module and function that make it; imported when asked for."""

FILE_FUNCTION = "make_task"
"""Function a task file must define: no arguments, returns a Task."""


def task_names() -> tuple[str, ...]:
    """Names of the built-in tasks."""
    return tuple(BUILT_IN)


def load_task(name_or_path: str, *, robot: str | None = None, preset: str | None = None) -> Task:
    """Makes a task.

    Args:
        name_or_path: a built-in task's name, or the path of a Python file that defines `make_task`.
        robot: MJCF or URDF file (or built-in name) to use in place of the task's own robot.
        preset: name of a variant the task offers.

    Raises:
        UnknownNameError: no such task or preset.
        TaskError: the file is missing or broken, or the task cannot take another robot.
    """
    if name_or_path.endswith(".py"):
        factory = _from_file(Path(name_or_path))
    elif name_or_path in BUILT_IN:
        module, function = BUILT_IN[name_or_path]
        factory = getattr(importlib.import_module(module), function)
    else:
        raise unknown_name("task", name_or_path, BUILT_IN)
    options: dict[str, Any] = {}
    accepted = factory.__code__.co_varnames[: factory.__code__.co_argcount + factory.__code__.co_kwonlyargcount]
    for option, value in (("robot", robot), ("preset", preset)):
        if value is None:
            continue
        if option not in accepted:
            raise TaskError(f"task {name_or_path} has no {option}s to choose from; leave --{option} {value} out")
        options[option] = value
    task = factory(**options)
    if not isinstance(task, Task):
        raise TaskError(f"{name_or_path}: {FILE_FUNCTION}() returned {type(task).__name__}, expected a physai Task")
    return task


def _from_file(path: Path) -> Callable[..., Any]:
    if not path.is_file():
        raise TaskError(f"task file {path} does not exist")
    name = f"physai_task_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TaskError(f"task file {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        line = error.__traceback__.tb_next.tb_lineno if error.__traceback__ and error.__traceback__.tb_next else "?"
        raise TaskError(f"task file {path}: {type(error).__name__}: {error} (line {line})") from error
    factory = getattr(module, FILE_FUNCTION, None)
    if not callable(factory):
        raise TaskError(f"task file {path} defines no function {FILE_FUNCTION}()")
    return factory
