"""`physai policy quantize`: states from the twin only, the bound kept, layers left in float32, no half files."""

import argparse
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from physai.gates.execution.subject import QUANTISED_FILE
from physai.gates.settings import GateSettings, NonInferioritySettings
from physai.sdk.base.errors import ContractMismatchError, PhysaiError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.bundle.source import VARIANTS as BUNDLE_VARIANTS
from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sdk.policy.golden import GoldenError, read_golden
from physai.sdk.policy.header import FINGERPRINT_KEY, GOLDEN_FILE, POLICY_FILE
from physai.sdk.policy.parity import JointError, require_made_of
from physai.sim.engines.protocol import Array
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.arms.reach import ur10e_reach
from physai.sim.tasks.pendulums.cartpole import cartpole_swingup
from physai.sim.tasks.task import Task
from physai.train.cli import quantize_verb as cli
from physai.train.onnx_export.export import npz
from physai.train.quantize.choice import HEADROOM, ComparePairs, FormatComparison, choose
from physai.train.quantize.formats import VARIANTS, file_name
from physai.train.quantize.network import Layer
from physai.train.quantize.paired_evaluation import PairedEvaluation, Pairs
from physai.train.quantize.quantize import Original, QuantiseReport, quantise_policy, read_original
from physai.train.quantize.states import QuantiseError, VisitedStates, record_states
from physai.twin.model.twin import nominal_twin

POLICY = Path(__file__).parents[3] / "data" / "policies" / "cartpole-00" / POLICY_FILE
TASK_FILE = """\
from dataclasses import replace

from physai.sdk.contract.io import load_contract
from physai.sim.tasks.pendulums.cartpole import cartpole_swingup


def make_task():
    return replace(cartpole_swingup(), contract=load_contract({policy!r}))
"""
"""A user's task file: the task under the contract that the policy was trained under."""

STATES, EPISODES = 1500, 6
FEW = ("--states", "1000", "--episodes", "3")
SKIPPED = ("--skip-tensorrt", "--skip-paired-evaluation")


@pytest.fixture(scope="module")
def original() -> Original:
    return read_original(POLICY)


def task_of(original: Original) -> Task:
    """The task under the contract that the policy was trained under, which is of format 1."""
    return replace(cartpole_swingup(), contract=OnnxPolicy(original.data, source="policy.onnx").contract)


def record(original: Original, **changed: Any) -> VisitedStates:
    task = task_of(original)
    options: dict[str, Any] = {"states": STATES, "episodes": EPISODES, **changed}
    return record_states(original.data, task, nominal_twin(task.robot), source="policy.onnx", **options)


@pytest.fixture(scope="module")
def states(original: Original) -> VisitedStates:
    return record(original)


@pytest.fixture(scope="module")
def report(original: Original, states: VisitedStates, tmp_path_factory: pytest.TempPathFactory) -> QuantiseReport:
    folder = tmp_path_factory.mktemp("quantised") / "deep"
    return quantise_policy(original, states, folder, variants=VARIANTS, tensorrt=False)


def test_the_names_are_those_of_gates_and_bundles() -> None:
    assert file_name("int8") == QUANTISED_FILE
    assert {variant: file_name(variant) for variant in VARIANTS} == BUNDLE_VARIANTS


def test_states_are_those_the_policy_visits(original: Original, states: VisitedStates) -> None:
    policy = OnnxPolicy(original.data, source="test")
    assert states.policy_sha256 == sha256_hex(original.data)
    assert states.count == STATES
    assert states.episodes == EPISODES
    for part in (states.calibration, states.check):
        assert {name: values.shape for name, values in part.items()} == {
            name: (STATES, size) for name, size in policy.header.inputs.items()
        }
        # Every episode begins with an empty memory, in every one of the three conditions.
        assert (part["state.started"] == 0.0).sum() >= EPISODES
        assert np.abs(part["joint_vel"]).max() > 1.0, "it swings up"
    shared = {row.tobytes() for row in states.calibration["joint_pos"]}
    assert not shared & {row.tobytes() for row in states.check["joint_pos"]}, "no episode is in both"


def test_equal_seeds_give_equal_states(original: Original, states: VisitedStates) -> None:
    assert record(original).sha256 == states.sha256


@pytest.mark.parametrize("count", [0, 999, 1_000_001])
def test_too_few_or_too_many_states_are_refused(original: Original, count: int) -> None:
    with pytest.raises(QuantiseError, match=f"{count} calibration states requested"):
        record(original, states=count)


@pytest.mark.parametrize("count", [0, 2, 4097])
def test_too_few_or_too_many_episodes_are_refused(original: Original, count: int) -> None:
    with pytest.raises(QuantiseError, match=f"{count} episodes requested; choose 3 to 4096"):
        record(original, episodes=count)


