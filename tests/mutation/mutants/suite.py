"""All mutants, each with the gate that should block it first and the cause it should name."""

from tests.mutation.mutants import edits, springs
from tests.mutation.mutants.bench import task
from tests.mutation.mutants.pendulum import DELAY, Wrong, literal_urdf, of_a_light_world, rods
from tests.mutation.mutants.trials import (
    CART_FORCE,
    EFFORT,
    Mutant,
    by_heart,
    changed,
    cut_golden,
    edited,
    fitted_again,
    in_twin,
    jittery,
    lagging,
    noisy,
    of_pusher,
    of_settle,
    other_model,
    other_policy,
    other_robots_twin,
    plain,
    unfitted,
    unjudged,
    unknown_friction,
    with_contract,
    with_fingerprint,
    with_golden,
    with_sibling,
    with_ticks,
    worse_than_before,
)

from physai.sdk.evidence.verdict import Cause, VerdictOutcome

SWAPPED = (1, 0, 2, 3, 4, 5)
"""The arm's first two joints."""
XYZW = (0, 1, 2, 6, 3, 4, 5)
"""A pose whose quaternion, wxyz, is read as xyzw."""

CONTRACTS = tuple(
    Mutant(name, make, "contract", Cause.CONTRACT, quick=True)
    for name, make in {
        "fingerprint changed": changed(with_fingerprint),
        "speed limit changed": changed(with_contract('"velocity_limit":5}', '"velocity_limit":4}')),
        "default pose changed": changed(with_contract('"default_pos":0,', '"default_pos":0.1,')),
        "deadline changed": changed(with_contract('"deadline_s":0.01', '"deadline_s":0.02')),
        "action scale doubled in the contract": changed(with_contract('"scale":[20]', '"scale":[40]')),
        "action scale halved in the contract": changed(with_contract('"scale":[20]', '"scale":[10]')),
        "policy of another robot": changed(other_policy),
        "twin of another robot": changed(other_robots_twin),
        "twin of an older model": changed(other_model),
        "twin of a robot that weighs 10 % less": of_a_light_world,
        "golden answers cut off": changed(cut_golden),
    }.items()
)

FILES = (
    *(
        Mutant(name, make, "parity", Cause.NUMERICS, quick=quick)
        for name, make, quick in (
            (
                "golden answers of another policy",
                changed(with_golden(edits.golden_of(springs.spring(task("pusher"), damping=9.0), b""))),
                True,
            ),
            ("sign flipped after export", edited("pusher", edits.negated(EFFORT), told=False), False),
            (
                "command doubled after export",
                edited("pusher", edits.multiplied(EFFORT, 2.0, -20.0, 20.0), told=False),
                True,
            ),
            (
                "command halved after export",
                edited("cartpole", edits.multiplied(EFFORT, 0.5, -CART_FORCE, CART_FORCE), told=False),
                False,
            ),
            ("one step late after export", edited("cartpole", edits.late(1, joint_vel=2), told=False), False),
            ("joints swapped after export", edited("reach", edits.permuted("joint_pos", SWAPPED), told=False), False),
            ("weights noised after export", edited("cartpole", edits.noisy(0.01), told=False), False),
            ("no number for rare inputs", edited("pusher", edits.poisoned(EFFORT, "joint_vel", 5.5)), True),
            ("no number beyond 14 rad/s", edited("cartpole", edits.poisoned(EFFORT, "joint_vel", 14.0)), False),
            (
                "quantised to two bits beside a sound float graph",
                changed(with_sibling(edits.quantised(2)), edited("cartpole", edits.noisy(0.0))),
                False,
            ),
        )
    ),
    Mutant("golden answers missing", changed(with_golden(None)), "parity", None, VerdictOutcome.INCONCLUSIVE),
    Mutant("deadline missed on the target", changed(with_ticks((0.0005, 0.05) * 5000)), "latency", Cause.TIMING),
    Mutant(
        "four misses in a row on the target",
        changed(with_ticks((0.0005,) * 9996 + (0.05,) * 4)),
        "latency",
        Cause.TIMING,
        quick=True,
    ),
    Mutant(
        "ticks of another policy",
        changed(with_ticks((0.0005,) * 10_000, of="0" * 64)),
        "latency",
        None,
        VerdictOutcome.INCONCLUSIVE,
    ),
)

