"""Consistency checks between the parts of a contract.

Each check yields one line per problem, `path: message`, so that all problems are reported at once.
"""

from collections.abc import Iterator

from physai.sdk.base.errors import unknown_name
from physai.sdk.contract.plans import ImageCrop, ImageTerm, PlanSpec, PlanTiming
from physai.sdk.contract.robot import JOINT_SENSORS, JointSpec
from physai.sdk.contract.safety_envelope import JointEnvelope, SensorRange, StartEnvelope
from physai.sdk.contract.terms import ActionTerm, ContractTerms, ObservationTerm

MAX_OBSERVATION_SIZE = 100_000
"""Maximum number of elements of the observation vector (a 256 x 256 image has 65 536)."""

MAX_REUSE_S = 2.0
"""Maximum time for which a robot may repeat its last command [s]."""

MAX_AGE_PERIODS = 100
"""Maximum age of a sensor sample, in control periods."""

POSE_SIZE = 7
"""Elements of a pose: position, then orientation wxyz."""

POSITION_SIZE = 3
"""Elements of a position."""

MEMORY_KINDS = ("previous_action", "last_target", "clock")
"""Observation kinds that depend on the control periods before."""

CHAIN_KINDS = ("pose_error", "position_error")
"""Observation kinds that need forward kinematics."""


def contract_problems(contract: ContractTerms) -> Iterator[str]:
    """Yield every inconsistency between the parts of the contract, one line each."""
    yield from _name_problems(contract)
    valid = True
    for term in contract.observation.terms:
        for problem in _observation_problems(term, contract):
            valid = False
            yield f"observation.terms[{term.name}].{problem}"
    # The size is defined only if every term refers to existing fields.
    if valid and not contract.observation_size <= MAX_OBSERVATION_SIZE:
        yield f"observation: {contract.observation_size} elements, at most {MAX_OBSERVATION_SIZE} are allowed"
    for action in contract.action.terms:
        yield from (f"action.terms[{action.target_name}].{p}" for p in _action_problems(action, contract))
    yield from _plan_problems(contract)
    yield from _format_problems(contract)
    yield from _safety_problems(contract)
    yield from _timing_problems(contract)


def _name_problems(contract: ContractTerms) -> Iterator[str]:
    sensors = {s.name for s in contract.robot.sensors}
    for field in contract.command.fields:
        if field.name in sensors:
            yield f"command.fields[{field.name}].name: a sensor has this name too; inputs of the graph need their own"


def _observation_problems(term: ObservationTerm, contract: ContractTerms) -> Iterator[str]:
    if term.kind == "function" and (term.function is None or term.size is None):
        yield f"kind: a term of kind function needs function and size, got {term.function!r} and {term.size}"
    elif term.kind != "function" and not (term.function is None and term.size is None):
        yield f"kind: a term of kind {term.kind} has no function and no size, got {term.function!r} and {term.size}"
    yield from _content_problems(term)
    if term.kind in ("sensor", "command", "function", *CHAIN_KINDS) or (term.clock is not None and term.clock.gate):
        if term.source is None:
            yield f"source: a term of kind {term.kind} needs one"
        else:
            yield from _source_problems(term, term.source, contract)
    elif term.source is not None:
        yield f"source: a term of kind {term.kind} has none, got {term.source!r}"
    reads_target = term.kind == "last_target" and any(t.kind.startswith("joint_pos") for t in contract.action.terms)
    if term.kind in ("joint_pos_rel", "sin_cos", *CHAIN_KINDS) or reads_target:
        yield from _missing_sensor(term.kind, "joint_pos", contract)
    if term.kind == "projected_gravity":
        yield from _missing_sensor(term.kind, "imu_quat", contract)
    yield from _chain_problems(term, contract)
    yield from _joint_problems(term, contract)


