"""A crop averaged over squares is the same to the last bit in numpy, torch and ONNX Runtime, and TensorRT builds it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.support.plan_contracts import CAMERA

from physai.sdk.contract.plans import ImageCrop, ImageTerm
from physai.sdk.contract.robot import CameraSpec
from physai.sdk.onnx.operators import OPERATORS
from physai.train.models.image_terms import ImageFront
from physai.vision.pixels import pooled

POOLS = [1, 2, 3, 5, 7, 8, 10, 25, 48, 64]


def camera(width: int, height: int, encoding: str = "rgb8") -> CameraSpec:
    return CameraSpec.model_validate_json(json.dumps(CAMERA | {"width": width, "height": height, "encoding": encoding}))


def term(pool: int, crop: ImageCrop | None = None) -> ImageTerm:
    return ImageTerm(name="seen", camera="wrist", crop=crop, pool=pool, max_age_s=0.1, max_skew_s=0.1)


def exported(front: ImageFront, example: torch.Tensor) -> onnx.ModelProto:
    exporter: Any = torch.onnx
    program = exporter.export(
        front.eval(),
        (example,),
        dynamo=True,
        opset_version=18,
        dynamic_shapes=({0: torch.export.Dim("n")},),
        verbose=False,
    )
    return program.model_proto


def every_sum(pool: int) -> np.ndarray:
    """Squares whose sums are all of those next to a multiple of half their area, and random ones."""
    area = pool * pool
    rng = np.random.default_rng(pool)
    halves = [half * area // 2 + off for half in range(511) for off in (-1, 0, 1)]
    wanted = [total for total in halves if 0 <= total <= 255 * area]
    squares = np.zeros((len(wanted), area), np.uint8)
    for square, total in zip(squares, wanted, strict=True):
        square[:] = total // area
        square[: total % area] += 1
        rng.shuffle(square)
    return squares.reshape(len(wanted), pool, pool, 1)


@pytest.mark.parametrize("pool", POOLS)
def test_torch_rounds_every_mean_as_whole_numbers_do(pool: int) -> None:
    images = every_sum(pool)
    front = ImageFront(term(pool), camera(pool, pool, "mono8"))
    assert np.array_equal(front(torch.as_tensor(images)).numpy()[:, :, 0, 0], pooled(images, term(pool))[:, 0, 0])


@pytest.mark.parametrize("encoding", ["bgr8", "mono8"])
def test_the_exported_graph_agrees_begins_with_a_cast_and_has_plain_operators_only(encoding: str) -> None:
    spec, made = camera(96, 64, encoding), term(6, ImageCrop(x=7, y=3, width=72, height=60))
    front = ImageFront(made, spec)
    channels = 1 if encoding == "mono8" else 3
    images = np.random.default_rng(1).integers(0, 256, (5, 64, 96, channels), dtype=np.uint8)
    model = exported(front, torch.as_tensor(images[:3]))
    assert model.graph.node[0].op_type == "Cast"
    assert {node.op_type for node in model.graph.node} <= set(OPERATORS)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: images})
    assert np.array_equal(found, front(torch.as_tensor(images)).numpy())
    expected = pooled(images, made).transpose(0, 3, 1, 2)
    assert np.array_equal(found, expected[:, ::-1] if encoding == "bgr8" else expected)


@pytest.mark.parametrize("pool", [3, 64])
def test_onnx_runtime_rounds_every_mean_as_whole_numbers_do(pool: int) -> None:
    images = every_sum(pool)
    model = exported(ImageFront(term(pool), camera(pool, pool, "mono8")), torch.as_tensor(images[:3]))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: images})
    assert np.array_equal(found[:, :, 0, 0], pooled(images, term(pool))[:, 0, 0])


def test_tensorrt_parses_it_and_would_not_without_the_cast(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx")
    front = ImageFront(term(4), camera(64, 64))
    whole = exported(front, torch.zeros(3, 64, 64, 3, dtype=torch.uint8))
    other = onnx.helper.make_model(
        onnx.helper.make_graph(
            [
                onnx.helper.make_node("Transpose", ["i"], ["t"], perm=[0, 3, 1, 2]),
                onnx.helper.make_node("Cast", ["t"], ["o"], to=onnx.TensorProto.FLOAT),
            ],
            "transposed first",
            [onnx.helper.make_tensor_value_info("i", onnx.TensorProto.UINT8, ["n", 64, 64, 3])],
            [onnx.helper.make_tensor_value_info("o", onnx.TensorProto.FLOAT, ["n", 3, 64, 64])],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
    )
    assert [parsed(tmp_path, model) for model in (whole, other)] == [0, 3]


PARSE = """
import sys, tensorrt_rtx as trt
logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(0)
parser = trt.OnnxParser(network, logger)
sys.exit(0 if parser.parse(open(sys.argv[1], "rb").read()) else 3)
"""
"""In a process of its own: TensorRT keeps the first logger that it gets in a process."""


def parsed(folder: Path, model: onnx.ModelProto) -> int:
    """Exit code of TensorRT for RTX reading a graph: 0 if it does, 3 if it refuses."""
    path = folder / "graph.onnx"
    path.write_bytes(model.SerializeToString())
    return subprocess.run([sys.executable, "-c", PARSE, str(path)], capture_output=True, check=False).returncode
