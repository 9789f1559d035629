"""Elements of the observation that each of several networks reads."""

from dataclasses import replace

from physai.foreign.body.networks import NetworkStage, PolicyBody, joined_body, network_body
from physai.foreign.conversion.tracking.front import tracking_body
from physai.foreign.conversion.tracking.lookup import read_motion, split
from physai.foreign.conversion.tracking.motion import ReferenceMotion
from physai.foreign.description import NetworkInput, PolicyDescription
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.reading import PolicyReading
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.robots.loader import Robot


def policy_body(
    reading: PolicyReading, described: PolicyDescription, contract: PolicyContract, robot: Robot
) -> tuple[PolicyBody, ReferenceMotion | None]:
    """Read the networks of a policy and join them, and the motion that it follows, if it does.

    Args:
        reading: of its files; the network is that, or the last of several, next to which the others lie.
        described: the policy.
        contract: of the policy.
        robot: with its gains.

    Raises:
        ForeignPolicyError: a network cannot be read or admitted, or the networks do not fit together.
        ApartError: a child process failed.
    """
    own, file = reading.body(contract), reading.network
    if own is not None:
        return own, None
    if described.activation is not None or described.squash is not None:
        name = "activation" if described.activation is not None else "squash"
        raise ForeignPolicyError(f"`{name}` is for weights alone, {file.name} is a whole network; leave it out")
    if described.motion is not None:
        if described.networks is not None:
            raise ForeignPolicyError("a policy that follows a motion has one network, and `networks` states several")
        body = network_body(file, contract.observation_size)
        graph = tracking_body(body.graph, described, contract, robot)
        return replace(body, graph=graph), read_motion(split(body.graph, described)[0], described, robot)
    if described.networks is None:
        return network_body(file, contract.observation_size), None
    home = file.parent.resolve()
    stages: list[NetworkStage] = []
    for index, network in enumerate(described.networks):
        path = file.parent / network.file
        if not path.resolve().is_relative_to(home):
            raise ForeignPolicyError(f"networks[{index}] {network.file!r} is outside the folder of {file.name}")
        reads = tuple(_read(part, f"networks[{index}]", index, contract) for part in network.reads)
        stages.append(NetworkStage(file=path, reads=reads))
    if stages[-1].file.resolve() != file.resolve():
        raise ForeignPolicyError(f"the last of `networks` is {stages[-1].file.name}, expected {file.name}")
    return joined_body(stages, contract.observation_size), None


def _read(
    part: NetworkInput, where: str, index: int, contract: PolicyContract
) -> tuple[int | None, tuple[int, ...] | None]:
    if (part.network is None) == (part.terms is None):
        raise ForeignPolicyError(f"{where} reads either terms or a network, state one of them")
    if part.network is not None:
        if not part.network < index:
            raise ForeignPolicyError(f"{where} reads network {part.network}, expected one before {index}")
        return part.network, None
    return None, tuple(elements(part, where, contract))


def elements(part: NetworkInput, where: str, contract: PolicyContract) -> list[int]:
    """Return the elements of the observation, which is in the order of terms with the newest sample last.

    Raises:
        ForeignPolicyError: the observation lacks a term or a sample.
    """
    terms, spec = contract.observation.terms, contract.observation
    if spec.layout != "term" or spec.newest != "last":
        raise ForeignPolicyError("of several networks each states its own `layout` and `newest`, and the policy none")
    starts = [piece.start for piece in contract.observation_slices.values()]
    blocks: list[list[range]] = []
    for term in part.terms or ():
        if not term < len(terms):
            raise ForeignPolicyError(f"{where} reads term {term}, the observation has {len(terms)}")
        size, history = contract.term_width(terms[term]), terms[term].history
        count = part.samples or history
        if count > history:
            raise ForeignPolicyError(f"{where} reads {count} samples of {terms[term].name}, which has {history}")
        samples = [range(starts[term] + at * size, starts[term] + (at + 1) * size) for at in range(history)][-count:]
        blocks.append(samples[::-1] if part.newest == "first" else samples)
    if part.layout == "time":
        if len({len(samples) for samples in blocks}) > 1:
            raise ForeignPolicyError(f"{where} reads its terms by time, for which all have as many samples")
        return [one for samples in zip(*blocks, strict=True) for sample in samples for one in sample]
    return [one for samples in blocks for sample in samples for one in sample]
