"""Reads and compiles an uploaded robot in a process of its own that can open no file.

A crafted model may hang or crash MuJoCo or take all memory; then this process dies, and the service answers.
"""

import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import mujoco

from physai.sdk.base.errors import ModelError
from physai.sdk.base.process.isolation import ApartError, JsonFacts, ReportProgress, call_apart, serve
from physai.sim.robots.files.archive import pack
from physai.sim.robots.files.package import RobotPackage, read_package
from physai.sim.robots.loader import Robot, load_package, load_robot
from physai.sim.robots.spec import home_qpos

MEMORY_BYTES = 2 * 2**30
"""Address space of the process; its libraries take 0.5 GiB."""
CPU_S = 20
"""Processor time of the compilation, over all threads [s]."""
QUICK_CPU_S = 3
"""The same for a robot that lets no other wait [s]; the built-in ones take 0.1 s."""
WALL_S = 60.0
"""Longest time without an answer [s]: the processor may be shared."""

SIZES: dict[str, int] = {
    "nbody": 1000,
    "njnt": 300,
    "nv": 300,
    "ngeom": 5000,
    "nsite": 2000,
    "ncam": 100,
    "nlight": 100,
    "nmesh": 1000,
    "nmeshvert": 2_000_000,
    "nmeshface": 4_000_000,
    "ntex": 100,
    "ntexdata": 64 * 2**20,
    "nhfielddata": 2**20,
    "npair": 5000,
    "neq": 300,
    "ntendon": 300,
    "nwrap": 3000,
    "nu": 300,
    "nsensordata": 5000,
    "nkey": 100,
    "nuserdata": 1000,
    "narena": 128 * 2**20,
    "nbuffer": 128 * 2**20,
}
"""Greatest sizes of a compiled model, by their names in MuJoCo's mjModel; a session costs more the larger they are."""
MAX_DATA_BYTES = 32 * 2**20
"""Greatest size of the state of one world, without the arena."""
MAX_STEP_S = 0.01
"""Greatest processor time of a physics step from the home pose [s]; the built-in robots take 0.0001 s or less."""
TIMED_STEPS = 20

_WHAT = "compiling the robot"
_WAY_OUT = f"; it may take {CPU_S} s of processor time and {MEMORY_BYTES >> 20} MiB: simplify the model"


class SlowRobotError(ApartError):
    """A robot took the processor time that it was given."""


def try_robot(data: bytes, *, name: str, main: str | None, cpu_s: int = CPU_S) -> tuple[JsonFacts, bytes]:
    """Reads and compiles a robot apart.

    Args:
        data: the uploaded zip or file.
        name: of a single file, without its suffix.
        main: path of the model in a zip that has several.
        cpu_s: processor time that the compilation may take [s].

    Returns:
        What lists show of the robot, and its files as one zip, the same for the same files.

    Raises:
        SlowRobotError: it took more than `cpu_s`.
        ApartError: the upload is refused, or it made the process crash, hang or exceed its other limits.
    """
    request = json.dumps({"cpu_s": cpu_s, "name": name, "main": main}).encode() + b"\n" + data
    try:
        answer, (archive,) = call_apart(__name__, request, what=_WHAT, limit_s=lambda _: WALL_S)
    except ApartError as error:
        way_out = _WAY_OUT if str(error).startswith(_WHAT) else ""
        kind = SlowRobotError if str(error).endswith(signal.SIGXCPU.name) else ApartError
        raise kind(f"{error}{way_out}") from error
    return answer, archive


def _work(request: bytes, report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    os.nice(5)
    _import_everything()
    report({"stage": "reading"})
    head, _, data = request.partition(b"\n")
    options = json.loads(head)
    _confine(options.pop("cpu_s"))
    started = time.monotonic()
    try:
        archive = read_package(data, **options).archive()
        # Compiled as it is stored, because sessions and jobs will load that.
        package = read_package(archive)
        robot = load_package(package, package.main.path)
        _check_cost(robot)
        facts = _facts(robot, package) | {"compile_s": round(time.monotonic() - started, 3)}
        return facts, [archive]
    except MemoryError:
        raise ModelError(f"the robot needs more than {MEMORY_BYTES >> 20} MiB to compile; simplify it") from None
    except mujoco.FatalError as error:
        raise ModelError(f"MuJoCo cannot compile the robot: {' '.join(str(error).split())}") from error


def _import_everything() -> None:
    """Loads a small robot, so that Python has imported whatever a larger one needs."""
    example = Path(load_robot("simple_pendulum").path).read_bytes()
    load_package(read_package(pack({"robot.xml": example})), Path("robot.xml"))


def _confine(cpu_s: int = CPU_S) -> None:
    # From here on no file, folder, library, socket or pipe can be opened, whatever the upload says.
    limits = [(resource.RLIMIT_NOFILE, 0, 0), (resource.RLIMIT_FSIZE, 0, 0), (resource.RLIMIT_CORE, 0, 0)]
    # At the first of the two the kernel sends SIGXCPU, which names the reason.
    cpu_s += math.ceil(time.process_time())
    limits += [(resource.RLIMIT_CPU, cpu_s, cpu_s + 1), (resource.RLIMIT_AS, MEMORY_BYTES, MEMORY_BYTES)]
    for what, soft, hard in limits:
        _, most = resource.getrlimit(what)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(what, (soft, hard))


def _check_cost(robot: Robot) -> None:
    for name, limit in SIZES.items():
        size = int(getattr(robot.model, name))
        if size > limit:
            raise ModelError(f"the compiled robot has {name} {size}, at most {limit} is served; simplify the model")
    data = mujoco.MjData(robot.model)
    if data.nbuffer > MAX_DATA_BYTES:
        raise ModelError(f"a world's state takes {data.nbuffer} bytes, at most {MAX_DATA_BYTES}; simplify the model")
    data.qpos[:] = home_qpos(robot.model)
    started = time.process_time()
    for step in range(1, TIMED_STEPS + 1):
        mujoco.mj_step(robot.model, data)
        spent_s = time.process_time() - started
        # One by one: a robot whose steps take seconds is refused after the first.
        if spent_s > TIMED_STEPS * MAX_STEP_S:
            raise ModelError(
                f"a step takes {1e3 * spent_s / step:.3g} ms, at most {1e3 * MAX_STEP_S:g} ms; use fewer collision "
                "shapes"
            )


def _facts(robot: Robot, package: RobotPackage) -> JsonFacts:
    model = robot.model
    mass = float(model.body_subtreemass[0])
    if not math.isfinite(mass):
        raise ModelError(f"the robot's mass is {mass} kg; check the masses and densities of its parts")
    return {
        "robot": robot.name,
        "description": robot.description[:500],
        "main": package.main.path.as_posix(),
        "files": [{"path": path, "size": len(package.files[path])} for path in sorted(package.files)],
        "base": robot.spec.base,
        "joints": [joint.model_dump(mode="json") for joint in robot.spec.joints],
        "bodies": [model.body(body).name for body in range(1, model.nbody)],
        "actuators": [model.actuator(actuator).name for actuator in range(model.nu)],
        "mass_kg": mass,
    }


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
