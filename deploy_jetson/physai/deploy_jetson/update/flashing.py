"""`physai flash` as functions: a bundle is deployed to a robot, or to a fleet, over ssh."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
    from physai.deploy_jetson.update.flash.deliver import Flashed, FlashOptions, FlashStep
    from physai.deploy_jetson.update.flash.rollout import RobotReport
    from physai.deploy_jetson.update.flash.target import Target
    from physai.sdk.base.service import Service

MAX_PATIENCE_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class FlashSettings:
    """Settings of a flash.

    Attributes:
        wait: wait until the robot commits or rolls back, and report why.
        root: tree of slots on the robot. None for the robot's.
        physai: command that runs physai on the robot. None for physai, or the one of the fleet file.
        time: statement of `physai keys time`, for a robot with an unreliable clock.
        server: service of `physai sim serve` that has the bundle, and is told what became of it; token in PHYSAI_TOKEN.
        retry: even if the robot rolled this bundle back before.
        unsafe_no_verdict: without a verdict, if the owner allows it.
        patience_s: longest wait for another flash of the same robot [s].
        warn: receives warnings that fail nothing.
        begun: receives a robot that is flashed from now on.
        progress: receives the steps of a robot.
        finished: receives the outcome of a robot, and the bundle.
    """

    wait: bool = False
    root: Annotated[str | PurePosixPath | None, Option(metavar="DIR")] = None
    physai: Annotated[str | None, Option(metavar="COMMAND")] = None
    time: Path | str | None = None
    server: Annotated[str | None, Option(metavar="URL")] = None
    retry: bool = False
    unsafe_no_verdict: bool = False
    patience_s: Annotated[float, Option(old=("--patience",))] = 30.0
    warn: Callable[[str], None] = lambda text: None
    begun: Callable[[Target], None] = lambda target: None
    progress: Callable[[Target, FlashStep], None] = lambda target, step: None
    finished: Callable[[RobotReport, BundleUpload], None] = lambda report, upload: None

    def __post_init__(self) -> None:
        """Checks the patience."""
        if not 0.0 <= self.patience_s <= MAX_PATIENCE_S:
            raise PhysaiError(f"`patience_s` must lie in 0 … {MAX_PATIENCE_S:g} s, got {self.patience_s:g}")

    @property
    def tree(self) -> PurePosixPath | None:
        """Tree of slots on the robot; None for the robot's."""
        return None if self.root is None else PurePosixPath(self.root)


@dataclass(frozen=True)
class FlashReport:
    """Result of a flash."""

    upload: BundleUpload
    """The bundle."""
    robots: tuple[RobotReport, ...]
    """Outcome of each robot, in the order of the fleet."""


def flash(host: str, bundle: Path | str, settings: FlashSettings | None = None) -> FlashReport:
    """Deploy a bundle to a robot over ssh: send, install and activate it.

    Args:
        host: the robot, `[USER@]HOST[:PORT]`, as for ssh.
        bundle: bundle file, or with `server` its SHA-256 or 8 digits of it.
        settings: None for the defaults.

    Raises:
        FlashError: the robot was not flashed; its active policy is unchanged.
        BundleError: the bundle cannot be read, or is not registered.
        PhysaiError: a setting is out of range.
    """
    from physai.deploy_jetson.update.flash.rollout import RobotReport
    from physai.deploy_jetson.update.flash.target import Target

    settings = settings or FlashSettings()
    target = Target.parse(host, root=settings.tree, physai=settings.physai or "physai")
    upload, options, service = _prepared(bundle, settings)

    async def deliver(add: Callable[[RobotReport], None]) -> list[RobotReport]:
        try:
            flashed = await _flash_one(target, upload, options, settings)
        except PhysaiError as error:
            add(RobotReport(target, "failed", str(error)))
            raise
        report = RobotReport(target, flashed.outcome, flashed.reason, flashed=flashed)
        add(report)
        return [report]

    return _run(upload, service, settings, deliver)


