"""The bytes that are signed are all the bytes that run: a policy whose weights lie elsewhere gets nowhere."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import external_data_helper

from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.sdk.base.formats.onnx_metadata import parse_onnx_metadata
from physai.sdk.bundle import manifest as bundle_module
from physai.sdk.bundle.archive import write_archive
from physai.sdk.bundle.manifest import BundleError, pack, read_bundle
from physai.sdk.onnx.graph import GraphError, check_policy
from physai.sdk.onnx.tensorrt_build import build_engine
from physai.sdk.policy.header import POLICY_FILE, PolicyHeader, parse_header
from physai.sdk.signing.verify import Rule, VerificationError
from physai.sim.policies.onnx import OnnxPolicy

Workshop = Any


def outside(policy: bytes, folder: Path) -> bytes:
    """The policy with one of its weights in a file of that folder."""
    model = onnx.load_from_string(policy)
    tensor = model.graph.initializer[0]
    (folder / "weights.bin").write_bytes(tensor.raw_data)
    external_data_helper.set_external_data(tensor, location="weights.bin", length=len(tensor.raw_data))
    tensor.ClearField("raw_data")
    return model.SerializeToString()


@pytest.fixture
def members(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What would be packed, in the folder in which the missing weights lie."""
    monkeypatch.chdir(tmp_path)
    made: dict[str, bytes] = workshop.members()
    return {**made, POLICY_FILE: outside(made[POLICY_FILE], tmp_path)}


def test_weights_elsewhere_are_not_packed(workshop: Workshop, members: dict[str, bytes], now: Any) -> None:
    with pytest.raises(GraphError, match=r"policy\.onnx: .*field 13 of TensorProto, external_data"):
        pack(members, bundle_module.ManifestFacts(version=5, created=now))


def test_weights_elsewhere_are_not_verified(
    workshop: Workshop, members: dict[str, bytes], now: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed, signed and validated by somebody whose own programs check nothing."""

    def unchecked(data: bytes, *, source: str) -> PolicyHeader:
        return parse_header(parse_onnx_metadata(data, source=source), source=source)

    with monkeypatch.context() as patched:
        patched.setattr(bundle_module, "check_policy", unchecked)
        data = workshop.validated(
            workshop.published(pack(members, bundle_module.ManifestFacts(version=5, created=now)))
        )
        assert workshop.verify(data).policy == POLICY_FILE
    with pytest.raises(VerificationError, match="external_data") as caught:
        workshop.verify(data)
    assert caught.value.rule is Rule.CONTENTS
    with pytest.raises(BundleError, match="external_data"):
        read_bundle(data)


@pytest.mark.parametrize("load", [OnnxEngine, OnnxPolicy, build_engine, check_policy])
def test_weights_elsewhere_are_not_loaded(load: Any, members: dict[str, bytes]) -> None:
    with pytest.raises(GraphError, match="external_data"):
        load(members[POLICY_FILE], source="policy.onnx")


def test_weights_edited_after_signing(workshop: Workshop, complete: bytes) -> None:
    weights = np.frombuffer(b"weights!", np.float32).tobytes()
    assert complete.count(weights) == 1
    edited = complete.replace(weights, b"weights?")
    with pytest.raises(VerificationError):
        workshop.verify(edited)
    bundle = read_bundle(complete)
    changed = {name: bundle.members[name].replace(weights, b"weights?") for name in bundle.members}
    with pytest.raises(VerificationError, match=r"policy\.onnx has SHA-256") as caught:
        workshop.verify(write_archive(changed))
    assert caught.value.rule is Rule.CONTENTS
