"""Validates a policy in a service: uploads, follows the job, downloads the report."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from physai.sdk.base.terminal import printable
from physai.sdk.policy.header import GOLDEN_FILE
from physai.service.client.errors import ServiceError
from physai.service.client.service import ServiceClient
from physai.sim.policies.resolve import find_policy, find_reference


def validate_on_server(
    url: str,
    policy: Path,
    report: Path,
    *,
    twin: Path | None = None,
    robot: Path | None = None,
    gates: Path | None = None,
    latency: Path | None = None,
    exam: Path | None = None,
    trust: Path | None = None,
    reference: Path | None = None,
    options: Mapping[str, Any],
    access_token: str | None = None,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Runs the gates in a service and writes its report into a folder here.

    Interrupted by Ctrl-C, it cancels the job.

    Args:
        url: address of the service.
        policy: run folder or exported policy.
        report: output folder; created if missing.
        twin: calibrated twin; None for the nominal robot, in which no policy passes.
        robot: file of the policy's robot, if it is not built in.
        gates: gate settings.
        latency: tick durations measured on the target computer.
        exam: opened exam whose episodes are played; None for a rehearsal.
        trust: trust file whose validators may have signed twin and tick times.
        reference: policy that it was fine-tuned from by preferences; None for the one in its run folder.
        options: `task`, `seed` and `accept` as for `physai sim validate`.
        access_token: token of the service, if it needs one.
        progress: is called with each line of progress.

    Returns:
        The job as the service describes it.

    Raises:
        ServiceError: the service refuses the job, the job failed, or the service cannot be reached.
        PhysaiError: there is no policy.
    """
    client = ServiceClient(url, access_token=access_token)
    file = find_policy(policy)
    files = {
        "policy": file,
        "golden": file.parent / GOLDEN_FILE,
        "reference": find_reference(file, reference),
        "twin": twin,
        "gates": gates,
        "latency": latency,
        "exam": exam,
        "trust": trust,
    }
    # The golden outputs are optional; everything else that was named must exist.
    uploads = {
        key: client.upload(path)
        for key, path in files.items()
        if path is not None and (key != "golden" or path.is_file())
    }
    spec = uploads | {key: value for key, value in options.items() if value is not None}
    client.register("policy", uploads["policy"], golden=uploads.get("golden"))
    if robot is not None:
        spec["robot"] = client.add_robot(robot)["sha256"]
    if twin is not None:
        client.register("twin", uploads["twin"], robot=spec.get("robot"))
    job = client.submit("validate", spec)
    progress(f"job {job} at {url}")
    try:
        for event in client.follow(job):
            progress(printable(str(event["text"])))
    except KeyboardInterrupt:
        progress(f"cancelling job {job}")
        client.cancel(job)
        raise
    found = client.job(job)
    if found["state"] != "succeeded":
        raise ServiceError(f"job {job} {found['state']}: {found['error'] or 'cancelled'}", kind="job-failed")
    client.download(job, report)
    return found