def flash_fleet(fleet: Path | str, bundle: Path | str, settings: FlashSettings | None = None) -> FlashReport:
    """Deploy a bundle to a fleet over ssh, canaries first.

    Args:
        fleet: YAML file of robots, canaries first.
        bundle: bundle file, or with `server` its SHA-256 or 8 digits of it.
        settings: None for the defaults.

    Returns:
        The outcome of every robot; a robot that fails raises nothing.

    Raises:
        FlashError: the fleet file is invalid.
        BundleError: the bundle cannot be read, or is not registered.
        PhysaiError: a setting is out of range.
    """
    from physai.deploy_jetson.update.flash.fleet import load_fleet
    from physai.deploy_jetson.update.flash.rollout import roll_out

    settings = settings or FlashSettings()
    upload, options, service = _prepared(bundle, settings)
    robots = load_fleet(Path(fleet), root=settings.tree, physai=settings.physai)

    async def flash_one(target: Target, wait: bool) -> Flashed:
        return await _flash_one(target, upload, replace(options, wait=wait), settings)

    async def deliver(add: Callable[[RobotReport], None]) -> list[RobotReport]:
        return await roll_out(robots, flash_one, wait=options.wait, tell=add)

    return _run(upload, service, settings, deliver)


async def _flash_one(target: Target, upload: BundleUpload, options: FlashOptions, settings: FlashSettings) -> Flashed:
    from physai.deploy_jetson.update.flash import deliver

    settings.begun(target)
    return await deliver.flash(target, upload, options, lambda step: settings.progress(target, step))


def _run(
    upload: BundleUpload,
    service: Service | None,
    settings: FlashSettings,
    deliver: Callable[[Callable[[RobotReport], None]], Coroutine[Any, Any, list[RobotReport]]],
) -> FlashReport:
    import asyncio

    from physai.deploy_jetson.update.flash.installation_reports import InstallationReports

    with InstallationReports(service, upload, warn=settings.warn) as installations:

        def add(report: RobotReport) -> None:
            settings.finished(report, upload)
            installations.add(report)

        return FlashReport(upload, tuple(asyncio.run(deliver(add))))


def _prepared(bundle: Path | str, settings: FlashSettings) -> tuple[BundleUpload, FlashOptions, Service | None]:
    from physai.deploy_jetson.update.flash.deliver import FlashOptions
    from physai.sdk.base.service import Service

    service = None if settings.server is None else Service.parse(settings.server)
    upload = _load(Path(bundle), service)
    options = FlashOptions(
        wait=settings.wait,
        unsafe_no_verdict=settings.unsafe_no_verdict,
        retry=settings.retry,
        time=_statement(settings.time),
        patience_s=settings.patience_s,
    )
    return upload, options, service


def _load(bundle: Path, service: Service | None) -> BundleUpload:
    """Reads a bundle file, or fetches a registered bundle."""
    from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
    from physai.sdk.bundle.registered import fetch_bundle, is_digest_prefix

    name = str(bundle)
    if bundle.exists() or not is_digest_prefix(name):
        return BundleUpload.load(bundle)
    if service is None:
        raise PhysaiError(f"{name}: no such file; if it is the SHA-256 of a registered bundle, add `server` URL")
    return BundleUpload.open(fetch_bundle(service, name), source=name)


def _statement(path: Path | str | None) -> str:
    """Reads a signed time statement; empty without a file."""
    from physai.deploy_jetson.update.flash.protocol import MAX_TEXT
    from physai.sdk.base.files import read_plain

    if path is None:
        return ""
    try:
        data = read_plain(Path(path), limit=MAX_TEXT)
    except OSError as error:
        raise PhysaiError(f"`time` {path}: cannot be read: {error.strerror}") from None
    # The statement becomes one line of the protocol.
    if not len(data) <= MAX_TEXT or not data.isascii():
        raise PhysaiError(f"`time` {path}: no statement of `physai keys time`, or one of more than {MAX_TEXT} bytes")
    return data.decode("ascii").rstrip("\n")
