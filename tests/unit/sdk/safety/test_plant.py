"""What samples say of their own credibility: steps, dead channels, frozen values, silences; and when to believe again.

The contract: samples of at most 50 ms at 20 ms per period, so after 70 ms without one there is nothing to compare with.
"""

import math
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.guard_contracts import arm_document, unset
from tests.support.guard_driver import Array, contract_of

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import Guard, GuardResult, GuardState, Request
from physai.sdk.safety.limits import STILL_S, guard_limits
from physai.sdk.safety.plant import WINDOW_S, FrozenWatch

DT = 0.02
BOUND = 0.05
"""velocity_mismatch_limit of shoulder and elbow [rad]."""


CONTRACT = contract_of(unset(arm_document(watched=True), "frozen_samples", "sensor_ranges"))
"""Watches positions against velocities, and nothing else."""


class Plant:
    """Samples of one robot whose elbow (joint 2) moves."""

    def __init__(self) -> None:
        self.guard = Guard(CONTRACT)

    def believed(self, stamp_s: float, position: float, velocity: float) -> bool:
        joint_pos, joint_vel = np.zeros((2, 1, 4))
        joint_pos[0, 2], joint_vel[0, 2] = position, velocity
        return bool(self.guard.observe(stamp_s=stamp_s, joint_pos=joint_pos, joint_vel=joint_vel)[0])


