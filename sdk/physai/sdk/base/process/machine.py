"""Equipment of this machine: Python, processors, memory, GPUs, rendering, packages."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from physai.sdk.base.extras import DISTRIBUTION, requirements

_RENDERERS = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8", "glfw": "libGL.so.1"}
"""Shared library of each MuJoCo rendering back end (environment variable MUJOCO_GL); glfw also needs a display."""

_COMMAND_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class MachineReport:
    """Equipment of a machine that physai uses, and what is missing."""

    physai: str
    """Version of physai-sdk."""
    python: str
    executable: str
    platform: str
    cpus: int
    """CPUs available to this process."""
    memory_bytes: int
    disk_free_bytes: int
    """Free space in the working directory's file system."""
    gpus: list[str]
    """Name, driver and memory of each NVIDIA GPU."""
    renderers: dict[str, str]
    """`ok` or what is missing, by back end."""
    extras: dict[str, dict[str, str | None]]
    """Installed version (None: missing) of each requirement, by extra; the empty key holds the base requirements."""
    problems: list[str]
    """Problems that keep physai from working, each with its remedy."""


def inspect_machine() -> MachineReport:
    """Check this machine for what physai needs; runs `nvidia-smi` if installed and imports no heavy package."""
    listed = requirements(metadata.requires(DISTRIBUTION) or [])
    extras = {extra: {name: _version(name) for name in names} for extra, names in listed.items()}
    return MachineReport(
        physai=metadata.version("physai-sdk"),
        python=platform.python_version(),
        executable=sys.executable,
        platform=platform.platform(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        disk_free_bytes=shutil.disk_usage(".").free,
        gpus=_gpus(),
        renderers=_renderers(),
        extras=extras,
        problems=_problems(extras),
    )


def _problems(extras: dict[str, dict[str, str | None]]) -> list[str]:
    problems = [f"{name} is not installed: pip install physai-sdk" for name, v in extras.get("", {}).items() if not v]
    # physai is a namespace package: another distribution with an `__init__.py` in it hides all our packages.
    foreign = _version("physai")
    if foreign is not None or Path(str(getattr(sys.modules["physai"], "__file__", None))).name == "__init__.py":
        problems.append(
            f"the distribution physai {foreign or '(version unknown)'} is another project that shadows our packages: "
            "pip uninstall physai, then pip install --force-reinstall --no-deps physai-sdk"
        )
    return problems


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        result = subprocess.run(query, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in result.stdout.splitlines() if line.strip()]


def _renderers() -> dict[str, str]:
    return {name: _renderer(name, library) for name, library in _RENDERERS.items()}


def _renderer(name: str, library: str) -> str:
    package = "glfw" if name == "glfw" else "OpenGL"
    if util.find_spec(package) is None:
        return f"Python package {package} is missing: pip install 'physai-sdk[sim]'"
    try:
        ctypes.CDLL(library)
    except OSError:
        return f"{library} is missing"
    if name == "glfw" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "no display"
    return "ok"
