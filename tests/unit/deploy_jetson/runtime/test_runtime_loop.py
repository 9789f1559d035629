"""What the loop does between two ticks, in virtual time: requests, latching, lost robots, standstills, its end."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.fault_injection.injection import LoopUnderTest, make_rig
from tests.harness.fault_injection.world import Fault, World

from physai.deploy_jetson.runtime.commands.queue import Command, RequestTicket
from physai.deploy_jetson.runtime.loop.loop import LoopEnd
from physai.deploy_jetson.ticks.reasons import RuntimeFault, describe
from physai.deploy_jetson.ticks.tick_ring import TickRing
from physai.deploy_jetson.update.slots.health import read_counters
from physai.sdk.policy.header import POLICY_FILE
from physai.sdk.safety import GuardResult, GuardState, Reason
from physai.sdk.transport.protocol import Array

CARTPOLE = Path(__file__).parents[3] / "data" / "policies" / "cartpole-00" / POLICY_FILE
REACH = CARTPOLE.parents[1] / "reach" / POLICY_FILE
RATE_HZ = 50
"""Of the cartpole's contract: deadline 10 ms, samples at most 60 ms old, two commands may be repeated."""

SECOND = 1_000_000_000


class Rehearsed(World):
    """A world in which something is done before every period, and no time passes meanwhile."""

    before: Callable[[], None]

    def wait(self, due_ns: int) -> int:
        now_ns, fault, self.fault = self._now_ns, self.fault, None
        self.before()
        self._now_ns, self.fault = now_ns, fault
        return super().wait(due_ns)


Script = dict[int, Callable[[LoopUnderTest], object]]


class Scripted(World):
    """A world in which something happens at the beginning of given periods."""

    happen: Callable[[int], None]

    def wait(self, due_ns: int) -> int:
        super().wait(due_ns)
        self.happen(self.findings.periods)
        return self.now() - 1000

    def operate(self) -> None:
        pass


@contextmanager
def played(
    tmp_path: Path,
    script: Script,
    *,
    periods: int = 100,
    heartbeat_s: float | None = None,
    seconds: float | None = None,
    policy: Path = CARTPOLE,
) -> Generator[tuple[LoopUnderTest, LoopEnd, list[tuple[int, int]]]]:
    """Runs a loop; yields it, why it ended, and state and reasons of every tick."""
    rig = make_rig(
        policy.read_bytes(),
        periods=periods,
        seed=0,
        health=tmp_path / "health",
        share=0.0,
        heartbeat_s=heartbeat_s,
        world=Scripted,
    )
    world = rig.world
    assert isinstance(world, Scripted)

    def happen(period: int) -> None:
        if period in script:
            script[period](rig)

    world.happen = happen
    end = rig.loop.run(seconds)
    yield rig, end, [(int(row["state"]), int(row["reasons"])) for row in records(rig)]
    rig.counters.close()


def records(rig: LoopUnderTest) -> np.ndarray:
    sink = rig.tick._sink  # pyright: ignore[reportPrivateUsage]
    assert isinstance(sink, TickRing)
    return sink.last()


def request(word: Command) -> Callable[[LoopUnderTest], object]:
    return lambda rig: rig.commands.put(word)


def fault(kind: Fault | None) -> Callable[[LoopUnderTest], object]:
    def begin(rig: LoopUnderTest) -> None:
        rig.world.fault = kind

    return begin


def fault_in(kind: Fault, periods: range) -> Script:
    return dict.fromkeys(periods, fault(kind))


def stand_still(duration_s: float) -> Callable[[LoopUnderTest], object]:
    def stop(rig: LoopUnderTest) -> None:
        rig.world._now_ns += round(duration_s * SECOND)  # pyright: ignore[reportPrivateUsage]

    return stop


def states(ticks: list[tuple[int, int]]) -> list[int]:
    return [state for state, _ in ticks]


STARTING = 1
"""Ticks in STANDSTILL at the beginning: one sample shows where the joints are, the next one that they rest."""


