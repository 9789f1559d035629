"""Quantises a policy to int8, FP8 or FP16.

A variant is written only if its commands keep within the contract's bound, in states that the policy visits in its twin
and in the golden states, if it is not inferior to the float graph in paired episodes, and if TensorRT, where installed,
builds an engine from it. The robot checks a variant against the same `golden.npz` as the float graph: every command
must lie within the contract's `safety.parity_tolerance` of the recorded one (`physai.sdk.policy.parity`), whereas the
float graph must agree to rounding.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime

from physai.sdk.base.errors import MissingExtraError
from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.onnx.graph import check_policy
from physai.sdk.onnx.tensorrt_build import FP8_FROM, BuiltEngine, build_engine, cross_targets
from physai.sdk.policy.golden import read_golden
from physai.sdk.policy.header import GOLDEN_FILE, MAX_POLICY_BYTES, PolicyHeader
from physai.sdk.policy.parity import SOURCE_KEY, command_errors, greatest_error
from physai.sdk.policy.run_identity import without_signature
from physai.sim.engines.protocol import Array
from physai.sim.policies.onnx import OnnxPolicy
from physai.train.quantize.choice import Choice, ComparePairs, FormatComparison, choose
from physai.train.quantize.formats import Quantiser, Variant, file_name
from physai.train.quantize.paired_evaluation import Pairs
from physai.train.quantize.states import QuantiseError, VisitedStates, require_own

PREFIX = "quantised."
"""Prefix of the provenance entries that a variant adds to those of its float graph."""

TARGETS = (86, 89, 120)
"""Compute capabilities to build engines for: Ampere as in Orin, Ada, Blackwell as in Thor.

TensorRT for RTX supports neither 87 (Orin) nor 110 (Thor) as a target; robots build their own engines."""


@dataclass(frozen=True)
class VariantReport:
    """Result for one variant."""

    variant: Variant
    choice: Choice
    golden_error: float | None = None
    """Greatest error in the golden states [joint unit]; None where there are none."""
    file: str | None = None
    """Path of the file; None if the variant was refused."""
    sha256: str | None = None
    size: int | None = None
    tensorrt: str | None = None
    """Version of TensorRT that built engines from it, and for which targets; None if none did."""


@dataclass(frozen=True)
class QuantiseReport:
    """Result of `quantise_policy`."""

    policy: str
    source_sha256: str
    states: int
    """Number of calibration states, and of comparison states."""
    states_sha256: str
    episodes: int
    seed: int
    variants: tuple[VariantReport, ...]
    unbuilt: str | None = None
    """Why no engine was built; None if TensorRT was used."""

    @property
    def refused(self) -> tuple[VariantReport, ...]:
        """Variants that were not written."""
        return tuple(report for report in self.variants if report.choice.refused)


@dataclass(frozen=True)
class Original:
    """A float graph and its golden states."""

    path: Path
    data: bytes
    golden: bytes | None


def read_original(path: Path) -> Original:
    """Reads an exported policy.

    Raises:
        QuantiseError: a file cannot be read.
    """
    golden = path.parent / GOLDEN_FILE
    return Original(path, _read(path), _read(golden) if golden.is_file() else None)


def quantise_policy(
    original: Original,
    states: VisitedStates,
    folder: Path,
    *,
    variants: Sequence[Variant],
    tensorrt: bool = True,
    compare: ComparePairs | None = None,
    progress: Callable[[float], None] | None = None,
) -> QuantiseReport:
    """Writes the variants of a policy that keep within its contract's bound; equal input gives equal bytes.

    Args:
        original: the float graph.
        states: states it visited, see `record_states`.
        folder: output folder; created if missing.
        variants: the precisions.
        tensorrt: build engines with TensorRT for RTX, if it is installed.
        compare: paired evaluation, see `PairedEvaluation.compare`; None to skip it.
        progress: called with the fraction of the work done.

    Raises:
        QuantiseError: the graph is not a float graph, the states are another policy's, or a file cannot be written.
        PolicyError: the graph is refused.
        GoldenError: the golden states are damaged, or another policy's.
        TensorRtError: TensorRT cannot build a variant; nothing is written then.
    """
    setup = _set_up(original, states, folder, tensorrt=tensorrt, compare=compare)
    reports: list[VariantReport] = []
    files: dict[str, bytes] = {}
    for variant in variants:
        report, data = _make(setup, variant)
        reports.append(report)
        if data is not None:
            files[file_name(variant)] = data
        if progress is not None:
            progress(len(reports) / len(variants))
    _write(folder, files)
    return QuantiseReport(
        policy=str(original.path),
        source_sha256=states.policy_sha256,
        states=states.count,
        states_sha256=states.sha256,
        episodes=states.episodes,
        seed=states.seed,
        variants=tuple(reports),
        unbuilt=setup.unbuilt,
    )


@dataclass(frozen=True)
class _Setup:
    """Inputs and tools that all variants share."""

    original: Original
    header: PolicyHeader
    """The float graph's header, without the signature, which is of its bytes."""
    states: VisitedStates
    folder: Path
    quantiser: Quantiser
    comparison: FormatComparison
    targets: tuple[int, ...]
    """Compute capabilities to build engines for; empty if TensorRT is not used."""
    unbuilt: str | None
    compare: ComparePairs | None


