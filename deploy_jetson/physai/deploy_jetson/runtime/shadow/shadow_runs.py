"""The shadows of a runtime: what an operator asks for, what the status shows, and the evidence that is kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.shadow.shadow_client import Shadow, ShadowOutputs
from physai.deploy_jetson.runtime.shadow.shadow_ticks import ShadowError
from physai.deploy_jetson.telemetry.telemetry import Telemetry
from physai.deploy_jetson.update.shadow_files import keep_evidence
from physai.sdk.contract.policy_contract import PolicyContract

OFF = "off"


class Shadows:
    """Starts and ends the shadow of a runtime; safe from any thread but for `check`, which the loop calls."""

    def __init__(
        self,
        telemetry: Telemetry,
        contract: PolicyContract,
        options: RunOptions,
        transport: str,
        say: Callable[[str], None],
    ) -> None:
        """Initialize without a shadow.

        Args:
            telemetry: of the run, configured; its flight recorder has the memory that a shadow reads.
            contract: of the policy that drives.
            options: of the run.
            transport: name of the transport.
            say: reports a message to the operator.
        """
        self._options, self._transport = options, transport
        self.active: Callable[[], Candidate | None] = lambda: None
        """Returns the policy that drives; the runtime sets it."""
        recorder = telemetry.recorder
        self._shadow: Shadow | None = None
        if recorder is not None:
            outputs = ShadowOutputs(say=say, keep=self._keep, record=recorder.add_shadow)
            self._shadow = Shadow(
                recorder.ring,
                contract,
                root=options.root,
                config=options.config,
                outputs=outputs,
                realtime=options.realtime,
            )

    def begin(self) -> None:
        """Start the shadow that the options of the run name, if any.

        Raises:
            ShadowError: see `ask`.
        """
        if self._options.shadow is not None:
            self.ask(str(self._options.shadow))

    def after(self, progress: Callable[[int], None]) -> Callable[[int], None]:
        """Return what the loop calls after each tick: `progress`, then the check whether a shadow fell behind."""
        shadow = self._shadow
        if shadow is None:
            return progress

        def call(now_ns: int) -> None:
            progress(now_ns)
            shadow.check()

        return call

    def ask(self, what: str) -> dict[str, Any]:
        """Start the shadow of a bundle, or end it.

        Args:
            what: path of a bundle, or `off`.

        Raises:
            ShadowError: there is no such file, or no memory that a shadow could read.
        """
        if self._shadow is None:
            raise ShadowError("a shadow reads the flight recorder's memory; start the runtime with --record-s above 0")
        if what == OFF:
            return {"shadow": "ended" if self._shadow.off() else "there is none"}
        self._shadow.start(Path(what))
        return {"shadow": f"starting {what}"}

    def status(self) -> dict[str, Any]:
        """See `Shadow.status`."""
        return {} if self._shadow is None else self._shadow.status()

    def close(self) -> None:
        """End the shadow."""
        if self._shadow is not None:
            self._shadow.close()

    def _keep(self, facts: dict[str, Any]) -> None:
        candidate = self.active()
        if candidate is None:
            return
        origin = candidate.origin(self._transport)
        keep_evidence(
            self._options.root,
            facts,
            robot=origin.robot or "unknown",
            origin=origin,
            active_sha256=candidate.bundle_sha256,
        )