def test_a_sound_run_stays_in_run_and_ends_in_hold(tmp_path: Path) -> None:
    with played(tmp_path, {}, seconds=1.0) as (rig, end, ticks):
        assert end is LoopEnd.FINISHED
        # 51 ticks from 0 s to 1 s, then HOLD until every joint has rested for a quarter of a second.
        assert states(ticks)[:51] == [GuardState.STANDSTILL] * STARTING + [0] * (51 - STARTING)
        assert set(states(ticks)[51:]) == {GuardState.HOLD}
        assert rig.robot.sent == len(ticks)
        assert not rig.loop.taken_over
        counters = read_counters(tmp_path / "health")
        assert counters is not None
        # Only what the policy drove counts.
        assert (counters.ticks, counters.missed, counters.interventions, counters.faults) == (51 - STARTING, 0, 0, 0)


@pytest.mark.parametrize(
    ("word", "state", "reason"),
    [
        (Command.HOLD, GuardState.HOLD, RuntimeFault.HOLD_REQUESTED),
        (Command.DAMP, GuardState.DAMP, RuntimeFault.DAMP_REQUESTED),
        (Command.STOP, GuardState.PROTECTIVE_STOP, Reason.STOP_REQUESTED),
    ],
)
def test_an_order_is_obeyed_with_the_next_tick_and_latched(
    tmp_path: Path, word: Command, state: GuardState, reason: int
) -> None:
    with played(tmp_path, {10: request(word)}) as (_, _, ticks):
        first = states(ticks).index(state)
        assert first in (9, 10)
        assert set(states(ticks)[first:]) == {state}
        assert ticks[first][1] & reason


def test_a_reset_leads_to_standstill_and_a_start_to_run(tmp_path: Path) -> None:
    """Finding 2: a reset permits a restart, and does not cause one."""
    script: Script = {10: request(Command.STOP), 40: request(Command.RESET), 60: request(Command.START)}
    with played(tmp_path, script) as (rig, _, ticks):
        assert states(ticks)[20] == GuardState.PROTECTIVE_STOP
        assert set(states(ticks)[40:59]) == {GuardState.STANDSTILL}
        assert states(ticks)[65] == GuardState.RUN
        assert "STANDSTILL: reset by the operator; `start` lets the policy move the robot" in rig.said
        assert "RUN: started by the operator" in rig.said


def asked(answers: list[RequestTicket], *words: Command) -> Callable[[LoopUnderTest], object]:
    """Requests one after the other, within one period; their tickets."""

    def ask(rig: LoopUnderTest) -> None:
        answers.extend(ticket for word in words if (ticket := rig.commands.put(word)) is not None)

    return ask


@pytest.mark.parametrize("later", [0, 1, 2, 5], ids="{} periods later".format)
@pytest.mark.parametrize("safer", [Command.STOP, Command.HOLD, Command.DAMP])
def test_a_reset_never_takes_a_later_stop_back(tmp_path: Path, safer: Command, later: int) -> None:
    """Finding 1: reset, 2 ms later stop: the stop was lost in 17 of 20."""
    answers: list[RequestTicket] = []
    begin: Script = {10: request(Command.STOP), 40: asked(answers, *[Command.RESET, Command.START] * 3)}
    script: Script = {**begin, 40: asked(answers, *[Command.RESET, Command.START] * 3, safer)} if not later else begin
    if later:
        script[40 + later] = request(safer)
    with played(tmp_path, script) as (_, _, ticks):
        assert states(ticks)[60] >= GuardState.HOLD
        assert GuardState.RUN not in states(ticks)[50:]
        assert all(ticket.answered for ticket in answers)


def test_a_reset_before_the_stop_was_read_back_is_refused(tmp_path: Path) -> None:
    answers: list[RequestTicket] = []
    with played(tmp_path, {10: request(Command.STOP), 14: asked(answers, Command.RESET)}) as (_, _, ticks):
        assert set(states(ticks)[11:]) == {GuardState.PROTECTIVE_STOP}
    assert [ticket.obeyed for ticket in answers] == [False]
    assert "refused" in answers[0].text


def test_a_start_that_was_requested_with_the_reset_is_refused(tmp_path: Path) -> None:
    """What a start means was not known before the reset was obeyed."""
    answers: list[RequestTicket] = []
    script: Script = {10: request(Command.STOP), 40: asked(answers, Command.RESET, Command.START)}
    with played(tmp_path, script) as (_, _, ticks):
        assert set(states(ticks)[45:95]) == {GuardState.STANDSTILL}
    assert [ticket.obeyed for ticket in answers] == [True, False]