def _set_up(
    original: Original, states: VisitedStates, folder: Path, *, tensorrt: bool, compare: ComparePairs | None
) -> _Setup:
    source = str(original.path)
    policy = OnnxPolicy(original.data, source=source)
    if SOURCE_KEY in policy.header.provenance:
        raise QuantiseError(f"{source} is a quantised policy itself; name the float graph it was made from")
    require_own(states, original.data, source)
    targets, unbuilt = _targets() if tensorrt else ((), "not requested")
    return _Setup(
        original=original,
        header=replace(
            policy.header,
            provenance={**without_signature(policy.header.provenance), SOURCE_KEY: states.policy_sha256},
        ),
        states=states,
        folder=folder,
        quantiser=Quantiser(original.data, states.calibration, source=source),
        comparison=FormatComparison(policy, _comparison_states(original, policy.header, states)),
        targets=targets,
        unbuilt=unbuilt,
        compare=compare,
    )


def _comparison_states(original: Original, header: PolicyHeader, states: VisitedStates) -> dict[str, Array]:
    """The check states, and the golden states, in which the robot compares again."""
    if original.golden is None:
        return states.check
    golden = read_golden(original.golden, header, source=str(original.path.parent / GOLDEN_FILE))
    return {name: np.concatenate([values, golden.inputs[name]]) for name, values in states.check.items()}


def _make(setup: _Setup, variant: Variant) -> tuple[VariantReport, bytes | None]:
    """Makes a variant, with its provenance in its metadata; no bytes if no layer can be quantised."""
    quantiser, header = setup.quantiser, setup.header
    bound = header.contract.safety.parity_tolerance
    choice = choose(
        variant,
        quantiser.layers,
        lambda layers: quantiser.make(variant, layers, header),
        setup.comparison,
        bound,
        setup.compare,
    )
    if choice.refused:
        return VariantReport(variant, choice), None
    names = {layer.name for layer in choice.layers if layer.precision == variant}
    layers = [layer for layer in quantiser.layers if layer.name in names]
    own_header = replace(header, provenance={**header.provenance, **_provenance(variant, choice, setup.states)})
    data = quantiser.make(variant, layers, own_header)
    check_policy(data, source=file_name(variant))
    golden_error = _golden_error(setup.original, header, data, variant)
    built = _build(data, variant, setup.targets)
    report = VariantReport(
        variant=variant,
        choice=choice,
        golden_error=golden_error,
        file=str(setup.folder / file_name(variant)),
        sha256=sha256_hex(data),
        size=len(data),
        tensorrt=built and _built_text(built),
    )
    return report, data


def _provenance(variant: Variant, choice: Choice, states: VisitedStates) -> dict[str, str]:
    """Provenance entries that describe how a variant was made."""
    entries = {
        "format": variant,
        "layers": json.dumps({layer.name: layer.precision for layer in choice.layers}),
        "layer_errors": json.dumps({layer.name: float(f"{layer.error_alone:.6g}") for layer in choice.layers}),
        "joint_errors": json.dumps({joint.joint: float(f"{joint.max:.6g}") for joint in choice.joints}),
        "bound": f"{choice.bound:g}",
        "states": str(states.count),
        "states_sha256": states.sha256,
        "states_episodes": str(states.episodes),
        "states_seed": str(states.seed),
        "states_twin": states.twin_sha256,
        "pairs": "" if choice.pairs is None else _pairs_text(choice.pairs),
        "version.onnxruntime": onnxruntime.__version__,
        "version.onnx": version("onnx"),
    }
    return {SOURCE_KEY: states.policy_sha256, **{PREFIX + key: value for key, value in entries.items()}}


def _pairs_text(pairs: Pairs) -> str:
    return f"{pairs.pairs} pairs, {pairs.worse} worse, {pairs.better} better"


def _golden_error(original: Original, header: PolicyHeader, data: bytes, variant: Variant) -> float | None:
    """Greatest error in the golden states [joint unit]; raises QuantiseError if the robot would refuse the variant."""
    if original.golden is None:
        return None
    golden = read_golden(original.golden, header, source=str(original.path.parent / GOLDEN_FILE))
    actual = OnnxPolicy(data, source=file_name(variant)).evaluate(golden.inputs)
    error = greatest_error(command_errors(header.contract, golden.outputs, actual))
    bound = header.contract.safety.parity_tolerance
    if not error <= bound:
        raise QuantiseError(
            f"{file_name(variant)} differs by up to {error:.3g} from the golden outputs, the contract allows {bound:g} "
            f"[joint unit]; {GOLDEN_FILE} may belong to another policy: export the run again"
        )
    return error


def _targets() -> tuple[tuple[int, ...], str | None]:
    """Targets the installed TensorRT supports, or why there are none."""
    try:
        supported = cross_targets()
    except MissingExtraError as error:
        return (), str(error)
    return tuple(target for target in TARGETS if target in supported), None


def _build(data: bytes, variant: Variant, targets: tuple[int, ...]) -> BuiltEngine | None:
    capable = tuple(target for target in targets if variant != "fp8" or target >= FP8_FROM)
    return build_engine(data, source=file_name(variant), targets=capable) if capable else None


def _built_text(built: BuiltEngine) -> str:
    return f"{built.library} {built.version}, SM {', '.join(map(str, built.targets))}"


def _read(path: Path) -> bytes:
    with oserror_as(QuantiseError, f"{path}: cannot be read"):
        data = read_plain(path, limit=MAX_POLICY_BYTES)
    if not len(data) <= MAX_POLICY_BYTES:
        raise QuantiseError(f"{path}: larger than {MAX_POLICY_BYTES} bytes, the limit for a policy")
    return data


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    with oserror_as(QuantiseError, f"cannot write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_atomic(folder / name, data)