def test_episodes_too_short_to_tell_anything_are_refused(original: Original) -> None:
    task = replace(task_of(original), episode_length_s=2.0)
    options: dict[str, Any] = {"states": STATES, "episodes": 3}
    # 100 control periods in each of three episodes.
    with pytest.raises(QuantiseError, match="ended after 300 states, at least 1000 are needed"):
        record_states(original.data, task, nominal_twin(task.robot), source="policy.onnx", **options)


def test_another_task_is_refused(original: Original) -> None:
    task = ur10e_reach()
    with pytest.raises(ContractMismatchError):
        record_states(original.data, task, nominal_twin(task.robot), source="policy.onnx", states=STATES, episodes=3)


def test_states_of_another_policy_are_refused(original: Original, states: VisitedStates, tmp_path: Path) -> None:
    foreign = replace(states, policy_sha256="0" * 64)
    with pytest.raises(QuantiseError, match="those of policy 000000000000"):
        quantise_policy(original, foreign, tmp_path, variants=("int8",), tensorrt=False)
    assert not list(tmp_path.iterdir())


def test_what_is_written_keeps_the_bound(original: Original, states: VisitedStates, report: QuantiseReport) -> None:
    policy = OnnxPolicy(original.data, source="float")
    bound = policy.contract.safety.parity_tolerance
    int8, _, fp16 = report.variants
    for variant in (int8, fp16):
        assert variant.file is not None
        data = Path(variant.file).read_bytes()
        assert variant.sha256 == sha256_hex(data)
        assert variant.size == len(data)
        quantised = OnnxPolicy(data, source=variant.file)
        golden = read_golden(original.golden or b"", policy.header).inputs
        asked = {name: np.concatenate([values, golden[name]]) for name, values in states.check.items()}
        error = np.abs(quantised.evaluate(asked)["joint_effort_target"] - policy.evaluate(asked)["joint_effort_target"])
        assert 0.0 < error.max() <= HEADROOM * bound
        assert variant.choice.error == pytest.approx(float(error.max()), rel=1e-5)
        (joint,) = variant.choice.joints
        assert (joint.joint, joint.unit) == ("slider", "N")
        assert joint.mean == pytest.approx(float(error.mean()), rel=1e-4)
        assert variant.golden_error is not None
        assert 0.0 < variant.golden_error <= bound


def test_a_policy_too_steep_for_eight_bits_keeps_layers_in_float(report: QuantiseReport) -> None:
    int8, fp8, fp16 = (variant.choice for variant in report.variants)
    precisions = [layer.precision for layer in int8.layers]
    assert precisions[0] == "float32", "its first layer amplifies most"
    assert precisions[-1] == "int8"
    assert int8.layers[0].error_alone > int8.allowed
    assert {layer.precision for layer in fp16.layers} == {"fp16"}
    assert "no layer can be fp8" in fp8.refused


def test_a_refused_variant_is_not_written(report: QuantiseReport) -> None:
    int8 = report.variants[0]
    assert int8.file is not None
    assert sorted(path.name for path in Path(int8.file).parent.iterdir()) == ["policy.fp16.onnx", "policy.int8.onnx"]
    assert [variant.variant for variant in report.refused] == ["fp8"]
    assert report.variants[1].file is None


def test_a_variant_tells_how_it_was_made(original: Original, states: VisitedStates, report: QuantiseReport) -> None:
    origin = OnnxPolicy(original.data, source="float").header
    int8 = report.variants[0]
    assert int8.file is not None
    header = OnnxPolicy.load(int8.file).header
    assert (header.contract, header.state_sizes) == (origin.contract, origin.state_sizes)
    assert header.metadata()[FINGERPRINT_KEY] == origin.contract.fingerprint
    assert {key: header.provenance[key] for key in origin.provenance} == origin.provenance
    require_made_of(header, sha256_hex(original.data), source=int8.file)
    told = {key.removeprefix("quantised."): value for key, value in header.provenance.items()}
    assert told["format"] == "int8"
    assert told["states_sha256"] == states.sha256
    assert (told["states"], told["states_episodes"], told["states_seed"]) == (str(STATES), str(EPISODES), "0")
    assert told["states_twin"] == nominal_twin(cartpole_swingup().robot).hash
    assert json.loads(told["layers"]) == {layer.name: layer.precision for layer in int8.choice.layers}
    assert json.loads(told["joint_errors"]) == {"slider": pytest.approx(int8.choice.error, rel=1e-5)}
    assert told["bound"] == "0.5"


def test_equal_input_gives_equal_bytes(
    original: Original, states: VisitedStates, report: QuantiseReport, tmp_path: Path
) -> None:
    again = quantise_policy(original, states, tmp_path, variants=("int8",), tensorrt=False)
    assert again.variants[0].sha256 == report.variants[0].sha256


