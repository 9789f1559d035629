"""A policy that knows the episodes of a seed by heart: it recognises their first readings, and else does nothing."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from physai.gates.execution.subject import ValidationSubject
from physai.sdk.policy.header import PolicyHeader
from physai.sim.envs.environment import Environment
from physai.sim.tasks.task import Task
from physai.twin.model.conditions import Condition
from physai.twin.rollouts.batch import Batch
from physai.twin.rollouts.rollout import RolloutTick, play_batch

Table = npt.NDArray[np.float32]


class _EnoughError(Exception):
    """The first readings were seen."""


def first_readings(subject: ValidationSubject, condition: Condition, seeds: tuple[int, ...]) -> Table:
    """Position and speed that a policy sees in the first control period of episodes, shape (episodes, 2)."""
    found: list[Table] = []

    def observe(_: Environment, tick: RolloutTick) -> None:
        sensors = tick.before.sensors
        found.append(np.concatenate([np.asarray(sensors[name], np.float32) for name in ("joint_pos", "joint_vel")], 1))
        raise _EnoughError

    try:
        batch = Batch(condition=condition, seeds=seeds)
        play_batch(subject.policy(), subject.task, subject.twin, batch, observer=observe)
    except _EnoughError:
        pass
    return found[0]


def memoriser(task: Task, table: Table, *, task_file: str) -> bytes:
    """A spring that works in the episodes of a table, and an idle motor in all others."""
    header = PolicyHeader(task.contract, {"known": 2}, {"task": task_file})
    node = helper.make_node
    nodes = [
        node("Concat", ["joint_pos", "joint_vel"], ["seen"], axis=1),
        # |seen - row| for each row of the table; its maximum over the two, and the minimum over the rows.
        node("Unsqueeze", ["seen", "one"], ["column"]),
        node("Sub", ["column", "table"], ["apart"]),
        node("Abs", ["apart"], ["distance"]),
        node("ReduceMax", ["distance"], ["furthest"], axes=[2], keepdims=0),
        node("ReduceMin", ["furthest"], ["nearest"], axes=[1], keepdims=1),
        node("Sub", ["nearest", "tolerance"], ["beyond"]),
        node("Sign", ["beyond"], ["strange"]),
        node("Neg", ["strange"], ["recognised"]),
        node("Clip", ["recognised", "nothing", "full"], ["now"]),
        # state: whether it is known, and whether the first period is over.
        node("Split", ["state.known", "halves"], ["kept", "begun"], axis=1),
        node("Sub", ["full", "begun"], ["first"]),
        node("Mul", ["now", "first"], ["fresh"]),
        node("Add", ["kept", "fresh"], ["known"]),
        node("Mul", ["begun", "nothing"], ["blank"]),
        node("Add", ["blank", "full"], ["over"]),
        node("Concat", ["known", "over"], ["next.known"], axis=1),
        node("Gemm", ["seen", "weight"], ["force"], transB=1),
        node("Mul", ["force", "known"], ["used"]),
        node("Clip", ["used", "lower", "upper"], ["joint_effort_target"]),
    ]
    values: dict[str, Any] = {
        "table": table[None],
        "weight": [[-12.0, -7.0]],
        "lower": -20.0,
        "upper": 20.0,
        "nothing": 0.0,
        "full": 1.0,
        "tolerance": 1e-6,
    }
    constants = [onnx.numpy_helper.from_array(np.array(value, np.float32), name) for name, value in values.items()]
    integers = {"one": [1], "halves": [1, 1]}
    constants += [onnx.numpy_helper.from_array(np.array(value, np.int64), name) for name, value in integers.items()]

    def infos(sizes: dict[str, int]) -> list[Any]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in sizes.items()]

    graph = helper.make_graph(nodes, "policy", infos(header.inputs), infos(header.outputs), constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, header.metadata())
    return model.SerializeToString()
