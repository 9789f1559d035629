"""Options of a validation; each is an option of `physai sim validate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.parameters.option import Option
from physai.sdk.cli.shared.options import RayAddress

if TYPE_CHECKING:
    from physai.gates.settings import GateSettings
    from physai.sdk.evidence.field_episodes import FieldEpisodes
    from physai.sdk.evidence.latency import LatencyEvidence
    from physai.sdk.evidence.origin import OriginKind
    from physai.sdk.evidence.shadow import ShadowEvidence
    from physai.sdk.onnx.device import PolicyDevice
    from physai.sdk.signing.ed25519 import PublicKey
    from physai.sdk.signing.exam import Exam

REPORT_FOLDER = "validation"
"""Default report folder, next to the policy."""


@dataclass(frozen=True, kw_only=True)
class ValidationOptions:
    """Options of a validation; the defaults are those of `physai sim validate`.

    Attributes:
        task: task name, Python file, or run folder whose copy is to be run, if the task is not built in.
        model: MJCF or URDF file that the policy was trained with, if its run folder does not keep it.
        gates: gate settings, YAML. None for the built-in ones.
        accept: also accept evidence of these origins: stand-in, computer, unknown; robots reject it by default.
        validators: keys of the validators whose signatures vouch for a robot's twin and tick times; without one their
            origin is unknown.
        baseline: older policy that it must not underperform.
        reference: policy that it was fine-tuned from by preferences. None for the one in its run folder.
        latency: tick durations measured on the target computer.
        shadow: shadow evidence of the policy on robots that another one drove, which informs and decides nothing.
        field: episodes on the robot with their replays, which inform about its success rate and decide nothing.
        jobs: number of worker processes; the verdict does not depend on it. None for 1, with `ray` for the number of
            processors of the cluster.
        ray: run the workers on Ray: auto (the cluster of RAY_ADDRESS or of this computer, else one started here), local
            (one started here), or HOST:PORT of a cluster.
        seed: seed of the episodes of a rehearsal.
        exam: play the episodes of this opened exam.
        device: what computes the policy: cpu, cuda[:N], or tensorrt[:N] for TensorRT on that GPU.
    """

    task: str | Path | None = None
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None
    gates: Annotated[Path | str | None, Option(metavar="YAML")] | GateSettings = None
    accept: Annotated[str, Option(metavar="KIND,…")] | Sequence[OriginKind] = "robot"
    validators: Sequence[PublicKey] = ()
    baseline: Annotated[Path | str | None, Option(metavar="POLICY")] = None
    reference: Annotated[Path | str | None, Option(metavar="POLICY")] = None
    latency: Annotated[Path | str | None, Option(metavar="JSON")] | LatencyEvidence = None
    shadow: (
        Annotated[Sequence[str | Path], Option(flags=("--shadow-evidence",), metavar="FILE")] | Sequence[ShadowEvidence]
    ) = ()
    field: Annotated[Path | str | None, Option(metavar="JSON")] | FieldEpisodes = None
    jobs: int | None = None
    ray: RayAddress = None
    seed: Annotated[int, Option(exclusive="episodes")] = 0
    exam: Annotated[Path | str | None, Option(exclusive="episodes")] | Exam = None
    device: Annotated[str, Option(metavar="DEVICE")] | PolicyDevice = "cpu"


DEFAULTS = ValidationOptions()


def report_folder(policy: str | Path, report: str | Path | None) -> Path:
    """Folder of a policy's report: the one that the user named, or `validation` next to the policy."""
    path = Path(policy)
    return Path(report) if report else (path if path.is_dir() else path.parent) / REPORT_FOLDER