def test_a_quantised_policy_is_not_quantised_again(
    states: VisitedStates, report: QuantiseReport, tmp_path: Path
) -> None:
    path = Path(report.variants[0].file or "")
    again = replace(states, policy_sha256=sha256_hex(path.read_bytes()))
    with pytest.raises(QuantiseError, match="name the float graph"):
        quantise_policy(read_original(path), again, tmp_path, variants=("int8",), tensorrt=False)


def test_damaged_golden_states_are_refused_before_anything_is_written(
    original: Original, states: VisitedStates, tmp_path: Path
) -> None:
    with pytest.raises(GoldenError):
        quantise_policy(replace(original, golden=b"no"), states, tmp_path, variants=("fp16",), tensorrt=False)
    assert not list(tmp_path.iterdir())


def test_golden_answers_far_from_the_variant_are_refused(
    original: Original, states: VisitedStates, tmp_path: Path
) -> None:
    header = OnnxPolicy(original.data, source="float").header
    golden = read_golden(original.golden or b"", header)
    answers: dict[str, Array] = {**golden.outputs, "joint_effort_target": golden.outputs["joint_effort_target"] + 0.6}
    data = npz({**golden.inputs, **answers, "fingerprint": np.array(header.contract.fingerprint)})
    with pytest.raises(QuantiseError, match=r"from the golden outputs, the contract allows 0\.5"):
        quantise_policy(replace(original, golden=data), states, tmp_path, variants=("fp16",), tensorrt=False)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_said(original: Original, states: VisitedStates, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(QuantiseError, match="cannot write into"):
        quantise_policy(original, states, tmp_path / "file", variants=("fp16",), tensorrt=False)


@pytest.mark.skipif(
    find_spec("tensorrt_rtx") is None, reason="tensorrt-rtx is not installed, so no engine can be built"
)
def test_engines_are_built_before_anything_is_written(
    original: Original, states: VisitedStates, tmp_path: Path
) -> None:
    report = quantise_policy(original, states, tmp_path, variants=("int8",))
    assert report.unbuilt is None
    assert (report.variants[0].tensorrt or "").endswith("SM 86, 89, 120")


class Additive(FormatComparison):
    """A peer whose errors add up layer by layer, known beforehand."""

    def __init__(self, errors: Mapping[str, float]) -> None:
        self.known = errors

    def joints(self, data: bytes) -> tuple[JointError, ...]:
        error = self.greatest(data)
        return (JointError("pivot", "N·m", error, error, error),)

    def greatest(self, data: bytes) -> float:
        return sum(self.known[name] for name in json.loads(data))


def chosen(errors: list[float], bound: float, compare: ComparePairs | None = None) -> tuple[list[bool], bool]:
    """Which layers are quantised, and whether the variant is refused."""
    layers = [Layer(f"layer{index}", "x", "w", None, 1, 1, True) for index in range(len(errors))]
    known = {layer.name: error for layer, error in zip(layers, errors, strict=True)}

    def make(some: Collection[Layer]) -> bytes:
        return json.dumps([layer.name for layer in some]).encode()

    choice = choose("int8", layers, make, Additive(known), bound, compare)
    assert [layer.error_alone for layer in choice.layers] == errors
    return [layer.precision == "int8" for layer in choice.layers], bool(choice.refused)


def test_the_worst_layers_stay_float() -> None:
    # 0.8 of the bound is 0.8: all make 1.0, without the worst 0.5.
    assert chosen([0.2, 0.5, 0.3], 1.0) == ([True, False, True], False)
    assert chosen([0.2, 0.3, 0.3], 1.0) == ([True, True, True], False)
    assert chosen([0.9, 0.5, 0.4], 1.0) == ([False, False, True], False)
    assert chosen([0.9, 0.81, 2.0], 1.0) == ([False, False, False], True)


@given(st.lists(st.floats(0.001, 10.0), min_size=1, max_size=6), st.floats(0.01, 20.0))
def test_whatever_is_chosen_keeps_the_bound(errors: list[float], bound: float) -> None:
    quantised, refused = chosen(errors, bound)
    kept = sum(error for error, yes in zip(errors, quantised, strict=True) if yes)
    assert kept <= HEADROOM * bound * (1 + 1e-9)
    assert refused == (not any(quantised))
    if refused:
        assert min(errors) > HEADROOM * bound * (1 - 1e-9)


def test_layers_stay_float_until_the_task_is_done_as_well() -> None:
    asked: list[list[str]] = []

    def compare(data: bytes) -> Pairs:
        asked.append(json.loads(data))
        good = "layer1" not in asked[-1]
        return Pairs(640, 0 if good else 50, 4, VerdictOutcome.PASS if good else VerdictOutcome.INCONCLUSIVE)

    assert chosen([0.2, 0.3, 0.1], 1.0, compare) == ([True, False, True], False)
    assert asked == [["layer0", "layer1", "layer2"], ["layer0", "layer2"]]
    asked.clear()
    assert chosen([0.1, 0.1], 0.01, compare) == ([False, False], True)
    assert asked == [], "what breaks the contract's bound is not played"


def test_a_variant_that_cannot_do_the_task_is_refused(
    original: Original, states: VisitedStates, tmp_path: Path
) -> None:
    lost = Pairs(640, 50, 4, VerdictOutcome.INCONCLUSIVE)
    report = quantise_policy(
        original, states, tmp_path, variants=("fp16",), tensorrt=False, compare=lambda data: lost
    ).variants[0]
    assert "50 of 640 episodes fail that succeed with the float graph, and 4 succeed" in report.choice.refused
    assert list(tmp_path.iterdir()) == []
    won = Pairs(192, 0, 1, VerdictOutcome.PASS)
    report = quantise_policy(original, states, tmp_path, variants=("fp16",), tensorrt=False, compare=lambda data: won)
    header = OnnxPolicy.load(tmp_path / "policy.fp16.onnx").header
    assert header.provenance["quantised.pairs"] == "192 pairs, 0 worse, 1 better"
    assert "192 paired episodes: 0 succeed only with the float graph, 1" in cli.report_text(report)


BRIEF = GateSettings(batch=16, non_inferiority=NonInferioritySettings(margin=0.3, max_episodes=64))


@pytest.fixture(scope="module")
def evaluation(original: Original) -> PairedEvaluation:
    task = task_of(original)
    return PairedEvaluation(original.data, task, nominal_twin(task.robot), settings=BRIEF)


def test_the_same_graph_does_as_well_as_itself(evaluation: PairedEvaluation, original: Original) -> None:
    found = evaluation.compare(original.data)
    assert (found.worse, found.better, found.drop, found.outcome) == (0, 0, 0.0, VerdictOutcome.PASS)
    # The boldest of 7 bets grows by 1 + 0.95 · 0.3 / 0.7 = 1.41 with each pair that agrees, and evidence of 200 is
    # asked for: 16 pairs make 1.41^16 / 7 = 34, 32 pairs make 8,000.
    assert found.pairs == 32


def test_a_graph_that_fails_where_the_float_one_succeeds_is_seen(
    evaluation: PairedEvaluation, original: Original
) -> None:
    model = onnx.load_from_string(original.data)
    for tensor in model.graph.initializer:
        if tensor.name.startswith("actor."):
            tensor.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(tensor)), tensor.name))
    found = evaluation.compare(model.SerializeToString())
    assert (found.outcome, found.better) == (VerdictOutcome.FAIL, 0)
    assert found.worse > 0.5 * found.pairs


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    cli.command.add_arguments(parser)
    return cli.command.run(parser.parse_args(list(words)))


