"""`python -m benchmarks drift`: planted changes that are found and named, and alarms over unchanged robots.

Twins are calibrated once, and each run is of another robot that the twin's posterior allows. Thresholds were chosen
with the seeds 100 to 199; the seeds here are others.
"""

import time
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.drift.robots import Plant, RealRobot, pushed, record
from benchmarks.drift.twins_made import drawn_robot, made_twin
from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.drift.equations.frame import Frame
from physai.drift.monitor.blocks import Block, blocks_of
from physai.drift.monitor.findings import DriftFinding, find
from physai.sim.robots import Robot
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin

ROBOTS = ("double_pendulum", "ur10e", "go2")
RUN_S, QUICK_S = 600.0, 100.0
UNCHANGED = {"double_pendulum": 34, "ur10e": 33, "go2": 33}
PUSHED, PUSHED_S = 12, 100.0
"""Recordings of a robot that holds a pose and is pushed: an hour of three robots."""
ALARM_SHARE = 0.05
FIRST_SEED, TRIES = 5000, 20
SPEED_MAX = 100.0
"""Speed that only a simulation that has diverged reaches [rad/s]."""
BUDGET_STEPS = 3_000_000
MASSES = {
    "double_pendulum": ("link1", "link2"),
    "ur10e": ("upper_arm_link", "forearm_link", "wrist_1_link", "wrist_2_link"),
    "go2": ("base",),
}
ZEROS = {
    "double_pendulum": ("joint1", "joint2"),
    "go2": ("FL_hip_joint", "FR_thigh_joint", "RL_thigh_joint", "RR_calf_joint"),
}
"""Joints whose zeros gravity shows; the arm's controller carries its weight."""


def rubbing(twin: Twin) -> tuple[str, ...]:
    """Return the joints that have friction according to a twin: doubling nothing is no change."""
    parameters = [p for p in twin.parameters if p.name.endswith(".friction") and p.value > 3.0 * p.std]
    return tuple(p.name.rsplit(".", 1)[0] for p in parameters) or ("-",)


def plants(
    rng: np.random.Generator, joints: dict[str, Sequence[str]], rough: dict[str, Sequence[str]]
) -> list[tuple[str, Plant]]:
    """Return 40 changes: two of each kind on each robot, six more zeros where they show, and two more gains."""
    found: list[tuple[str, Plant]] = []

    def one(choices: Sequence[str]) -> str:
        return str(choices[int(rng.integers(len(choices)))])

    for robot in ROBOTS:
        for _ in range(2):
            found += [
                (robot, Plant(kind="mass", owner=one(MASSES[robot]), factor=1.2)),
                (robot, Plant(kind="mass", owner=one(MASSES[robot]), factor=1.5)),
                (robot, Plant(kind="friction", owner=one(rough[robot]), factor=2.0)),
                (robot, Plant(kind="gain", owner=one(joints[robot]), factor=0.85)),
                (robot, Plant(kind="lag", owner="", shift=0.010)),
            ]
    zeros = ["double_pendulum"] * 4 + ["go2"] * 4
    found += [(r, Plant(kind="zero", owner=one(ZEROS[r]), shift=float(np.deg2rad(1.0)))) for r in zeros]
    found.append((ROBOTS[0], Plant(kind="torque gain", owner=one(joints[ROBOTS[0]]), factor=0.85)))
    found.append((ROBOTS[1], Plant(kind="gain", owner=one(joints[ROBOTS[1]]), factor=0.85)))
    return found


def _steady(twin: Twin, robot: Robot) -> RealRobot:
    return drawn_robot(twin, robot, FIRST_SEED)


def judge(twin: Twin, robot: Robot, *logs: RobotLog) -> tuple[DriftFinding, list[Block], Frame, float]:
    """Judge recordings; return also the processor time per block [s]."""
    frame = Frame(robot, twin, logs)
    begun = time.process_time()
    blocks = list(blocks_of(frame, logs))
    return find(frame.changes, blocks, ALARM_SHARE), blocks, frame, (time.process_time() - begun) / max(1, len(blocks))


