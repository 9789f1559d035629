"""A real ssh server, robots behind it, and bundles for them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.harness.fixtures.sample import ROBOT, SampleSigners
from tests.harness.fixtures.ssh_robot import SshRobot, patient_bundle
from tests.harness.fixtures.sshd import SshServer, ssh_server

from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
from physai.deploy_jetson.update.slots.slot_records import HealthLimits
from physai.sdk.base.errors import DeviceError
from physai.sdk.bundle.source import read_members

POLICIES = Path(__file__).parents[4] / "data" / "policies"
LIMITS = HealthLimits(window_s=0.4, start_timeout_s=120.0, alive_timeout_s=60.0)
"""Twenty ticks of a cartpole; patient with a machine that is busy with something else."""


@pytest.fixture(scope="session")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    try:
        with ssh_server(tmp_path_factory.mktemp("ssh")) as server:
            yield server
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture
def server(ssh: SshServer, monkeypatch: pytest.MonkeyPatch) -> SshServer:
    """The server, and a user who may log in."""
    monkeypatch.setenv("HOME", str(ssh.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return ssh


@pytest.fixture(scope="session")
def workshop() -> SampleSigners:
    """Fresh keys; robots behind ssh have a real clock."""
    return SampleSigners(created=(datetime.now(UTC) - timedelta(hours=1)).replace(microsecond=0))


@pytest.fixture
def cartpole(server: SshServer, folder: Path, workshop: SampleSigners) -> SshRobot:
    return SshRobot.make(server, folder / "cartpole", workshop, "cartpole", limits=LIMITS)


@pytest.fixture
def pendulum(server: SshServer, folder: Path, workshop: SampleSigners) -> SshRobot:
    return SshRobot.make(server, folder / "pendulum", workshop, ROBOT, limits=LIMITS)


def trained(workshop: SampleSigners, policy: str, version: int) -> BundleUpload:
    data = workshop.validated(workshop.published(read_members(POLICIES / policy), version=version))
    return BundleUpload.open(data, source=policy)


@pytest.fixture(scope="session")
def first(workshop: SampleSigners) -> BundleUpload:
    """A trained policy, published and validated."""
    return trained(workshop, "cartpole-00", 1)


@pytest.fixture(scope="session")
def second(workshop: SampleSigners) -> BundleUpload:
    """Its successor."""
    return trained(workshop, "cartpole-01", 2)


@pytest.fixture(scope="session")
def small(workshop: SampleSigners) -> BundleUpload:
    return BundleUpload.open(patient_bundle(workshop, 1), source="small")


@pytest.fixture(scope="session")
def large(workshop: SampleSigners) -> BundleUpload:
    """Four megabytes: more than ssh and the kernel hold between two processes."""
    return BundleUpload.open(patient_bundle(workshop, 1, width=1000), source="large")
