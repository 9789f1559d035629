"""The benchmark does what it claims to measure."""

import pytest
from benchmarks.measure import BenchmarkOptions
from benchmarks.robot import flash
from tests.harness.fixtures.sshd import SshServer


@pytest.mark.slow
def test_the_benchmark_measures_all_of_it(ssh: SshServer) -> None:
    results = {result.name: result for result in flash.run(BenchmarkOptions(quick=True), lambda text: None)}
    assert {"install_over_cp", "transfer_over_scp", "flash_over_scp", "delta_bytes_share"} <= set(results)
    assert all(len(result.runs) >= 3 for result in results.values())
    assert all(value > 0.0 for result in results.values() for value in result.runs)
    # A quarter of the weights is another; manifest, verdict and signature are new.
    assert 0.2 < results["delta_bytes_share"].value < 0.5
