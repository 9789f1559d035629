"""Validate a policy here or in a service: there, upload, follow the job, and download the report."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.gates.report.validation_options import DEFAULTS, ValidationOptions, report_folder
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.gates.report.validation import Progress
    from physai.sdk.evidence.verdict import Verdict
    from physai.twin.model.twin import Twin


def validate(
    policy: Path | str,
    twin: Annotated[Path | str | None, Option(metavar="TWIN")] | Twin = None,
    *,
    report: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    options: Annotated[ValidationOptions, Option(flatten=True)] = DEFAULTS,
    trust: Path | str | None = None,
    server: Annotated[str | None, Option(metavar="URL")] = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Run the ten gates on a policy, here or in a service, and write the verdict and the report into a folder.

    Interrupted by Ctrl-C, it cancels a service's job; here it resumes when you start it again with the same arguments.

    Args:
        policy: run folder or exported policy.onnx.
        twin: twin.json of `physai sim calibrate`; without it the nominal robot is used and no policy can pass.
        report: folder for the report. None for `validation`, next to the policy.
        options: see `ValidationOptions`; a service takes files only.
        trust: trust file whose validators may have signed twin and tick times. None for
            ~/.config/physai/keys/trust.json.
        server: validate in this service of `physai sim serve`; token in PHYSAI_TOKEN.
        progress: see `physai.gates.validate`; unused by a service.
        say: called with each line of a service's progress.

    Returns:
        The verdict: PASS, FAIL or INCONCLUSIVE, and the result of each gate.

    Raises:
        ServiceError: the service refuses the job, the job failed, or the service cannot be reached.
        PhysaiError: the policy, the twin or the folder is unusable, or a service does not take an option.
    """
    from dataclasses import replace

    from physai.gates.report.validation import MAX_SEED
    from physai.gates.report.validation import validate as validate_here
    from physai.sdk.base.parameters.arguments import require_range
    from physai.sdk.evidence.verdict import VERDICT_FILE, load_verdict
    from physai.sdk.signing.files.user_keys import trusted_validators

    require_range("seed", options.seed, 0, MAX_SEED)
    folder = report_folder(policy, report)
    if server is None:
        validators = (*options.validators, *trusted_validators(None if trust is None else Path(trust)))
        return validate_here(
            policy, twin, report=folder, options=replace(options, validators=validators), progress=progress
        )
    _in_service(server, Path(policy), _file("twin", twin), folder, options, trust, say)
    return load_verdict(folder / VERDICT_FILE)


def _file(name: str, given: object) -> Path | None:
    """The file of a parameter.

    Raises:
        PhysaiError: an object is given, which a service does not take.
    """
    if given is not None and not isinstance(given, str | Path):
        raise PhysaiError(f"`{name}`: a service takes a file, got {type(given).__name__}; write it to a file first")
    return None if given is None else Path(given)


def _in_service(
    url: str,
    policy: Path,
    twin: Path | None,
    report: Path,
    options: ValidationOptions,
    trust: Path | str | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Runs the gates in a service and writes its report here; returns the job as the service describes it."""
    from physai.sdk.base.terminal import printable
    from physai.sdk.policy.header import GOLDEN_FILE
    from physai.sdk.signing.files.user_keys import default_trust
    from physai.service.client.errors import ServiceError
    from physai.service.client.service import ServiceClient
    from physai.sim.policies.resolve import find_policy, find_reference

    _require_remote(options)
    if trust is None and default_trust().exists():
        trust = default_trust()
    client = ServiceClient(url, access_token=os.environ.get("PHYSAI_TOKEN"))
    file = find_policy(policy)
    files = {
        "policy": file,
        "golden": file.parent / GOLDEN_FILE,
        "reference": find_reference(file, None if options.reference is None else Path(options.reference)),
        "twin": twin,
        "gates": _file("gates", options.gates),
        "latency": _file("latency", options.latency),
        "exam": _file("exam", options.exam),
        "trust": _file("trust", trust),
    }
    # The golden outputs are optional; everything else that was named must exist.
    uploads = {
        key: client.upload(path)
        for key, path in files.items()
        if path is not None and (key != "golden" or path.is_file())
    }
    spec: dict[str, Any] = {**uploads, "seed": options.seed, "accept": _accepted(options)}
    if options.task is not None:
        spec["task"] = str(options.task)
    client.register("policy", uploads["policy"], golden=uploads.get("golden"))
    if options.model is not None:
        spec["robot"] = client.add_robot(Path(options.model))["sha256"]
    if twin is not None:
        client.register("twin", uploads["twin"], robot=spec.get("robot"))
    job = client.submit("validate", spec)
    say(f"job {job} at {url}")
    try:
        for event in client.follow(job):
            say(printable(str(event["text"])))
    except KeyboardInterrupt:
        say(f"cancelling job {job}")
        client.cancel(job)
        raise
    found = client.job(job)
    if found["state"] != "succeeded":
        raise ServiceError(f"job {job} {found['state']}: {found['error'] or 'cancelled'}", kind="job-failed")
    client.download(job, report)
    return found


def _accepted(options: ValidationOptions) -> str:
    return options.accept if isinstance(options.accept, str) else ",".join(options.accept)


def _require_remote(options: ValidationOptions) -> None:
    """Raises PhysaiError for an option that a service does not take."""
    if options.baseline is not None:
        raise PhysaiError("`baseline` works without `server` only")
    if options.field is not None:
        raise PhysaiError("`field` works without `server` only")
    if options.shadow:
        raise PhysaiError("`shadow` works without `server` only")
    if options.ray is not None:
        raise PhysaiError(f"`ray` {options.ray} works without `server` only; `physai sim serve --ray` has an own one")
    if str(options.device) != "cpu":
        raise PhysaiError(
            f"`device` {options.device} works without `server` only; a service computes where "
            "`physai sim serve --device` says"
        )