def worked(twin: Twin, robot: Robot, seed: int, seconds: float, plant: Plant | None) -> RobotLog:
    """Return the work of a robot that the twin allows, with a change.

    Raises:
        WorkloadError: no robot of several is stable.
    """
    for number in range(TRIES):
        real: RealRobot = drawn_robot(twin, robot, seed + 1000 * number)
        log = record(real if plant is None else real.changed(plant), seconds, seed + 1000 * number)
        assert log.joint_vel is not None
        if float(np.abs(log.joint_vel).max()) < SPEED_MAX:
            return log
    raise WorkloadError(f"no robot of the posterior of {robot.name} is stable")


def is_named(finding: DriftFinding, frame: Frame, plant: Plant) -> bool:
    """Whether the change is among at most two that explain the drift; a motor's gain counts with either name."""
    names = [frame.changes[k] for k in finding.named]
    return len(names) <= 2 and any(
        one.owner == plant.owner and one.kind.split()[-1] == plant.kind.split()[-1] for one in names
    )


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Plants changes and counts alarms."""
    chosen = options.chosen(ROBOTS)
    seconds = options.seconds or (QUICK_S if options.quick else RUN_S)
    counts: dict[str, int] = dict.fromkeys(("planted", "found", "named", "unchanged", "false_alarms"), 0)
    costs: list[float] = []
    twins = {name: made_twin(name, budget_steps=BUDGET_STEPS) for name in chosen}
    robots = {name: twin.nominal() for name, twin in twins.items()}
    joints = {name: robot.spec.joint_names for name, robot in robots.items()}
    rng = np.random.default_rng(FIRST_SEED)
    nothing: dict[str, Sequence[str]] = dict.fromkeys(ROBOTS, ("-",))
    rough = {name: rubbing(twin) for name, twin in twins.items()}
    planted = [one for one in plants(rng, {**nothing, **joints}, {**nothing, **rough}) if one[0] in chosen]
    for number, (name, plant) in enumerate(planted[:: 8 if options.quick else 1]):
        log = worked(twins[name], robots[name], FIRST_SEED + number, seconds, plant)
        finding, blocks, frame, cost = judge(twins[name], robots[name], log)
        found = finding.outcome == "DRIFTED"
        named = found and is_named(finding, frame, plant)
        counts["planted"] += 1
        counts["found"] += found
        counts["named"] += named
        costs.append(cost)
        report(f"{name} {plant.name}: {_told(finding, blocks, frame)}{'' if named else '  <- not named'}")
    for name in chosen:
        for number in range(2 if options.quick else UNCHANGED[name]):
            log = worked(twins[name], robots[name], FIRST_SEED + 500 + number, seconds, None)
            finding, blocks, frame, cost = judge(twins[name], robots[name], log)
            counts["unchanged"] += 1
            counts["false_alarms"] += finding.outcome == "DRIFTED"
            costs.append(cost)
            if finding.outcome != "HOLDS":
                report(f"{name} unchanged: {_told(finding, blocks, frame)}")
    counts["stood_s"], counts["stood_alarms"] = 0, 0
    for name in chosen:
        logs = [
            pushed(_steady(twins[name], robots[name]), PUSHED_S, FIRST_SEED + 900 + k)
            for k in range(1 if options.quick else PUSHED)
        ]
        finding, blocks, frame, cost = judge(twins[name], robots[name], *logs)
        counts["stood_s"] += round(PUSHED_S * len(logs))
        counts["stood_alarms"] += finding.outcome != "NO EVIDENCE"
        report(f"{name} held and pushed: {_told(finding, blocks, frame)}")
    return [
        *(BenchmarkResult(name=name, unit="", runs=(float(count),)) for name, count in counts.items()),
        BenchmarkResult(name="block_ms", unit="ms", runs=tuple(1e3 * cost for cost in costs)),
    ]


def _told(finding: DriftFinding, blocks: Sequence[Block], frame: Frame) -> str:
    def parts() -> Iterator[str]:
        yield finding.outcome
        for k in finding.named:
            yield f"{frame.changes[k].name} {finding.changes[k].mean:+.2f}±{finding.changes[k].mean_std:.2f}"
        if finding.alarm is not None:
            yield f"after {blocks[finding.alarm].start_s:.0f} s"
        yield f"{sum(block.usable for block in blocks)} of {len(blocks)} blocks usable"

    return ", ".join(parts())