def test_a_stop_ends_the_start_of_an_activation_whatever_else_is_requested(tmp_path: Path) -> None:
    """A request in every period kept the activation's own start waiting, until the reset had been obeyed."""
    script: Script = dict.fromkeys(range(2, 60), request(Command.RESET))
    script[1] = lambda rig: (rig.commands.put(Command.STOP), rig.commands.put(Command.RESET))
    with played(tmp_path, script) as (_, _, ticks):
        assert GuardState.PROTECTIVE_STOP in states(ticks)
        assert GuardState.RUN not in states(ticks)
        assert states(ticks)[90] == GuardState.STANDSTILL


@pytest.mark.parametrize("word", [Command.STOP, Command.HOLD, Command.DAMP])
def test_a_stop_survives_a_guard_that_fails(tmp_path: Path, word: Command) -> None:
    def fail(rig: LoopUnderTest) -> None:
        guard = rig.tick.guard
        decide = guard.decide

        def failing(**given: Any) -> GuardResult:
            guard.decide = decide
            raise MemoryError

        guard.decide = failing
        rig.commands.put(word)

    with played(tmp_path, {20: fail}) as (_, _, ticks):
        assert ticks[19][1] & RuntimeFault.GUARD_FAILED
        state = GuardState.PROTECTIVE_STOP if word is Command.STOP else GuardState[word.name]
        assert set(states(ticks)[20:]) == {state}


def test_every_request_is_answered_when_the_loop_ends(tmp_path: Path) -> None:
    answers: list[RequestTicket] = []
    with played(tmp_path, {95: asked(answers, Command.RESET, Command.START, Command.ACTIVATE)}, periods=96):
        assert all(ticket.answered for ticket in answers)


def stop_and_activate(rig: LoopUnderTest) -> None:
    for word in (Command.STOP, Command.ACTIVATE):
        rig.commands.put(word)


@pytest.mark.parametrize(
    "script",
    [{10: stop_and_activate}, {10: request(Command.STOP), 15: request(Command.ACTIVATE)}],
    ids=["at once", "later"],
)
def test_a_request_to_activate_takes_no_stop_back_while_it_drives(tmp_path: Path, script: Script) -> None:
    with played(tmp_path, script) as (rig, _, ticks):
        assert set(states(ticks)[12:]) == {GuardState.PROTECTIVE_STOP}
        assert rig.commands.stopped


@pytest.mark.parametrize("kind", [Fault.SENSOR_NAN, Fault.STAMP_OLD, Fault.SILENT])
def test_nothing_is_reset_or_started_blind(tmp_path: Path, kind: Fault) -> None:
    """Finding 3: a reset with dead sensors sent the default pose."""
    answers: list[RequestTicket] = []
    script = fault_in(kind, range(50, 90))
    script |= {10: request(Command.STOP), 60: asked(answers, Command.RESET)}
    script[60] = lambda rig: (asked(answers, Command.RESET)(rig), fault(kind)(rig))
    with played(tmp_path, script, periods=90) as (_, _, ticks):
        assert set(states(ticks)[12:]) == {GuardState.PROTECTIVE_STOP}
    assert [ticket.obeyed for ticket in answers] == [False]


def forget_number(field: str) -> Callable[[LoopUnderTest], object]:
    """From now on a field of every sample begins with NaN."""

    def wreck(rig: LoopUnderTest) -> None:
        measure = rig.robot.measure

        def measured() -> None:
            measure()
            rig.robot.sample().fields[field][0] = np.nan

        rig.robot.measure = measured

    return wreck


@pytest.mark.parametrize("lost", [fault(Fault.POLL_RAISES), forget_number("ee_pose_target")], ids=["driver", "command"])
def test_nothing_is_started_without_a_sound_sample(tmp_path: Path, lost: Callable[[LoopUnderTest], object]) -> None:
    """Joints that rest are not enough, where the driver fails, or a field that the policy reads is no number."""
    answers: list[RequestTicket] = []
    script: Script = {10: request(Command.STOP), 60: asked(answers, Command.RESET)}
    script[70] = lambda rig: (asked(answers, Command.START)(rig), lost(rig))
    with played(tmp_path, script, periods=90, policy=REACH) as (_, _, ticks):
        assert set(states(ticks)[60:88]) == {GuardState.STANDSTILL}
    assert [ticket.obeyed for ticket in answers] == [True, False]
    assert "the newest sample is not sound" in answers[1].text