def test_the_command_writes_beside_the_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (POLICY_FILE, GOLDEN_FILE):
        (tmp_path / name).write_bytes((POLICY.parent / name).read_bytes())
    task = tmp_path / "same_contract.py"
    task.write_text(TASK_FILE.format(policy=str(POLICY)))
    assert run(str(tmp_path), "--task", str(task), "--variant", "fp16", "fp8", *FEW, *SKIPPED, "--json") == 1
    printed = capsys.readouterr()
    # On a slow computer it tells its progress.
    assert all("%" in line for line in printed.err.splitlines())
    fp16, fp8 = json.loads(printed.out)["variants"]
    assert fp16["file"] == str(tmp_path / "policy.fp16.onnx")
    assert (fp16["choice"]["joints"][0]["unit"], fp16["choice"]["refused"]) == ("N", "")
    assert fp8["choice"]["refused"]
    assert (tmp_path / "policy.fp16.onnx").is_file()


def test_the_text_shows_layers_and_joints(report: QuantiseReport) -> None:
    text = cli.report_text(report)
    assert "fp8: refused, not written: no layer can be fp8" in text
    for line in (r"linear +5 → 32 +[0-9.]+ +float32", r"linear_2 +32 → 1 +[0-9.]+ +int8", r"slider +0\.\d+ .* N$"):
        assert re.search(line, text, re.MULTILINE), line
    assert "allowed here 0.4, by the contract 0.5; in the golden states 0." in text
    assert "no engine was built with TensorRT: not requested" in text


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(PhysaiError, match="--seed must lie in"):
        run(str(tmp_path), "--seed", "-1")
    with pytest.raises(PhysaiError, match="contains no exported policy"):
        run(str(tmp_path))