BEHAVIOUR = (
    *(
        Mutant(name, make, "success", Cause.POLICY)
        for name, make in {
            "joints swapped": edited("cartpole", edits.permuted("joint_pos", (1, 0))),
            "speeds swapped": edited("cartpole", edits.permuted("joint_vel", (1, 0))),
            "sign of the cart's force flipped": edited("cartpole", edits.negated(EFFORT)),
            "action scale × 0.1": edited("cartpole", edits.multiplied(EFFORT, 0.1, -CART_FORCE, CART_FORCE)),
            "three steps late": edited("cartpole", edits.late(3, joint_pos=2, joint_vel=2)),
            "degrees for radians": edited("cartpole", edits.scaled("joint_pos", 57.2958)),
            "speeds in degrees": edited("cartpole", edits.scaled("joint_vel", 57.2958)),
            "normaliser missing": edited("cartpole", edits.without_normaliser),
            "weights noised": edited("cartpole", edits.noisy(1.5)),
            "weights of two bits": edited("cartpole", edits.quantised(2)),
            "zero off by 0.3 rad": edited("cartpole", edits.shifted("joint_pos", (0.0, 0.3))),
            "runs away": of_pusher(stiffness=0.0, damping=-200.0, push=-20.0),
            "arm: pose in another quaternion order": edited("reach", edits.permuted("ee_pose_target", XYZW)),
            "arm: default pose off": edited("reach", edits.shifted("joint_pos", (0.0, 0.2, -0.2, 0.0, 0.1, 0.0))),
            "arm: two joints swapped": edited("reach", edits.permuted("joint_pos", SWAPPED)),
            "arm: joint sign flipped": edited("reach", edits.scaled("joint_pos", (1.0, -1.0, 1.0, 1.0, 1.0, 1.0))),
        }.items()
    ),
    Mutant("sign flipped", edited("pusher", edits.negated(EFFORT)), "success", Cause.POLICY, quick=True),
    Mutant("1,000 public episodes learned by heart", by_heart(1000), "success", Cause.POLICY),
    Mutant("history reversed", of_pusher(history=True), "success", Cause.POLICY, quick=True),
    Mutant(
        "a little worse than the baseline",
        changed(worse_than_before, of_pusher(stiffness=7.5, damping=7.0)),
        "non-inferiority",
        Cause.POLICY,
    ),
    Mutant("too fast", of_settle(stiffness=40.0, damping=1.0), "safety", Cause.POLICY),
    Mutant(
        "saturating output", edited("pusher", edits.multiplied(EFFORT, 1000.0, -20.0, 20.0)), "safety", Cause.POLICY
    ),
    Mutant(
        "lag that may double ignored",
        changed(lagging(0.05, 0.055), of_pusher(stiffness=150.0, damping=40.0)),
        "robustness",
        Cause.TIMING,
    ),
    Mutant(
        "lag ignored", changed(lagging(0.1, 0.1), of_pusher(stiffness=400.0, damping=60.0)), "success", Cause.TIMING
    ),
    Mutant("lag ignored by the cartpole", changed(lagging(0.12, 0.12), plain("cartpole")), "success", Cause.TIMING),
    Mutant("noise ignored", changed(noisy(0.3, 1.0), of_pusher(stiffness=60.0, damping=20.0)), "success", Cause.POLICY),
    Mutant("jitter ignored", changed(jittery), "success", Cause.TIMING),
    Mutant("friction unknown", changed(unknown_friction), "falsification", Cause.POLICY),
)

LONGER = ('<body name="link2" pos="0 0 -0.2">', '<body name="link2" pos="0 0 -0.3">')

TWINS = tuple(
    Mutant(name, make, "twin", Cause.TWIN, VerdictOutcome.INCONCLUSIVE, quick=quick)
    for name, make, quick in (
        ("twin fitted to nothing", changed(unfitted), True),
        ("twin judged on nothing", changed(unjudged), False),
        ("twin judged on what it was fitted to", changed(fitted_again), False),
        ("mass of link 2 +20 %", in_twin(Wrong(factors={"link2.mass": 1.2})), True),
        ("no armature", in_twin(Wrong(factors={"joint1.armature": 0.0, "joint2.armature": 0.0})), False),
        ("friction × 2", in_twin(Wrong(factors={"joint1.friction": 2.0, "joint2.friction": 2.0})), False),
        ("friction × 0", in_twin(Wrong(factors={"joint1.friction": 0.0, "joint2.friction": 0.0})), False),
        ("link 1 of 0.3 m for 0.2 m", in_twin(Wrong(file=LONGER)), False),
        ("uniform rods without friction", in_twin(Wrong(values=rods())), False),
        ("URDF read literally", in_twin(Wrong(values=literal_urdf())), False),
        ("lag of the motors ignored", in_twin(Wrong(measured_effort=False, values={DELAY: 0.0})), False),
    )
)

MUTANTS = (*CONTRACTS, *FILES, *BEHAVIOUR, *TWINS)