def test_a_stop_is_believed_only_once_every_joint_has_rested(tmp_path: Path) -> None:
    believed: list[bool] = []
    script: Script = {10: request(Command.STOP)}
    script |= dict.fromkeys(range(11, 60), lambda rig: believed.append(rig.tick.stopped))
    with played(tmp_path, script) as (_, _, ticks):
        assert states(ticks)[30] == GuardState.PROTECTIVE_STOP
    # 13 ticks are the quarter of a second; the joints of this robot come to rest within some periods before that.
    assert not any(believed[:13])
    assert all(believed[40:])


def test_a_stop_of_a_robot_that_moves_on_is_not_believed(tmp_path: Path) -> None:
    def drift(rig: LoopUnderTest) -> None:
        rig.robot.velocity[:] = 1.0

    script: Script = dict.fromkeys(range(9, 300), drift)
    script[10] = lambda rig: (drift(rig), rig.commands.put(Command.STOP))
    with played(tmp_path, script, periods=300) as (rig, _, ticks):
        assert not rig.tick.stopped
        assert any(reasons & Reason.STOP_NOT_CONFIRMED for _, reasons in ticks)


def test_a_dead_publisher_is_held_and_then_damped(tmp_path: Path) -> None:
    with played(tmp_path, fault_in(Fault.SILENT, range(20, 80)), periods=80) as (rig, _, ticks):
        # The sample of period 19 is 40 ms old in the 21st and too old in the 22nd; two repetitions, the 24th holds.
        assert states(ticks)[18:26] == [0] * 5 + [GuardState.HOLD] * 3
        assert ticks[21][1] & Reason.SENSOR_STALE
        assert GuardState.DAMP in states(ticks)
        assert any("the sample is 0.1 s old by its own stamp" in text for text in rig.said)
        assert rig.loop.taken_over


@pytest.mark.parametrize(
    "script",
    [
        fault_in(Fault.SILENT, range(20, 30)),
        fault_in(Fault.POLL_RAISES, range(20, 30)),
        {20: request(Command.STOP)},
        {20: stand_still(0.2)},
    ],
    ids=["lost sensor", "lost transport", "stop", "suspended process"],
)
def test_what_is_not_the_policys_doing_does_not_end_its_trial(tmp_path: Path, script: Script) -> None:
    """Finding 13: operator silence, a lost sensor and a pressed stop rolled the policy back."""
    with played(tmp_path, script, periods=30) as (rig, _, ticks):
        assert states(ticks)[27] >= GuardState.HOLD
        counters = read_counters(tmp_path / "health")
    assert counters is not None
    assert (counters.faults, counters.interventions) == (0, 0)
    assert rig.loop.counts.rises >= 1


def test_a_policy_that_computes_no_numbers_ends_its_trial(tmp_path: Path) -> None:
    with played(tmp_path, fault_in(Fault.OUTPUT_NAN, range(20, 30)), periods=30):
        counters = read_counters(tmp_path / "health")
    assert counters is not None
    assert counters.faults == 1
    assert "HOLD: inference failed" in counters.message
    # The third one in a row raised the state.
    assert counters.interventions == 2


def test_a_robot_does_not_go_on_when_its_computer_wakes_up(tmp_path: Path) -> None:
    """CLOCK_MONOTONIC stands still during a suspend, so a policy in RUN went on an hour later."""

    def sleep(rig: LoopUnderTest) -> None:
        clocks = rig.loop._clocks  # pyright: ignore[reportPrivateUsage]
        # And half a period, because the clocks that show it are not read at once.
        asleep_ns = clocks.asleep_ns() + 3600 * 10**9 + 10**7
        rig.loop._clocks = replace(clocks, asleep_ns=lambda: asleep_ns)  # pyright: ignore[reportPrivateUsage]

    with played(tmp_path, {20: sleep}) as (rig, _, ticks):
        assert states(ticks)[18] == GuardState.RUN
        assert min(states(ticks)[19:]) >= GuardState.HOLD
        assert ticks[19][1] & RuntimeFault.PERIODS_SKIPPED
        assert rig.loop.counts.skipped == 3600 * RATE_HZ
        counters = read_counters(tmp_path / "health")
    assert counters is not None
    assert counters.faults == 0


