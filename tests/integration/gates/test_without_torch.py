"""The promise of the extra `sim`: a policy is validated, and its record replayed, where torch is not installed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.vouching import vouched_twin

from physai.sdk.evidence.verdict import VERDICT_FILE, load_verdict
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
from physai.twin.model.twin import Twin, save_twin

TASK = str(Path(__file__).parents[2] / "support" / "pusher_task.py")
GATES = "engine: {episodes: 8}\nfalsification: {generations: 2, population: 8, seeds: 2, confirmations: 16}\n"
PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"
REPLAY = """
import json, os, sys
from pathlib import Path
from physai.gates.record import rederive
report, policy, task = sys.argv[1:]
members = {name: (Path(policy).parent / name).read_bytes() for name in ("policy.onnx", "golden.npz")}
told = []
from physai.sdk.signing.ed25519 import load_public_key
validators = (load_public_key(Path(os.environ["XDG_CONFIG_HOME"]) / "physai/keys/validator.pub"),)
verdict = rederive(Path(report), members, task=task, replays=None, validators=validators, tell=told.append)
print(verdict.model_dump_json())
print(len(told), file=sys.stderr)
"""


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """The environment of processes, and of those that they start, in which torch is not installed."""
    package = tmp_path / "blocked" / "torch"
    package.mkdir(parents=True)
    line = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    (package / "__init__.py").write_text(line)
    return {**os.environ, "PYTHONPATH": str(package.parent)}


@pytest.mark.slow
def test_every_gate_and_every_batch_of_the_record(
    write_policy: Callable[..., Path],
    credible_twin: Twin,
    evidence: Any,
    bench: Any,
    tmp_path: Path,
    without_torch: dict[str, str],
) -> None:
    """Signing replays batches drawn at random: here all of them, those of the second engine among them."""
    policy, report = write_policy(), tmp_path / "report"
    assert (policy.name, (policy.parent / GOLDEN_FILE).is_file()) == (POLICY_FILE, True)
    save_twin(vouched_twin(credible_twin), tmp_path / "twin.json")
    (tmp_path / "gates.yaml").write_text(GATES)
    (tmp_path / "ticks.json").write_text(evidence(bench.subject(policy), [0.001] * 10_000))
    files = {"--twin": "twin.json", "--gates": "gates.yaml", "--latency": "ticks.json"}
    words = [word for option, name in files.items() for word in (option, str(tmp_path / name))]
    words += ["--task", TASK, "--report", str(report), "--jobs", "2"]
    validate = [sys.executable, "-c", PROGRAM, "sim", "validate", str(policy), *words]
    ended = subprocess.run(validate, env=without_torch, capture_output=True, text=True, check=False)
    assert "torch" not in ended.stderr
    verdict = load_verdict(report)
    engine = next(gate for gate in verdict.gates if gate.gate == "engine")
    assert (engine.outcome, engine.episodes) == ("PASS", 8), engine
    replay = [sys.executable, "-c", REPLAY, str(report), str(policy), TASK]
    ended = subprocess.run(replay, env=without_torch, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["gates"] == json.loads((report / VERDICT_FILE).read_text())["gates"]
    batches = len(list((report / "record").glob("*.npz")))
    assert int(ended.stderr.split()[-1]) == batches + 1, "each batch was replayed"
