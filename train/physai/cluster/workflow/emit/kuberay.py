"""KubeRay's RayJob for a workflow: `physai workflow run` on a Ray cluster that lives as long as the job.

The fields are those of `ray.io/v1`, https://github.com/ray-project/kuberay.
"""

import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from physai.cluster.workflow.lint import image_of, image_platform
from physai.cluster.workflow.model import Image, Platform, Resources, Workflow, WorkflowStage
from physai.cluster.workflow.workflow_file import WorkflowError, in_order

RAY_VERSION = "2.60.0"
FIRST_RAY_WITH_TOKENS = (2, 52)
"""First Ray whose clusters KubeRay gives a token."""
_MOUNT = PurePosixPath("/workflow")
_HEAD = Resources(cpus=1, memory="2Gi")
"""What Ray's own processes on the head take, next to the stages."""
_TTL_S = 600
"""How long a finished job's record is kept [s]."""


class _Object(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SecretKey(_Object):
    """Entry of a Secret."""

    name: str
    key: str


class ValueFrom(_Object):
    """Source of an environment variable."""

    secretKeyRef: SecretKey  # noqa: N815


class EnvVar(_Object):
    """Environment variable of a container."""

    name: str
    value: str | None = None
    valueFrom: ValueFrom | None = None  # noqa: N815


class ContainerResources(_Object):
    """Resources of a container; equal requests and limits are guaranteed ones."""

    requests: dict[str, str]
    limits: dict[str, str]


class VolumeMount(_Object):
    """Place of a volume in a container."""

    name: str
    mountPath: str  # noqa: N815


class Container(_Object):
    """A container."""

    name: str
    image: str
    env: tuple[EnvVar, ...] | None
    resources: ContainerResources
    volumeMounts: tuple[VolumeMount, ...]  # noqa: N815


class VolumeClaim(_Object):
    """A PersistentVolumeClaim by its name."""

    claimName: str  # noqa: N815


class Volume(_Object):
    """A volume of a pod."""

    name: str
    persistentVolumeClaim: VolumeClaim  # noqa: N815


class PodSpec(_Object):
    """A pod."""

    nodeSelector: dict[str, str] | None  # noqa: N815
    containers: tuple[Container, ...]
    volumes: tuple[Volume, ...]


class PodTemplate(_Object):
    """Template of a pod."""

    spec: PodSpec


class HeadGroup(_Object):
    """The head of a Ray cluster."""

    rayStartParams: dict[str, str]  # noqa: N815
    template: PodTemplate


class AuthOptions(_Object):
    """Authentication of a Ray cluster."""

    mode: Literal["token"] = "token"


class RayCluster(_Object):
    """A Ray cluster."""

    rayVersion: str  # noqa: N815
    authOptions: AuthOptions | None  # noqa: N815
    headGroupSpec: HeadGroup  # noqa: N815


class RayJobSpec(_Object):
    """Specification of a RayJob."""

    entrypoint: str
    shutdownAfterJobFinishes: Literal[True] = True  # noqa: N815
    ttlSecondsAfterFinished: int = _TTL_S  # noqa: N815
    backoffLimit: Literal[0] = 0  # noqa: N815
    """The run itself retries stages."""
    rayClusterSpec: RayCluster  # noqa: N815


class Metadata(_Object):
    """Name and labels of a Kubernetes object."""

    name: str = Field(max_length=47)
    labels: dict[str, str]


class RayJob(_Object):
    """A RayJob."""

    apiVersion: Literal["ray.io/v1"] = "ray.io/v1"  # noqa: N815
    kind: Literal["RayJob"] = "RayJob"
    metadata: Metadata
    spec: RayJobSpec


@dataclass(frozen=True, kw_only=True)
class KubeRayOptions:
    """Facts about the cluster that a workflow file does not state."""

    claim: str
    """PersistentVolumeClaim with the folder of the workflow file, in which results are kept, too."""
    ray_version: str = RAY_VERSION
    """Version of Ray in the images."""
    per_stage: bool = False
    """One job per stage, each with its own image and resources."""


def ray_jobs(workflow: Workflow, file_name: str, options: KubeRayOptions) -> list[dict[str, Any]]:
    """RayJobs that run a workflow.

    Args:
        workflow: a workflow without findings.
        file_name: name of its file in the claim.
        options: about the cluster.

    Returns:
        One job for the whole workflow, or one per stage, to be run one after another.

    Raises:
        WorkflowError: a stage has no image, or stages of one job have different images or platforms.
    """
    names = in_order(workflow)
    groups = [[name] for name in names] if options.per_stage else [names]
    return [_job(workflow, group, file_name, options).model_dump(exclude_none=True) for group in groups]


def _job(workflow: Workflow, names: list[str], file_name: str, options: KubeRayOptions) -> RayJob:
    stages = [workflow.stages[name] for name in names]
    image, platform = _image(workflow, names)
    variables = Image(name=image, platforms=("linux/amd64",)).environment
    asked = _asked(stages)
    folder = _MOUNT / "runs" / workflow.name
    words = ["physai", "workflow", "run", str(_MOUNT / file_name), "--folder", str(folder)]
    # A pod sees the processors of its node, not those it may use.
    words += ["--cpus", str(asked.cpus), "--gpus", str(asked.gpus), "--memory", asked.memory]
    words += ["--until", names[0]] if options.per_stage else []
    secrets = {credential.env: credential for stage in stages for credential in stage.credentials}
    amounts = {"cpu": str(asked.cpus + _HEAD.cpus), "memory": f"{(asked.memory_bytes + _HEAD.memory_bytes) >> 20}Mi"}
    amounts |= {"nvidia.com/gpu": str(asked.gpus)} if asked.gpus else {}
    head = Container(
        name="ray-head",
        image=image,
        env=(
            *(EnvVar(name=name, value=value) for name, value in variables.items()),
            *(
                EnvVar(name=env, valueFrom=ValueFrom(secretKeyRef=SecretKey(name=secret.secret, key=secret.key)))
                for env, secret in secrets.items()
            ),
        )
        or None,
        resources=ContainerResources(requests=amounts, limits=amounts),
        volumeMounts=(VolumeMount(name="workflow", mountPath=str(_MOUNT)),),
    )
    pod = PodSpec(
        nodeSelector=None if platform is None else {"kubernetes.io/arch": platform.partition("/")[2]},
        containers=(head,),
        volumes=(Volume(name="workflow", persistentVolumeClaim=VolumeClaim(claimName=options.claim)),),
    )
    cluster = RayCluster(
        rayVersion=options.ray_version,
        authOptions=AuthOptions() if _version(options.ray_version) >= FIRST_RAY_WITH_TOKENS else None,
        headGroupSpec=HeadGroup(rayStartParams={"dashboard-host": "0.0.0.0"}, template=PodTemplate(spec=pod)),
    )
    name = f"{workflow.name}-{names[0]}" if options.per_stage else workflow.name
    labels = {"app.kubernetes.io/name": "physai", "app.kubernetes.io/instance": workflow.name}
    return RayJob(
        metadata=Metadata(name=name, labels=labels),
        spec=RayJobSpec(entrypoint=shlex.join(words), rayClusterSpec=cluster),
    )


def _image(workflow: Workflow, names: list[str]) -> tuple[str, Platform | None]:
    """The one image of some stages, and the platform they need."""
    images: dict[str, str] = {}
    platforms: dict[Platform, str] = {}
    for name in names:
        stage = workflow.stages[name]
        for member in stage.gang:
            image = image_of(workflow, stage, member)
            if image is None:
                raise WorkflowError(f"stage {name} has no image, which a cluster needs; add `image` to it")
            images.setdefault(image.name, name)
            if (platform := image_platform(workflow, stage, member)) is not None:
                platforms.setdefault(platform, name)
    for kind, found in (("image", images), ("platform", platforms)):
        if len(found) > 1:
            (a, first), (b, second) = list(found.items())[:2]
            remedy = "give each member the same" if first == second else "emit with --per-stage"
            raise WorkflowError(
                f"a RayJob has one {kind}, but stage {first} has {a} and stage {second} has {b}; {remedy}"
            )
    return next(iter(images)), next(iter(platforms), None)


def _asked(stages: list[WorkflowStage]) -> Resources:
    """The most that one of the stages asks for, its members together."""
    memory = max(sum(member.resources.memory_bytes for member in stage.gang) for stage in stages)
    return Resources(
        cpus=max(sum(member.resources.cpus for member in stage.gang) for stage in stages),
        gpus=max(sum(member.resources.gpus for member in stage.gang) for stage in stages),
        memory=f"{memory >> 20}Mi",
    )


def _version(text: str) -> tuple[int, int]:
    try:
        major, minor, _ = text.split(".")
        return int(major), int(minor)
    except ValueError:
        raise WorkflowError(f"Ray version {text!r} is not MAJOR.MINOR.PATCH, as {RAY_VERSION} is") from None