@pytest.mark.parametrize(("duration_s", "state"), [(0.03, 0), (0.2, GuardState.HOLD), (1.0, GuardState.DAMP)])
def test_a_standstill_leads_where_as_many_missing_commands_would(tmp_path: Path, duration_s: float, state: int) -> None:
    with played(tmp_path, {20: stand_still(duration_s)}) as (rig, _, ticks):
        assert states(ticks)[19] == state
        assert ticks[19][1] & RuntimeFault.PERIODS_SKIPPED
        skipped = int(duration_s * RATE_HZ)
        assert rig.loop.counts.skipped == skipped
        assert rig.world.findings.unsafe == []
        numbers = records(rig)["tick"].tolist()
        assert numbers[19] - numbers[18] == 1 + skipped
        counters = read_counters(tmp_path / "health")
        assert counters is not None
        assert counters.missed >= skipped


def test_a_slow_policy_misses_its_period_and_the_last_command_is_repeated(tmp_path: Path) -> None:
    with played(tmp_path, {20: fault(Fault.SLOW)}) as (rig, _, _):
        slow = records(rig)[19]
        assert slow["missed"]
        assert not slow["intervened"]
        assert slow["reasons"] & Reason.DEADLINE_MISSED
        assert rig.robot.sent == rig.loop.counts.ticks


def test_a_transport_that_fails_once_does_not_stop_the_robot(tmp_path: Path) -> None:
    with played(tmp_path, {20: fault(Fault.SEND_RAISES), 40: fault(Fault.POLL_RAISES)}) as (rig, _, ticks):
        assert set(states(ticks)[STARTING:90]) == {0}
        for failed in (19, 20, 39):
            assert ticks[failed][1] & RuntimeFault.TRANSPORT_FAILED
        assert rig.loop.counts.interventions == 0


def test_a_silent_operator(tmp_path: Path) -> None:
    def beat(rig: LoopUnderTest) -> None:
        rig.commands.heartbeat_ns = rig.world.now()

    with played(tmp_path, dict.fromkeys(range(1, 21), beat), heartbeat_s=0.5) as (_, _, ticks):
        assert set(states(ticks)[STARTING:44]) == {0}
        first = states(ticks).index(GuardState.HOLD)
        assert 44 <= first <= 47
        assert ticks[first][1] & RuntimeFault.OPERATOR_SILENT


def test_joints_that_do_not_come_to_rest_are_damped_before_the_end(tmp_path: Path) -> None:
    def drift(rig: LoopUnderTest) -> None:
        rig.robot.velocity[:] = 1.0

    with played(tmp_path, dict.fromkeys(range(5, 400), drift), seconds=0.2, periods=999) as (rig, end, ticks):
        assert end is LoopEnd.FINISHED
        assert rig.said[-1] == "the joints did not come to rest; nothing more is sent"
        # Two seconds of HOLD, one of DAMP.
        assert states(ticks).count(GuardState.HOLD) in range(99, 103)
        assert states(ticks).count(GuardState.DAMP) in range(49, 53)


def test_a_clock_that_was_set_is_named(tmp_path: Path) -> None:
    def set_back(rig: LoopUnderTest) -> None:
        rig.world._wall_ns -= 60 * SECOND  # pyright: ignore[reportPrivateUsage]
        rig.world.fault = Fault.SILENT

    script: Script = {20: set_back, **fault_in(Fault.SILENT, range(21, 30))}
    with played(tmp_path, script) as (rig, _, _):
        assert any("this machine's clock was set by -60 s" in text for text in rig.said)


def test_a_publisher_of_half_the_rate_is_named(tmp_path: Path) -> None:
    script: Script = dict.fromkeys(range(2, 600, 2), fault(Fault.SILENT))
    script |= dict.fromkeys(range(3, 600, 2), fault(None))
    with played(tmp_path, script, periods=600) as (rig, _, ticks):
        assert "warning: new samples come at about 25 Hz, the policy acts at 50 Hz" in rig.said
        assert set(states(ticks)[STARTING + 2 : 590]) == {0}


def test_a_warm_up_changes_nothing(tmp_path: Path) -> None:
    """Two runs with random faults, one of them warmed_up before every tick: the same commands to the last
    bit."""
    plain, warmed_up = (pushed_about(tmp_path, warmed_up=warmed_up) for warmed_up in (False, True))
    assert len(plain) > 200
    np.testing.assert_array_equal(plain, warmed_up)