class Swing:
    """A joint that swings, at up to 2 rad/s and 12 rad/s², and what its noisy sensors say: positions to 1 mrad,
    velocities to 0.05 rad/s, stamps up to 40 ms apart."""

    def __init__(self, frequency: float, phase: float, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.stamps: Array = np.cumsum(random.choice([0.5, 0.9, 1.0, 1.0, 1.1, 2.0], 200)) * DT
        angle = frequency * self.stamps + phase
        self.positions: Array = 2.0 / frequency * np.sin(angle) + random.uniform(-1e-3, 1e-3, 200)
        self.velocities: Array = 2.0 * np.cos(angle) + random.uniform(-0.05, 0.05, 200)

    def believed(self, plant: Plant) -> list[bool]:
        rows = zip(self.stamps.tolist(), self.positions.tolist(), self.velocities.tolist(), strict=True)
        return [plant.believed(*row) for row in rows]


swings = st.builds(Swing, st.floats(0.5, 6.0), st.floats(0.0, 2.0 * math.pi), st.integers(0, 2**32))
indices = st.integers(1, 190)


@settings(max_examples=60, deadline=None)
@given(swing=swings)
def test_consistent_motion_is_believed(swing: Swing) -> None:
    """Worst of all: 0.05 rad/s of noise for 0.25 s, 2 mrad of two positions, and some of the trapezoids: below 50."""
    assert all(swing.believed(Plant()))


@settings(max_examples=60, deadline=None)
@given(swing=swings, at=indices, size=st.floats(0.12, 1e6), sign=st.sampled_from([-1.0, 1.0]))
def test_a_spike_of_the_position_costs_one_sample(swing: Swing, at: int, size: float, sign: float) -> None:
    swing.positions[at] += sign * size
    assert [i for i, known in enumerate(swing.believed(Plant())) if not known] == [at]


@settings(max_examples=60, deadline=None)
@given(swing=swings, at=indices, size=st.floats(30.0, 1e6), sign=st.sampled_from([-1.0, 1.0]))
def test_a_spike_of_the_velocity_costs_one_sample(swing: Swing, at: int, size: float, sign: float) -> None:
    """30 rad/s for half of at least 10 ms are 0.15 rad."""
    swing.velocities[at] += sign * size
    assert [i for i, known in enumerate(swing.believed(Plant())) if not known] == [at]


@settings(max_examples=100, deadline=None)
@given(swing=swings, at=indices, size=st.floats(0.12, 3.0), sign=st.sampled_from([-1.0, 1.0]))
def test_a_slipped_encoder_is_never_believed_again(swing: Swing, at: int, size: float, sign: float) -> None:
    """However the joint moves after it: the error between two distant samples may pass through zero by chance."""
    swing.positions[at:] += sign * size
    plant = Plant()
    known = swing.believed(plant)
    assert all(known[:at])
    assert not any(known[at:])
    # Nor after a silence; but a robot that is activated anew is measured anew.
    assert not plant.believed(60.0, 0.0, 0.0)
    plant.guard.reset()
    assert plant.believed(60.02, 0.0, 0.0)


def test_a_slip_of_a_joint_that_brakes_is_not_forgotten() -> None:
    """+0.1 rad while moving at 1 rad/s; then 0.1 rad to rest. At 0.4 s, 0.5 · 1 rad/s · 0.4 s would explain the sum."""
    plant = Plant()
    assert all(plant.believed(k * DT, k * DT, 1.0) for k in range(20))
    position = 20 * DT + 0.1
    for k in range(20, 100):
        speed = max(0.0, 1.0 - 5.0 * (k - 20) * DT)
        position += speed * DT
        assert not plant.believed(k * DT, position, speed)


@settings(max_examples=60, deadline=None)
@given(speed=st.floats(0.25, 2.0), sign=st.sampled_from([-1.0, 1.0]))
def test_a_dead_velocity_is_found_after_the_bound(speed: float, sign: float) -> None:
    """Not before the joint has moved by the bound, and not after the leaky sum of its way has reached it."""
    plant, residual, k = Plant(), 0.0, 0
    assert plant.believed(0.0, 0.0, 0.0)
    for k in range(1, 100):
        residual = residual * (1.0 - DT / WINDOW_S) + speed * DT
        assume(abs(residual - BOUND) > 1e-9)
        assert plant.believed(k * DT, sign * speed * k * DT, 0.0) == (residual <= BOUND)
        if residual > BOUND:
            break
    assert speed * k * DT > BOUND
    assert k < 100
    # As long as it moves on.
    assert not any(plant.believed(j * DT, sign * speed * j * DT, 0.0) for j in range(k + 1, k + 100))


@pytest.mark.parametrize("silent", [4, 5, 30, 500])
@pytest.mark.parametrize("lost", [True, False])
def test_sensors_that_were_silent_are_believed_when_they_speak(silent: int, lost: bool) -> None:
    """The joint moved at 1 rad/s when they fell silent, and rests when they return; no number is a silence, too."""
    plant = Plant()
    assert all(plant.believed(k * DT, k * DT, 1.0) for k in range(20))
    if not lost:
        assert not any(plant.believed(k * DT, math.nan, math.nan) for k in range(20, 20 + silent))
    assert all(plant.believed(k * DT, 0.45, 0.0) for k in range(20 + silent, 60 + silent))


def test_only_a_silence_longer_than_a_sample_may_be_old_hides_a_step() -> None:
    """Three samples of nothing: the next one comes 80 ms after the last; two: after 60 ms, which can be compared."""
    for silent, hidden in ((2, False), (3, True)):
        plant = Plant()
        assert plant.believed(0.0, 0.0, 0.0)
        for k in range(1, 1 + silent):
            assert not plant.believed(k * DT, math.nan, 0.0)
        assert plant.believed((1 + silent) * DT, 0.3, 0.0) == hidden


def test_a_repeated_sample_is_not_judged_again() -> None:
    plant = Plant()
    assert plant.believed(0.0, 0.0, 0.0)
    for _ in range(10):
        assert not plant.believed(0.02, 0.5, 0.0)
    # Ten times the same sample is one spike.
    assert plant.believed(0.04, 0.0, 0.0)


@pytest.mark.parametrize(("kind", "believed"), [("continuous", True), ("revolute", False)])
def test_a_full_turn_is_a_step_of_a_joint_that_cannot_turn(kind: str, believed: bool) -> None:
    """3.14 to -3.14 rad is a step of 3.2 mrad for a joint that turns for ever."""
    document = unset(arm_document(watched=True), "frozen_samples", "sensor_ranges")
    document["robot"]["joints"][3] |= {"kind": kind}
    if kind == "revolute":
        for part in (document["robot"]["joints"][3], document["safety"]["joints"][3]):
            part |= {"position_lower": -4.0, "position_upper": 4.0}
    document["safety"]["joints"][3] |= {"velocity_mismatch_limit": 0.05}
    guard = Guard(contract_of(document))
    samples = [np.array([[0.0, 0.0, 0.1, angle]]) for angle in (3.14, -3.14, 3.14)]
    known = [guard.observe(stamp_s=k * DT, joint_pos=q, joint_vel=np.zeros((1, 4)))[0] for k, q in enumerate(samples)]
    assert known == [True, believed, True]


def test_without_a_velocity_sensor_a_step_is_what_no_joint_can_move(small_document: dict[str, Any]) -> None:
    """15 rad/s · 10 ms are 0.15 rad; another 0.05 rad are granted."""
    small_document["format_version"] = 2
    small_document["robot"]["sensors"].pop()
    small_document["observation"]["terms"].pop()
    small_document["safety"]["joints"][0]["velocity_mismatch_limit"] = 0.05
    guard = Guard(contract_of(small_document))
    rest = np.zeros((1, 1))
    positions = (0.0, 0.14, 0.33, 0.54, 0.54, 0.55)
    known = [
        bool(guard.observe(stamp_s=0.01 * k, joint_pos=np.array([[q]]), joint_vel=rest)[0])
        for k, q in enumerate(positions)
    ]
    # 0.19 is one step too many, but for two periods 0.21 is not; 0.21 is, in one.
    assert known == [True, True, True, False, True, True]


class Frozen:
    """Samples and commands of one robot whose contract calls five bit-equal samples frozen."""

    def __init__(self) -> None:
        unwatched = unset(arm_document(watched=True), "sensor_ranges", "velocity_mismatch_limit")
        self.guard, self.stamp_s = Guard(contract_of(unwatched)), 0.0
        self.sample = np.array([[0.2, 0.1, 0.0, 0.0]])

    def frozen(self, elbow: float, *, slide: float = 0.0, moved: bool = False, repeated: bool = False) -> bool:
        """Whether the sample after a command is frozen; `moved`: whether it differs from the one before."""
        guard = self.guard
        guard.resume_from(np.array([elbow, 0.2, slide]), guard.step[0])
        self.stamp_s += 0.0 if repeated else DT
        self.sample[0, 2] += 1e-9 if moved else 0.0
        guard.observe(stamp_s=self.stamp_s, joint_pos=self.sample, joint_vel=np.zeros((1, 4)))
        return bool(guard.sensors.frozen[0])


def test_equal_samples_of_a_robot_at_rest_are_not_frozen() -> None:
    """Encoders count in steps: a robot that rests repeats itself to the bit, however long, and may yet begin to move.

    From the command that moved by more than 10 mrad on, it has five samples to show it.
    """
    frozen = Frozen()
    assert not any(frozen.frozen(0.0) for _ in range(1000))
    assert not any(frozen.frozen(0.009) for _ in range(1000))
    assert [frozen.frozen(0.011) for _ in range(6)] == [False] * 4 + [True] * 2
    assert not frozen.frozen(0.02, moved=True)


def test_a_robot_that_answers_within_five_samples_is_not_frozen() -> None:
    frozen = Frozen()
    for k in range(50):
        assert not frozen.frozen(0.04 * k, moved=k % 5 == 4)


def test_commands_that_swing_back_do_not_hide_a_frozen_sensor() -> None:
    """At the sampling rate's half, every other command is where the first one was."""
    frozen = Frozen()
    found = [frozen.frozen(0.02 * (-1.0) ** k) for k in range(10)]
    assert found == [False] * 6 + [True] * 4


def test_repeated_stamps_do_not_count() -> None:
    frozen = Frozen()
    assert not any(frozen.frozen(0.04 * k, repeated=True) for k in range(50))
    assert not any(frozen.frozen(3.0, repeated=k % 2 == 1) for k in range(8))


def test_effort_is_a_command_to_move_too() -> None:
    """A tenth of the envelope's 40 N; five samples in a row under it."""
    frozen = Frozen()
    assert not any(frozen.frozen(0.0, slide=4.0) for _ in range(50))
    assert not any(frozen.frozen(0.0, slide=4.1 if k % 5 else 3.9) for k in range(50))
    assert not frozen.frozen(0.0)
    assert [frozen.frozen(0.0, slide=-4.1) for _ in range(6)] == [False] * 4 + [True] * 2


def test_a_world_is_frozen_or_not_on_its_own() -> None:
    """One that turns through half a circle, one whose numbers are none, one that creeps: together as alone."""
    random = np.random.default_rng(4)
    stamps = np.cumsum(random.choice([0.0, DT, 0.2], (80, 3), p=[0.2, 0.7, 0.1]), axis=0)
    positions = np.cumsum(
        random.choice([0.0, -0.0, 1e-3, 0.3, -3.2], (80, 3, 4), p=[0.5, 0.3, 0.1, 0.05, 0.05]), axis=0
    )
    positions[40:44, 1] = np.nan
    velocities = random.choice([0.0, -0.0, 0.05], (80, 3, 4))
    together, alone = Guard(CONTRACT, 3), [Guard(CONTRACT) for _ in range(3)]
    for number, (stamp, q, v) in enumerate(zip(stamps, positions, velocities, strict=True)):
        if number % 7 == 3:
            # An episode that begins in no world changes nothing.
            for guard in (together, *alone):
                guard.reset(np.zeros(guard.num_worlds, bool))
        known = together.observe(stamp_s=stamp, joint_pos=q, joint_vel=v).tolist()
        singles = [
            one.observe(stamp_s=stamp[i : i + 1], joint_pos=q[i : i + 1], joint_vel=v[i : i + 1])[0]
            for i, one in enumerate(alone)
        ]
        assert known == singles
        np.testing.assert_array_equal(
            together.sensors.good(), np.concatenate([one.sensors.good() for one in alone], axis=1)
        )


class Resting:
    """A robot that rests, and whose sensors need not speak in every period."""

    def __init__(self, contract: PolicyContract, angle: float) -> None:
        self.guard, self.dt, self.now_s, self.stamp_s = Guard(contract), contract.timing.control_dt, 0.0, 0.0
        self.angle = angle
        self.guard.activate()

    @classmethod
    def slow(cls, dt: float = DT, *, oldest: int = 100, angle: float = 0.0) -> Self:
        """One whose contract lets samples be that many periods old."""
        document = arm_document(watched=True)
        document["timing"] |= {"max_observation_age_s": oldest * dt, "control_dt": dt, "decimation": round(dt / 0.005)}
        return cls(contract_of(document), angle)

    def period(self, *, new: bool = True, **asked: Any) -> GuardResult:
        self.now_s += self.dt
        if new:
            self.stamp_s, self.angle = self.now_s, -self.angle
        self.guard.observe(
            stamp_s=self.stamp_s,
            joint_pos=np.array([[0.2, 0.0, 0.1, self.angle]]),
            joint_vel=np.zeros((1, 4)),
            sensors={"imu": np.zeros((1, 2))},
        )
        result = self.guard.decide(age_s=self.now_s - self.stamp_s, targets=None, request=Request(**asked))
        self.guard.commit()
        return result


@settings(max_examples=60, deadline=None)
@given(repeats=st.lists(st.integers(0, 9), min_size=1, max_size=40), dt=st.sampled_from([DT, 0.1, 0.5, 1.0]))
def test_a_standstill_is_believed_from_new_samples_alone(repeats: list[int], dt: float) -> None:
    """A sample may be older than a standstill has to last, and then proves one in no number of periods."""
    robot = Resting.slow(dt, oldest=10)
    robot.period()
    robot.period(stop=True)
    seen = 0
    for new in (k == times for times in repeats for k in range(times + 1)):
        result = robot.period(new=new)
        seen += new
        assert bool(result.stopped[0]) == (seen >= math.ceil(STILL_S / dt))
        assert (robot.guard.read_back == int(result.number[0])) == bool(result.stopped[0])


def test_the_place_of_a_robot_is_not_known_from_one_sample_however_often_it_is_read() -> None:
    robot = Resting.slow()
    assert not any(robot.period(new=k == 0).referenced[0] for k in range(100))
    assert robot.period().referenced[0]


def test_sensors_slower_than_the_loop_do_not_show_a_motion() -> None:
    """Neither the first sample nor the ones after it say more in the periods that have no newer one."""
    robot = Resting.slow()
    assert {int(robot.period(new=k % 8 == 0).state[0]) for k in range(80)} == {GuardState.STANDSTILL}


def test_stamps_that_alternate_show_no_standstill() -> None:
    robot = Resting.slow()
    robot.period(stop=True)
    for k in range(100):
        robot.now_s = 0.2 + 0.1 * (k % 2)
        assert not robot.period().stopped[0]


def test_a_joint_that_turns_for_ever_rests_at_the_end_of_its_scale() -> None:
    """3.14159 and -3.14159 rad are the same place, between which a sensor's noise may choose."""
    robot = Resting.slow(oldest=2, angle=3.14159)
    robot.period(stop=True)
    assert [bool(robot.period().stopped[0]) for _ in range(20)] == [False] * 12 + [True] * 8


def test_an_episode_that_begins_in_no_world_forgets_no_sample() -> None:
    limits = guard_limits(CONTRACT)
    watch, values = FrozenWatch(3, limits, 1), np.full((1, 2 * len(limits.speed)), 0.1)
    yes, far = np.ones(1, bool), np.zeros((1, len(limits.joints)))
    frozen: list[bool] = []
    for number in range(6):
        watch.reset(~yes)
        watch.read(yes, values, far + number)
        frozen.append(bool(watch.frozen[0]))
    # From the second equal sample on, three more under a command that has moved.
    assert frozen == [False, False, False, False, True, True]


def test_other_values_under_an_old_stamp_are_no_new_sample() -> None:
    """One world as many: a sample that was not finite stays invalid until there is a newer one."""
    plant = Plant()
    assert plant.believed(0.0, 0.0, 0.0)
    assert not plant.believed(DT, math.nan, 0.0)
    assert not plant.believed(DT, 0.0, 0.0)
    assert plant.believed(2.0 * DT, 0.0, 0.0)
