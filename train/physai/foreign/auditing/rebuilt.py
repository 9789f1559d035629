"""The observation that a policy's terms give for a log, computed by the graph that the policy runs with."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from physai.foreign.auditing.audited_policy import AuditedPolicy
from physai.foreign.auditing.deployment_log import DeploymentLog, Floats
from physai.foreign.body import probe
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.interface import PREVIOUS_ACTION, STARTED, graph_interface
from physai.sdk.contract.io import parse_contract
from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX
from physai.train.onnx_export.spliced import observation_model


@lru_cache(maxsize=4)
def _terms(document: bytes) -> bytes:
    """A contract's observation terms as an ONNX file; several logs of one policy are often compared."""
    return bytes(observation_model(parse_contract(document, source="the policy")).SerializeToString())


def rebuilt(policy: AuditedPolicy, log: DeploymentLog, memory: Mapping[str, Sequence[float]] | None = None) -> Floats:
    """Compute the observation of each row, shape (rows, observation_size), from the sensors of the log.

    The last action is that of the log's row before, and 0 in the first one.

    Args:
        policy: of the log.
        log: of its program.
        memory: of the graph before the first row, by name, where it is not 0; what the graph does not compute of it
            stays.

    Raises:
        ForeignPolicyError: the log lacks a field that a term reads.
    """
    contract = policy.contract
    session = probe.session(policy.observing or _terms(canonical_json(contract)))
    interface = graph_interface(contract)
    fields = {name: log.get(name) for name in (*interface.sensors, *interface.commands)}
    missing = [name for name, value in fields.items() if value is None]
    if missing:
        raise ForeignPolicyError(
            f"the log lacks {', '.join(missing)}, which the observation is made of; say how it names them with `names`"
        )
    inputs: Any = {value.name: value.shape[1] for value in session.get_inputs()}
    state = {name: np.zeros((1, inputs[name]), np.float32) for name in inputs if str(name).startswith(STATE_PREFIX)}
    for name, values in (memory or {}).items():
        state[f"{STATE_PREFIX}{name}"][...] = values
    outputs = [str(value.name) for value in session.get_outputs()]
    action, limit = log.get("action"), contract.action.terms[0].output_limit
    rows: list[Any] = []
    for row in range(log.rows):
        feed = {
            name: np.asarray(value[row : row + 1], np.float32) for name, value in fields.items() if value is not None
        }
        found = dict(zip(outputs, probe.run(session, {**feed, **state}), strict=True))
        rows.append(found[outputs[0]][0])
        for name in state:
            after = found.get(name.replace(STATE_PREFIX, NEXT_PREFIX, 1))
            if after is not None:
                state[name] = after
        if STATE_PREFIX + STARTED in state:
            state[STATE_PREFIX + STARTED] = np.ones((1, 1), np.float32)
        if action is not None and STATE_PREFIX + PREVIOUS_ACTION in state:
            last = action[row : row + 1] if limit is None else np.clip(action[row : row + 1], -limit, limit)
            state[STATE_PREFIX + PREVIOUS_ACTION] = np.asarray(last, np.float32)
    return np.asarray(rows, np.float64)