def pushed_about(tmp_path: Path, *, warmed_up: bool) -> list[Array]:
    rig = make_rig(
        CARTPOLE.read_bytes(), periods=300, seed=3, health=tmp_path / "health", share=0.3, wind=0.02, world=Rehearsed
    )
    assert isinstance(rig.world, Rehearsed)
    rig.world.before = rig.tick.warm_up if warmed_up else lambda: None
    send = rig.robot.send
    sent: list[Array] = []

    def logged(targets: Mapping[str, Array], stamp_ns: int) -> None:
        send(targets, stamp_ns)
        sent.append(np.array(targets["joint_effort_target"]))

    rig.robot.send = logged
    rig.loop.run()
    rig.counters.close()
    return sent


def test_reasons_in_words() -> None:
    assert describe(Reason.SENSOR_STALE | RuntimeFault.NOT_SENT) == "sensor stale, not sent"
    assert describe(0) == "nothing"
    assert not {int(reason) for reason in Reason} & {int(trouble) for trouble in RuntimeFault}


@pytest.mark.parametrize("when", ["before the tick", "while the policy computes"])
def test_who_has_lost_the_robot_sends_nothing_any_more(when: str, tmp_path: Path) -> None:
    """Not a safe command either: somebody else commands the robot."""
    sent: list[int] = []
    lost: list[str] = []

    def lose(rig: LoopUnderTest) -> None:
        sent.append(rig.world.findings.sent)
        policy = rig.tick.policy
        step = policy.step

        def slow() -> bool:
            lost.append("another runtime holds the robot")
            return step()

        if when == "before the tick":
            lost.append("another runtime holds the robot")
        else:
            setattr(policy, "step", slow)  # noqa: B010

    def begin(rig: LoopUnderTest) -> None:
        rig.tick.lost = lambda: lost[0] if lost else ""

    with played(tmp_path, {1: begin, 40: lose}) as (rig, end, ticks):
        assert end is LoopEnd.LEASE_LOST
        assert sent[0] > 20
        assert rig.world.findings.sent - sent[0] <= (when == "before the tick")
        assert "nothing is sent any more: another runtime holds the robot" in rig.said[-1]
        assert len(ticks) <= 40
        counters = read_counters(tmp_path / "health")
        assert counters is not None
        assert counters.faults == 0


def test_who_asks_to_activate_what_is_about_to_end_is_refused(tmp_path: Path) -> None:
    tickets: list[RequestTicket | None] = []

    def ask(rig: LoopUnderTest) -> None:
        tickets.append(rig.commands.put(Command.ACTIVATE))

    with played(tmp_path, {40: request(Command.DEACTIVATE), 42: ask}) as (_, end, _):
        assert end is LoopEnd.DEACTIVATED
    (ticket,) = tickets
    assert ticket is not None
    assert (ticket.obeyed, ticket.text) == (False, "refused: the policy is about to end (deactivated)")


def test_the_watchdog_knows_a_command_before_it_leaves(tmp_path: Path) -> None:
    """A loop that is put aside or killed in the system call that sends has sent."""
    told: list[tuple[str, float]] = []

    class Told:
        """Notes what the tick says to its watchdog."""

        def claim(self) -> None:
            pass

        def may_send(self) -> bool:
            return True

        def taken_over(self) -> None:
            pass

        def sends(self, commands: Array, step: Array, silence: int) -> None:
            assert silence == 0
            told.append(("sends", float(commands[0, 0])))
            told.append(("step", float(step[0, 0])))

        def takes_back(self, last: Array, silence: int) -> None:
            told.append(("takes back", float(last[0, 0])))

    def begin(rig: LoopUnderTest) -> None:
        rig.tick._watchdog = Told()  # pyright: ignore
        send = rig.robot.send

        def noted(targets: Mapping[str, Array], stamp_ns: int) -> None:
            told.append(("leaves", float(next(iter(targets.values()))[0, 0])))
            send(targets, stamp_ns)

        rig.robot.send = noted

    with played(tmp_path, {1: begin, **fault_in(Fault.SEND_RAISES, range(60, 62))}):
        pass
    sent = 0.0
    for (first, command), (second, step), (third, left) in zip(told[:90:3], told[1:90:3], told[2:90:3], strict=True):
        assert (first, second, third) == ("sends", "step", "leaves")
        assert command == left
        assert step == pytest.approx(command - sent)
        sent = left
    (back, again) = [number for number, (what, _) in enumerate(told) if what == "takes back"]
    assert told[back][1] == told[again][1] == told[back - 4][1]