def _content_problems(term: ObservationTerm) -> Iterator[str]:
    for kind, label, given in (("clock", "clock", term.clock), ("constant", "values", term.values)):
        if term.kind == kind and given is None:
            yield f"{label}: a term of kind {kind} needs it"
        elif term.kind != kind and given is not None:
            yield f"{label}: a term of kind {term.kind} has none"
    of_joints = term.kind == "sensor" and term.source in JOINT_SENSORS
    if term.elements is not None and (term.kind not in ("sensor", "command") or of_joints):
        yield f"elements: {term.source or term.kind} is no command and no sensor without joints; name its joints"


def _source_problems(term: ObservationTerm, source: str, contract: ContractTerms) -> Iterator[str]:
    either = "sensor or command"
    kind = {"sensor": "sensor", "position_error": either, "function": either}.get(term.kind, "command")
    sensors = contract.robot.sensors if "sensor" in kind else ()
    commands = contract.command.fields if "command" in kind else ()
    sizes = {field.name: field.size for field in (*sensors, *commands)}
    if source not in sizes:
        yield f"source: {unknown_name(kind, source, sizes)}"
    elif term.elements is not None and not max(term.elements) < sizes[source]:
        yield f"elements: {max(term.elements)} of {source!r}, which has 0 to {sizes[source] - 1}"
    elif term.kind == "pose_error" and sizes[source] != POSE_SIZE:
        yield f"source: command {source!r} has size {sizes[source]}, a pose has {POSE_SIZE} (position, quaternion wxyz)"
    elif term.kind == "position_error" and sizes[source] != POSITION_SIZE:
        yield f"source: {source!r} has size {sizes[source]}, a position has {POSITION_SIZE}"


def _missing_sensor(kind: str, sensor: str, contract: ContractTerms) -> Iterator[str]:
    names = [s.name for s in contract.robot.sensors]
    if sensor not in names:
        yield f"kind: {kind} needs the sensor {sensor!r}, robot {contract.robot.name} has {', '.join(names)}"


def _chain_problems(term: ObservationTerm, contract: ContractTerms) -> Iterator[str]:
    if term.kind in CHAIN_KINDS:
        names = [chain.name for chain in contract.robot.chains]
        if term.chain is None:
            yield f"chain: a {term.kind} needs one, robot {contract.robot.name} has {', '.join(names) or 'none'}"
        elif term.chain not in names:
            yield f"chain: {unknown_name('chain', term.chain, names)}"
    elif term.chain is not None:
        yield f"chain: a term of kind {term.kind} has none, got {term.chain!r}"


def _joint_problems(term: ObservationTerm, contract: ContractTerms) -> Iterator[str]:
    kinds = {joint.name: joint.kind for joint in contract.robot.joints}
    of_joints = term.kind in ("joint_pos_rel", "sin_cos") or (term.kind == "sensor" and term.source in JOINT_SENSORS)
    if term.joints is not None and not of_joints:
        yield f"joints: {term.source or term.kind} is not a vector of joints, got {list(term.joints)}"
        return
    for name in term.joints or kinds:
        if name not in kinds:
            yield f"joints: {unknown_name('joint', name, kinds)}"
        elif term.kind == "sin_cos" and kinds[name] == "prismatic":
            yield f"joints: {name} is prismatic [m], sin_cos needs an angle; name the joints that turn"


def _action_problems(term: ActionTerm, contract: ContractTerms) -> Iterator[str]:
    joints = {joint.name: joint for joint in contract.robot.joints}
    absolute = not term.kind.endswith("_incremental")
    if term.kind == "joint_pos_incremental" or (term.kind == "joint_pos" and _steps_are_limited(term, contract)):
        yield from _missing_sensor(term.kind, "joint_pos", contract)
    for name, lower, upper, offset in zip(term.joints, term.lower, term.upper, term.offset, strict=True):
        joint = joints.get(name)
        if joint is None:
            yield f"joints: {unknown_name('joint', name, joints)}"
            continue
        if joint.effort_limit == 0.0:
            yield f"joints: {name} has no actuator (effort_limit 0)"
        least, greatest = _command_range(term, joint)
        if least is not None and not least <= lower:
            yield f"lower[{name}]: {lower} is below the robot's {least}"
        if greatest is not None and not upper <= greatest:
            yield f"upper[{name}]: {upper} is above the robot's {greatest}"
        if absolute and not lower <= offset <= upper:
            yield f"offset[{name}]: {offset} lies outside [{lower}, {upper}]"


