"""Tells a service of `physai sim serve` what became of each robot; a service that is down fails and delays no flash."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.service import Service
from physai.sdk.base.terminal import printable

if TYPE_CHECKING:
    from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
    from physai.deploy_jetson.update.flash.rollout import RobotReport
    from physai.deploy_jetson.update.flash.target import Target

REPORT_S = 5.0
"""Longest silence of the service, and longest wait for it after the last robot [s]."""
MAX_REASON = 1000
"""Characters of a reason that the service takes."""


class InstallationReports:
    """Sends reports beside the flash, in the order in which they were added; leaving the block waits for the rest."""

    def __init__(self, service: Service | None, upload: BundleUpload, *, warn: Callable[[str], None]) -> None:
        """Initialises without sending anything.

        Args:
            service: receives the reports; None for nobody.
            upload: the bundle that is flashed.
            warn: called at the end, if the service did not take every report.
        """
        self._service = service
        self._bundle = {"bundle": upload.sha256, "policy": upload.policy_sha256, "task": upload.task}
        self._version = upload.version
        self._warn = warn
        self._waiting: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._added = self._taken = 0
        self._problem = f"no answer within {REPORT_S:g} s"
        # A daemon, because no timeout bounds the lookup of a name, or a service that answers byte by byte.
        self._thread = threading.Thread(target=self._send_all, args=[service], daemon=True)

    def __enter__(self) -> Self:
        if self._service is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._service is None:
            return
        self._waiting.put(None)
        self._thread.join(REPORT_S)
        lost = self._added - self._taken
        if lost:
            self._warn(
                f"{self._service.url} was not told of {lost} of {self._added} robots: {self._problem}; to tell it "
                "later, flash again: a robot that runs the bundle already is left alone"
            )

    def add(self, report: RobotReport) -> None:
        """Has a robot's outcome reported; one that was skipped is not."""
        if self._service is None or report.outcome == "skipped":
            return
        self._added += 1
        self._waiting.put(
            {
                **self._bundle,
                "unit": _unit(report.target),
                "version": self._version,
                "outcome": report.outcome,
                "reason": printable(report.reason.replace("\n", " "))[:MAX_REASON],
            }
        )

    def _send_all(self, service: Service) -> None:
        while (entry := self._waiting.get()) is not None:
            try:
                service.post("/v1/installations", entry, timeout_s=REPORT_S)
                self._taken += 1
            except PhysaiError as error:
                self._problem = str(error)


def _unit(target: Target) -> str:
    """The robot's name in reports: its address, whoever logs in."""
    return str(target).rpartition("@")[2]
