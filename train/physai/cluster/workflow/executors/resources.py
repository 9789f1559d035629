"""The CPUs, memory and GPUs of this computer that stages may occupy at the same time."""

import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

from physai.cluster.workflow.model import Platform, WorkflowStage
from physai.cluster.workflow.workflow_file import WorkflowError


@dataclass(frozen=True, kw_only=True)
class ResourceLimits:
    """Resources that stages that run at the same time may occupy together."""

    cpus: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    gpus: int = field(default_factory=lambda: len(list(Path("/dev").glob("nvidia[0-9]*"))))
    memory_bytes: int = field(default_factory=lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


class Pool:
    """Resources that are free."""

    def __init__(self, limits: ResourceLimits) -> None:
        self._limits = limits
        self._cpus, self._memory = limits.cpus, limits.memory_bytes
        self._gpus = list(range(limits.gpus))

    def require(self, name: str, stage: WorkflowStage) -> None:
        """Check that a stage can run here at all.

        Raises:
            WorkflowError: it asks for more than there is, or for another platform.
        """
        asked, limits = asked_by(stage), self._limits
        if not asked.cpus <= limits.cpus:
            raise WorkflowError(
                f"stage {name} asks for {asked.cpus} CPUs, this computer has {limits.cpus}; lower it, or give `cpus`"
            )
        if not asked.gpus <= limits.gpus:
            raise WorkflowError(
                f"stage {name} asks for {asked.gpus} GPUs, this computer has {limits.gpus}; lower it, or give `gpus`"
            )
        if not asked.memory_bytes <= limits.memory_bytes:
            raise WorkflowError(
                f"stage {name} asks for {asked.memory_bytes >> 20} MiB of memory, this computer has "
                f"{limits.memory_bytes >> 20} MiB; lower it, or give `memory`"
            )
        for member in stage.gang:
            wanted, here = member.resources.platform, this_platform()
            if wanted is not None and wanted != here:
                raise WorkflowError(
                    f"stage {name} runs on {wanted}, this computer is {here}; run it there, or emit the workflow"
                )

    def take(self, stage: WorkflowStage) -> list[int] | None:
        """Occupy what a stage asks for and return its GPUs; None if it is not free."""
        asked = asked_by(stage)
        if asked.cpus > self._cpus or asked.memory_bytes > self._memory or asked.gpus > len(self._gpus):
            return None
        self._cpus -= asked.cpus
        self._memory -= asked.memory_bytes
        taken, self._gpus = self._gpus[: asked.gpus], self._gpus[asked.gpus :]
        return taken

    def give_back(self, stage: WorkflowStage, gpus: list[int]) -> None:
        """Free what a stage occupied."""
        asked = asked_by(stage)
        self._cpus += asked.cpus
        self._memory += asked.memory_bytes
        self._gpus = sorted([*self._gpus, *gpus])


def this_platform() -> Platform | None:
    """The platform of this computer; None if it is neither of the two."""
    platforms: dict[str, Platform] = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
    return platforms.get(platform.machine())


def asked_by(stage: WorkflowStage) -> ResourceLimits:
    """Resources that the members of a stage ask for together."""
    members = [member.resources for member in stage.gang]
    return ResourceLimits(
        cpus=sum(asked.cpus for asked in members),
        gpus=sum(asked.gpus for asked in members),
        memory_bytes=sum(asked.memory_bytes for asked in members),
    )
