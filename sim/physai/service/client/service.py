"""Registry and jobs of a service over HTTP."""

import contextlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httpx

from physai.service.client.errors import ServiceError

ATTEMPTS = 5
"""Attempts of a request that changes nothing, or that may be sent twice."""
RETRY_S = 0.5
PAGE = 500
"""Jobs that are listed with one request."""
AWAY = "storage"
"""Kind of the problem that the service's database or disk is away, which passes."""
TIMEOUT_S = 30.0


def request(
    method: str,
    base_url: str,
    path: str,
    *,
    access_token: str | None = None,
    attempts: int = 1,
    timeout: float = TIMEOUT_S,
    **options: Any,
) -> Any:
    """Sends one request and returns the JSON of the answer, or None if it has none.

    Args:
        method: HTTP method.
        base_url: address of the service, such as http://127.0.0.1:8800.
        path: path below it.
        access_token: token of the service, if it needs one.
        attempts: how often to send the request as long as nothing answers, or the service cannot store anything now.
        timeout: longest silence [s].
        options: see `httpx.request`.

    Raises:
        ServiceError: the service refuses the request or cannot be reached.
    """
    headers = {"authorization": f"Bearer {access_token}"} if access_token else {}
    headers |= options.pop("headers", {})
    for attempt in range(1, attempts + 1):
        try:
            answer = httpx.request(method, base_url.rstrip("/") + path, headers=headers, timeout=timeout, **options)
        except (httpx.TransportError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            if attempt < attempts:
                time.sleep(RETRY_S * attempt)
                continue
            raise ServiceError(f"{base_url} cannot be reached: {error or type(error).__name__}") from error
        try:
            return _content(answer)
        except ServiceError as error:
            if error.kind != AWAY or attempt == attempts:
                raise
            time.sleep(RETRY_S * attempt)
    raise AssertionError("attempts is at least 1")


def _content(answer: httpx.Response) -> Any:
    document: Any = None
    if answer.content:
        try:
            document = answer.json()
        except ValueError:
            document = answer.text[:200]
    if answer.is_success:
        return document
    if not isinstance(document, dict):
        document = {"status": answer.status_code, "detail": f"HTTP {answer.status_code} from {answer.url}: {document}"}
    raise ServiceError.from_document(cast("object", document))


class ServiceClient:
    """Stored files, registry and jobs of one service."""

    def __init__(self, base_url: str, *, access_token: str | None = None) -> None:
        """A client of the service at `base_url`; nothing is sent yet."""
        self.base_url = base_url
        self._token = access_token

    def _get(self, path: str, **options: Any) -> Any:
        return request("GET", self.base_url, path, access_token=self._token, attempts=ATTEMPTS, **options)

    def _post(self, path: str, body: Mapping[str, Any], *, attempts: int = 1) -> Any:
        return request("POST", self.base_url, path, access_token=self._token, attempts=attempts, json=dict(body))

    def upload(self, file: Path | bytes) -> str:
        """Stores a file in the service; returns its SHA-256.

        Raises:
            ServiceError: it is too large, or the service cannot be reached.
        """
        content = file.read_bytes() if isinstance(file, Path) else file
        answer = request(
            # Stored by content: sent twice, it is stored once.
            *("POST", self.base_url, "/v1/blobs"),
            access_token=self._token,
            attempts=ATTEMPTS,
            content=content,
            timeout=300.0,
        )
        return answer["sha256"]

    def add_robot(self, file: Path, *, main: str | None = None) -> dict[str, Any]:
        """Uploads a robot and returns its entry.

        Args:
            file: MJCF or URDF, which is sent with the meshes in its folder, or a zip.
            main: path of the model in a zip that has several.

        Raises:
            ServiceError: it is no robot that the service can hold.
            ModelError: the file cannot be read.
        """
        from physai.sim.robots.files.archive import pack_model, read_zip

        if file.suffix.lower() == ".zip":
            content = read_zip(file)
        else:
            content, main = pack_model(file)
        return request(
            *("POST", self.base_url, "/v1/robots"),
            access_token=self._token,
            attempts=ATTEMPTS,
            params={"main": main} if main else {},
            content=content,
            timeout=300.0,
        )

    def register(
        self, kind: str, sha256: str, *, golden: str | None = None, robot: str | None = None
    ) -> dict[str, Any]:
        """Registers a stored policy, twin, verdict or bundle; returns the entry.

        Args:
            kind: `policy`, `twin`, `verdict` or `bundle`.
            sha256: the stored file.
            golden: for a policy, its stored `golden.npz`.
            robot: for a twin of an uploaded robot, that robot's hash.

        Raises:
            ServiceError: the file is not what `kind` says.
        """
        body = {"sha256": sha256, "golden": golden, "robot": robot}
        return self._post(f"/v1/registry/{kind}", body, attempts=ATTEMPTS)

    def entries(self, kind: str) -> list[dict[str, Any]]:
        """Registered policies, twins, verdicts or bundles, newest first."""
        return self._get(f"/v1/registry/{kind}")

    def units(self) -> list[dict[str, Any]]:
        """Robots that have filed something, by name: what each runs, its verdict, drift, shadows, last recording."""
        found: list[dict[str, Any]] = []
        while page := self._get("/v1/robots/units", params={"after": found[-1]["robot"]} if found else {}):
            found += page
        return found

    def unit(self, robot: str) -> dict[str, Any]:
        """The same of one robot, such as `ur10e/cell-3`."""
        return self._get(f"/v1/robots/{robot}")

    def drift(self, robot: str, *, limit: int = 100) -> list[dict[str, Any]]:
        """Drift reports on a robot, the one that was issued last first."""
        return self._get(f"/v1/robots/{robot}/drift", params={"limit": limit})

    def file_report(self, robot: str, document: bytes) -> int:
        """Files a signed document about a robot; returns its number.

        Args:
            robot: unit that it is about, such as `ur10e/cell-3`.
            document: its state, a drift report, shadow evidence, or the word of a validator.

        Raises:
            ServiceError: it is not signed by a key that the service trusts, or about another robot.
        """
        answer = request(
            # Stored by content: sent twice, it is stored once.
            *("POST", self.base_url, f"/v1/robots/{robot}/reports"),
            access_token=self._token,
            attempts=ATTEMPTS,
            content=document,
        )
        return answer["entry"]

    def submit(self, kind: str, spec: Mapping[str, Any]) -> str:
        """Submits a job and returns its identifier.

        Raises:
            ServiceError: the specification is refused.
        """
        # The client names the job, so that the request may be sent again.
        body = {"id": secrets.token_hex(8), "kind": kind, "spec": dict(spec)}
        return self._post("/v1/jobs", body, attempts=ATTEMPTS)["id"]

    def job(self, job_id: str) -> dict[str, Any]:
        """A job, its result and its artefacts."""
        return self._get(f"/v1/jobs/{job_id}")

    def jobs(self, *, state: str | None = None) -> Iterator[dict[str, Any]]:
        """All jobs, newest first, fetched as they are asked for.

        Args:
            state: `queued`, `running`, `succeeded`, `failed` or `cancelled`; None for all.
        """
        choice = {} if state is None else {"state": state}
        before: dict[str, str] = {}
        while page := self._get("/v1/jobs", params={"limit": PAGE} | choice | before):
            yield from page
            before = {"before": page[-1]["id"]}

    def validations(self, policies: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The job of the latest finished validation of each policy that has one, by the policy's hash."""
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(policies), 100):
            params = {"policy": list(policies[start : start + 100])}
            found |= {job["spec"]["policy"]: job for job in self._get("/v1/jobs/validations", params=params)}
        return found

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancels a job."""
        return self._post(f"/v1/jobs/{job_id}/cancel", {}, attempts=ATTEMPTS)

    def follow(self, job_id: str) -> Iterator[dict[str, Any]]:
        """Events of a job until it ends, over lost connections.

        Raises:
            ServiceError: there is no such job, or the service is gone for good.
        """
        last, failures = 0, 0
        while True:
            try:
                for event in self._stream(job_id, last):
                    last, failures = event["id"], 0
                    yield event
                if self.job(job_id)["ended"] is not None:
                    return
            except (httpx.TransportError, ServiceError) as error:
                if isinstance(error, ServiceError) and error.kind not in (AWAY, "unreachable"):
                    raise
                failures += 1
                if failures > ATTEMPTS * 4:
                    raise ServiceError(f"{self.base_url} cannot be reached: {error}") from error
                time.sleep(RETRY_S * min(failures, 10))

    def _stream(self, job_id: str, after: int) -> Iterator[dict[str, Any]]:
        headers = {"last-event-id": str(after)} | ({"authorization": f"Bearer {self._token}"} if self._token else {})
        url = f"{self.base_url.rstrip('/')}/v1/jobs/{job_id}/events"
        with httpx.stream("GET", url, headers=headers, timeout=TIMEOUT_S) as answer:
            if not answer.is_success:
                answer.read()
                _content(answer)
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    with contextlib.suppress(ValueError):
                        yield json.loads(line.removeprefix("data: "))

    def download(self, job_id: str, folder: Path) -> list[Path]:
        """Writes the artefacts of a job below a folder; returns their paths.

        Raises:
            ServiceError: an artefact's name leaves the folder, or the service cannot be reached.
        """
        written: list[Path] = []
        for artefact in self.job(job_id)["artefacts"]:
            path = folder / artefact["name"]
            if not path.resolve().is_relative_to(folder.resolve()):
                raise ServiceError(f"artefact {artefact['name']!r} leaves {folder}; the service is not to be trusted")
            path.parent.mkdir(parents=True, exist_ok=True)
            url = f"{self.base_url.rstrip('/')}/v1/blobs/{artefact['sha256']}"
            headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
            with httpx.stream("GET", url, headers=headers, timeout=TIMEOUT_S) as answer, path.open("wb") as file:
                if not answer.is_success:
                    answer.read()
                    _content(answer)
                for chunk in answer.iter_bytes():
                    file.write(chunk)
            written.append(path)
        return written
