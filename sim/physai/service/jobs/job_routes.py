"""Jobs over HTTP: submit, follow, cancel, retry, and read what they produced."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import Field

from physai.sdk.evidence.verdict import Sha256
from physai.service.auth.access import Caller, requires
from physai.service.jobs.kinds import CalibrateSpec, PlaySpec, QuantizeSpec, TrainSpec, ValidateSpec
from physai.service.jobs.names import check_names
from physai.service.jobs.queue import ENDED, JobQueue
from physai.service.problems import STORAGE_ERRORS, ProblemError, storage_away
from physai.service.registry.blobs import BlobStore
from physai.service.registry.registry import Registry
from physai.service.sessions.session_routes import StrictBody

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
FOLLOW_S = 0.5
"""How often a progress stream looks for news [s]."""

PAGES = {".html": "text/html", ".svg": "image/svg+xml", ".json": "application/json", ".xml": "application/xml"}
"""Artefacts that a browser shows, by suffix; everything else is downloaded."""


Identifier = Annotated[
    str | None, Field(pattern="^[0-9a-f]{16,32}$", description="chosen by the client; submitted twice, it runs once")
]


class SubmitValidate(StrictBody):
    """Run the ten gates on a policy."""

    kind: Literal["validate"]
    spec: ValidateSpec
    id: Identifier = None


class SubmitCalibrate(StrictBody):
    """Fit a twin to recordings."""

    kind: Literal["calibrate"]
    spec: CalibrateSpec
    id: Identifier = None


class SubmitTrain(StrictBody):
    """Train a policy."""

    kind: Literal["train"]
    spec: TrainSpec
    id: Identifier = None


class SubmitQuantize(StrictBody):
    """Write a policy in lower precision."""

    kind: Literal["quantize"]
    spec: QuantizeSpec
    id: Identifier = None


class SubmitPlay(StrictBody):
    """Record what a policy does."""

    kind: Literal["play"]
    spec: PlaySpec
    id: Identifier = None


Submit = Annotated[
    SubmitValidate | SubmitCalibrate | SubmitTrain | SubmitQuantize | SubmitPlay, Field(discriminator="kind")
]


def job_routes(jobs: JobQueue, blobs: BlobStore, registry: Registry, *, limit: int) -> APIRouter:
    """The routes below `/v1/jobs`."""
    router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

    @router.post("", status_code=201)
    def submit(body: Submit, caller: Caller) -> dict[str, Any]:
        """Adds a job to the queue."""
        caller.require("run")
        spec = body.spec.model_dump(mode="json") | check_names(body.spec, registry, blobs)
        return jobs.get(jobs.submit(body.kind, spec, by=caller.name, limit=limit, identifier=body.id))

    @router.get("", dependencies=[requires("read")])
    def list_jobs(
        response: Response,
        state: State | None = None,
        before: Annotated[str | None, Query(description="only jobs that were submitted before this one")] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[dict[str, Any]]:
        """Jobs, newest first; where there are more, the header `link` (rel="next") has the address of the next page."""
        found = jobs.all(state=state, before=before, limit=limit + 1)
        if len(found) > limit:
            more = {"limit": str(limit), "before": found[limit - 1]["id"]} | ({"state": state} if state else {})
            response.headers["link"] = f'</v1/jobs?{urlencode(more)}>; rel="next"'
        return found[:limit]

    @router.get("/validations", dependencies=[requires("read")])
    def list_validations(
        policy: Annotated[list[Sha256], Query(max_length=100, description="hash of a policy; may be given again")],
    ) -> list[dict[str, Any]]:
        """The latest finished validation of each policy that has one, however many jobs came after it."""
        return jobs.validations(policy)

    @router.get("/{job_id}", dependencies=[requires("read")])
    def get_job(job_id: str) -> dict[str, Any]:
        """A job, its result and its artefacts."""
        return jobs.get(job_id)

    @router.post("/{job_id}/cancel", dependencies=[requires("run")])
    def cancel(job_id: str) -> dict[str, Any]:
        """Cancels a job; one that runs saves what it has and ends within half a minute."""
        jobs.cancel(job_id)
        return jobs.get(job_id)

    @router.post("/{job_id}/retry", dependencies=[requires("run")])
    def retry(job_id: str) -> dict[str, Any]:
        """Puts a failed or cancelled job back into the queue."""
        jobs.retry(job_id)
        return jobs.get(job_id)

    @router.get("/{job_id}/events", dependencies=[requires("read")], response_class=StreamingResponse)
    async def events(
        job_id: str, last_event_id: Annotated[str, Header(alias="last-event-id", pattern=r"^\d{0,18}$")] = ""
    ) -> StreamingResponse:
        """Progress as server-sent events, until the job has ended; continues after `Last-Event-ID`."""
        await asyncio.to_thread(jobs.get, job_id)
        return StreamingResponse(_follow(jobs, job_id, int(last_event_id or 0)), media_type="text/event-stream")

    @router.get("/{job_id}/artefacts/{name:path}", dependencies=[requires("read")], response_class=FileResponse)
    def artefact(job_id: str, name: str) -> FileResponse:
        """A file that the job produced."""
        found = next((entry for entry in jobs.get(job_id)["artefacts"] if entry["name"] == name), None)
        if found is None:
            raise ProblemError(404, "unknown-artefact", f"job {job_id} has no artefact {name[:200]!r}")
        suffix = "." + name.rpartition(".")[2]
        return FileResponse(
            blobs.path(found["sha256"]),
            media_type=PAGES.get(suffix, "application/octet-stream"),
            # What a job wrote may repeat what a client uploaded: no script in it runs, and it has no origin.
            headers={"content-security-policy": "sandbox", "x-content-type-options": "nosniff"},
        )

    return router


async def _follow(jobs: JobQueue, job_id: str, after: int) -> AsyncGenerator[str]:
    while True:
        try:
            ended = (await asyncio.to_thread(jobs.get, job_id))["state"] in ENDED
            news = await asyncio.to_thread(jobs.events, job_id, after=after)
        except STORAGE_ERRORS as error:
            # The answer has begun: it goes on when the database is back.
            storage_away(error)
            ended, news = False, []
        for event in news:
            after = event["id"]
            yield f"id: {after}\nevent: {event['kind']}\ndata: {json.dumps(event)}\n\n"
        if ended and not news:
            return
        if not news:
            # A comment, so that a connection that broke off is noticed.
            yield ": \n\n"
            await asyncio.sleep(FOLLOW_S)