def _plan_problems(contract: ContractTerms) -> Iterator[str]:
    plan, timing = contract.action.plan, contract.timing.plan
    if plan is None or timing is None:
        if (plan is None) != (timing is None):
            yield "timing.plan: action.plan and timing.plan need each other; give both or none"
        spec = contract.observation
        for label, given in (("images", spec.images), ("instructions", spec.instructions), ("noise", spec.noise)):
            if given:
                yield f"observation.{label}: only a policy with action.plan reads it, apart from the control period"
        return
    kinds = [term.kind for term in contract.action.terms]
    if kinds != ["joint_pos"]:
        yield f"action.plan: a plan is one term of kind joint_pos, got {', '.join(kinds)}"
    elif len(plan.seam) != len(contract.action.terms[0].joints):
        yield f"action.plan.seam: {len(plan.seam)} values for {len(contract.action.terms[0].joints)} joints"
    for term in contract.observation.terms:
        if term.history > 1 or term.kind in MEMORY_KINDS:
            yield (
                f"observation.terms[{term.name}]: plans are computed at irregular times, so no term has a history or "
                f"counts periods; got {term.kind} with history {term.history}"
            )
    for image in contract.observation.images:
        yield from (f"observation.images[{image.name}].{problem}" for problem in _image_problems(image, contract))
    yield from (f"timing.plan.{problem}" for problem in _plan_timing_problems(plan, timing, contract))


def _image_problems(image: ImageTerm, contract: ContractTerms) -> Iterator[str]:
    cameras = {camera.name: camera for camera in contract.robot.cameras}
    camera = cameras.get(image.camera)
    if camera is None:
        yield f"camera: {unknown_name('camera', image.camera, cameras)}"
        return
    crop = image.crop or ImageCrop(x=0, y=0, width=camera.width, height=camera.height)
    if not (crop.x + crop.width <= camera.width and crop.y + crop.height <= camera.height):
        yield (
            f"crop: columns to {crop.x + crop.width} and rows to {crop.y + crop.height} of an image with "
            f"{camera.width} and {camera.height}"
        )
    if crop.width % image.pool or crop.height % image.pool:
        yield f"pool: {image.pool} does not divide both {crop.width} columns and {crop.height} rows"
    if not image.max_age_s * camera.rate_hz >= 1.0:
        yield f"max_age_s: {image.max_age_s} s is over before the next of {camera.rate_hz} images per second"


def _plan_timing_problems(plan: PlanSpec, timing: PlanTiming, contract: ContractTerms) -> Iterator[str]:
    if not plan.step_s >= contract.timing.control_dt:
        yield f"period_s: steps of {plan.step_s} s are shorter than control_dt {contract.timing.control_dt} s"
    if not timing.max_age_s <= plan.length_s:
        yield f"max_age_s: {timing.max_age_s} s is more than the {plan.length_s:.6g} s from the first to the last step"
    seen = max((image.max_age_s for image in contract.observation.images), default=0.0)
    needed = seen + timing.deadline_s + timing.period_s
    if not needed < timing.max_age_s:
        yield (
            f"max_age_s: {timing.max_age_s} s; an image of {seen} s, deadline_s {timing.deadline_s} and period_s "
            f"{timing.period_s} add up to {needed:.6g} s, for which a plan has to last"
        )
    if plan.committed and not plan.committed * plan.step_s >= timing.deadline_s:
        yield (
            f"deadline_s: {timing.deadline_s} s is more than the {plan.committed} committed steps of {plan.step_s} s "
            "last; the network must know what is sent until its answer arrives"
        )


