"""A validation in a service prints and writes what one on this computer does."""

import json
import shutil
from pathlib import Path

import pytest

from physai.sdk.cli.main import main
from physai.service import ServiceClient
from physai.service.serving.process import running_service

POLICY = Path(__file__).parents[2] / "data" / "policies" / "cartpole-00"


@pytest.mark.slow
def test_the_same_verdict_here_and_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy"
    shutil.copytree(POLICY, policy)
    code = main(["sim", "validate", str(policy), "--report", str(tmp_path / "here"), "--json"])
    here = json.loads(capsys.readouterr().out)
    with running_service(tmp_path / "data") as service:
        arguments = ["sim", "validate", str(policy), "--report", str(tmp_path / "there"), "--server", service.url]
        assert main([*arguments, "--json"]) == code
        output = capsys.readouterr()
        there = json.loads(output.out)
        assert "contract: FAIL" in output.err
        (entry,) = ServiceClient(service.url).entries("policy")
    assert {key: value for key, value in there.items() if key != "created"} == {
        key: value for key, value in here.items() if key != "created"
    }
    assert entry["sha256"] == here["policy_sha256"]
    files = {path.name for path in (tmp_path / "there").iterdir()}
    assert {"verdict.json", "report.html", "junit.xml", "record"} <= files


@pytest.mark.slow
def test_what_cannot_be_validated_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy"
    shutil.copytree(POLICY, policy)
    assert main(["sim", "validate", str(policy), "--server", "http://127.0.0.1:1"]) == 2
    assert "http://127.0.0.1:1 cannot be reached" in capsys.readouterr().err
    assert main(["sim", "validate", str(policy), "--server", "nonsense"]) == 2
    assert "cannot be reached" in capsys.readouterr().err
    with running_service(tmp_path / "data", workers=0) as service:
        (policy / "policy.onnx").write_bytes(b"no policy")
        assert main(["sim", "validate", str(policy), "--server", service.url]) == 2
        assert "the policy" in capsys.readouterr().err
        assert main(["sim", "validate", str(policy), "--server", service.url, "--baseline", "x"]) == 2
        assert "--baseline works without --server only" in capsys.readouterr().err
