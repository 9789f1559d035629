"""Both ends of the transport `dds` for tests: this process's, and a peer in another."""

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from physai.sdk.contract.io import save_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.transport.dds.dds_ends import DdsTransport

PEER = Path(__file__).parent / "dds_peer.py"


@contextmanager
def peer(role: str, contract: PolicyContract, folder: Path) -> Generator[None]:
    """Another process that plays a role until the block ends.

    It starts quicker from a contract in a file, which is left in `folder`, than with the tasks.
    """
    path = folder / f"{contract.task}.json"
    save_contract(contract, path)
    command = [sys.executable, str(PEER), role, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.communicate(timeout=PATIENCE_S)


@contextmanager
def runtime(contract: PolicyContract, **options: str) -> Generator[DdsTransport]:
    """This process's end, open until the block ends."""
    transport = DdsTransport(options)
    transport.open(contract)
    try:
        yield transport
    finally:
        transport.close()


def told(transport: DdsTransport, text: str) -> str:
    """The problem that contains a text, as soon as there is one."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        transport.wait(0.05)
        for problem in transport.problems():
            if text in problem:
                return problem
    pytest.fail(f"no problem with {text!r} but {transport.problems()}")