def _steps_are_limited(term: ActionTerm, contract: ContractTerms) -> bool:
    """Return whether commands start at the measured position because their steps are limited; see `position_limits`."""
    return contract.format_version >= 2 and any(
        envelope.joint in term.joints and (envelope.velocity_limit or envelope.acceleration_limit)
        for envelope in contract.safety.joints
    )


def _command_range(term: ActionTerm, joint: JointSpec) -> tuple[float | None, float | None]:
    if term.kind.startswith("joint_pos"):
        return joint.position_lower, joint.position_upper
    return -joint.effort_limit, joint.effort_limit


def _format_problems(contract: ContractTerms) -> Iterator[str]:
    functions = [term.name for term in contract.observation.terms if term.kind == "function"]
    if contract.format_version == 1 and functions:
        yield f"format_version: 1 has no terms of kind function ({functions[0]}), which came with format 2"
    for path in list(contract.fields_since_3())[:3] if contract.format_version < 3 else ():
        yield f"format_version: {contract.format_version} has no such {path}, which came with format 3"
    if contract.observation.layout == "time" and len({term.history for term in contract.observation.terms}) > 1:
        yield "observation.layout: in the order of time, every term needs the same history"
    newer = list(contract.safety.fields_since_2()) if contract.format_version == 1 else []
    if newer:
        more = f" and {len(newer) - 3} more" if len(newer) > 3 else ""
        yield (
            f"format_version: 1 has no {', '.join(f'safety.{path}' for path in newer[:3])}{more}, which came with "
            "format 2; say format_version 2, or leave them out"
        )


def _safety_problems(contract: ContractTerms) -> Iterator[str]:
    names = [envelope.joint for envelope in contract.safety.joints]
    expected = list(contract.robot.joint_names)
    if names != expected:
        yield f"safety.joints: {names} differ from the robot's joints {expected}"
        return
    for envelope, joint in zip(contract.safety.joints, contract.robot.joints, strict=True):
        yield from (f"safety.joints[{joint.name}].{p}" for p in _envelope_problems(envelope, joint))
        yield from (f"safety.joints[{joint.name}].{p}" for p in _watch_problems(envelope, contract))
    if contract.safety.frozen_samples is not None:
        yield from (f"safety.{p}" for p in _unmeasured("frozen_samples", "joint_pos", contract))
    if contract.safety.start is not None:
        yield from (f"safety.start.{p}" for p in _start_problems(contract.safety.start, contract))
    for bounds in contract.safety.sensor_ranges or ():
        yield from (f"safety.sensor_ranges[{bounds.name}].{p}" for p in _range_problems(bounds, contract))


def _start_problems(start: StartEnvelope, contract: ContractTerms) -> Iterator[str]:
    joints = {joint.name: joint for joint in contract.robot.joints}
    if start.joints:
        yield from _unmeasured("joints", "joint_pos", contract)
    if start.tilt is not None:
        yield from _unmeasured("tilt", "imu_quat", contract)
    for one in start.joints:
        joint = joints.get(one.joint)
        if joint is None:
            yield f"joints[{one.joint}]: {unknown_name('joint', one.joint, joints)}"
        elif (joint.position_upper is not None and not one.lower <= joint.position_upper) or (
            joint.position_lower is not None and not joint.position_lower <= one.upper
        ):
            # The default pose may lie outside: a policy that follows a motion starts in the motion's first frame.
            yield (
                f"joints[{one.joint}]: [{one.lower}, {one.upper}] lies outside the robot's range "
                f"[{joint.position_lower}, {joint.position_upper}], so that it could never start"
            )


def _envelope_problems(envelope: JointEnvelope, joint: JointSpec) -> Iterator[str]:
    for label in ("position_lower", "position_upper", "velocity_limit", "effort_limit"):
        sign = -1.0 if label == "position_lower" else 1.0
        allowed: float | None = getattr(envelope, label)
        limit: float | None = getattr(joint, label)
        if limit is not None and (allowed is None or not sign * allowed <= sign * limit):
            yield f"{label}: {allowed} is wider than the robot's {limit}"
    lower, upper = envelope.position_lower, envelope.position_upper
    if lower is not None and upper is not None and not lower <= joint.default_pos <= upper:
        yield f"position_lower: the robot's default_pos {joint.default_pos} lies outside [{lower}, {upper}]"


