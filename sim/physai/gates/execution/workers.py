"""Workers that play batches: in this process, in several, or on Ray."""

import dataclasses

from physai.compute.pool import InProcess, Processes, Workers, require_jobs
from physai.compute.ray.ray_pool import RayWorkers
from physai.gates.execution.subject import ValidationSubject
from physai.sdk.base.errors import PhysaiError
from physai.sim.policies.resolve import absolute
from physai.twin.rollouts.batch import Batch, BatchResult
from physai.twin.rollouts.rollout import play_batch

_ADVICE = (
    "; if memory is short, use fewer --jobs or a smaller `batch` in the gates file. Run the same command again to "
    "resume"
)

WorkerResult = BatchResult | PhysaiError
"""Result of a batch, or the error that prevented it."""


def play(subject: ValidationSubject, batch: Batch) -> BatchResult:
    """Play a batch of a subject."""
    return play_batch(subject.policy(batch.arm), subject.task, subject.twin, batch)


def make_workers(
    subject: ValidationSubject, jobs: int | None, *, ray: str | None = None
) -> Workers[Batch, BatchResult]:
    """Return workers that play `jobs` batches at a time.

    Args:
        subject: what is validated.
        jobs: number of workers; None for one, with Ray for as many as the cluster has processors.
        ray: see `physai.compute.ray.cluster.connected`; None for workers on this computer, without Ray.

    Raises:
        PhysaiError: jobs is out of range.
    """
    if jobs is not None:
        require_jobs(jobs)
    if ray is not None:
        # A worker has another working folder.
        everywhere = dataclasses.replace(subject, origin=absolute(subject.origin))
        return RayWorkers(play, everywhere, ray, jobs=jobs)
    if jobs is None or jobs == 1:
        return InProcess(play, subject)
    return Processes(play, subject, jobs, advice=_ADVICE)