def _watch_problems(envelope: JointEnvelope, contract: ContractTerms) -> Iterator[str]:
    """Check that the joint is commanded and measured as its limits require; a limit must be enforceable."""
    positions = {j for t in contract.action.terms if t.target_name == "joint_pos_target" for j in t.joints}
    for label in ("acceleration_limit", "following_error_limit"):
        if getattr(envelope, label) is not None and envelope.joint not in positions:
            yield (
                f"{label}: {getattr(envelope, label)} limits a commanded position, but no action term commands the "
                f"position of {envelope.joint}; leave it out"
            )
    if envelope.following_error_limit is not None:
        yield from _unmeasured("following_error_limit", "joint_pos", contract)
    if envelope.velocity_mismatch_limit is not None:
        yield from _unmeasured("velocity_mismatch_limit", "joint_pos", contract)
        if envelope.velocity_limit is None:
            remedy = " or a velocity_limit of the joint"
            yield from _unmeasured("velocity_mismatch_limit", "joint_vel", contract, remedy)


def _unmeasured(label: str, sensor: str, contract: ContractTerms, otherwise: str = "") -> Iterator[str]:
    names = [s.name for s in contract.robot.sensors]
    if sensor not in names:
        yield f"{label}: needs the sensor {sensor!r}{otherwise}, robot {contract.robot.name} has {', '.join(names)}"


def _range_problems(bounds: SensorRange, contract: ContractTerms) -> Iterator[str]:
    sizes = {sensor.name: sensor.size for sensor in contract.robot.sensors}
    if bounds.name not in sizes:
        yield f"name: {unknown_name('sensor', bounds.name, sizes)}"
    elif len(bounds.lower) != sizes[bounds.name]:
        yield f"lower: {len(bounds.lower)} values for the {sizes[bounds.name]} of sensor {bounds.name}"
    elif bounds.name in ("joint_pos", "joint_vel"):
        for envelope, low, high in zip(contract.safety.joints, bounds.lower, bounds.upper, strict=True):
            yield from _narrow_range(bounds.name, envelope, low, high)


def _narrow_range(sensor: str, envelope: JointEnvelope, low: float | None, high: float | None) -> Iterator[str]:
    # Every state inside the envelope must be plausible, or the guard would reject valid samples.
    least, greatest = envelope.position_lower, envelope.position_upper
    if sensor == "joint_vel":
        greatest = envelope.velocity_limit
        least = None if greatest is None else -greatest
    if low is not None and least is not None and not low <= least:
        yield f"lower[{envelope.joint}]: {low} is above {least}, which the envelope allows the joint"
    if high is not None and greatest is not None and not high >= greatest:
        yield f"upper[{envelope.joint}]: {high} is below {greatest}, which the envelope allows the joint"


def _timing_problems(contract: ContractTerms) -> Iterator[str]:
    timing, reused = contract.timing, contract.safety.max_reused_commands
    if not reused * timing.control_dt <= MAX_REUSE_S:
        yield (
            f"safety.max_reused_commands: {reused} periods of {timing.control_dt} s repeat a stale command for "
            f"{reused * timing.control_dt:.6g} s, at most {MAX_REUSE_S} s are allowed"
        )
    if not timing.max_observation_age_s <= MAX_AGE_PERIODS * timing.control_dt:
        yield (
            f"timing.max_observation_age_s: {timing.max_observation_age_s} s is more than {MAX_AGE_PERIODS} control "
            f"periods of {timing.control_dt} s"
        )
    if not timing.max_observation_age_s >= timing.deadline_s:
        yield (
            f"timing.max_observation_age_s: {timing.max_observation_age_s} s is below deadline_s "
            f"{timing.deadline_s} s: a command that meets its deadline would rest on a sample that is too old"
        )
