"""The guard between a policy and the joints: the same code in the twin and on the robot.

NaN passes `np.clip`, `min`, `max` and `x > limit`, so every comparison tests what is allowed, never what is not.

In each control period `observe` takes a sample, `decide` compares the policy's command with every limit, gets the state
from the supervisor (`physai.sdk.safety.supervisor`) and computes the command that this state allows; `commit` records
whether it was sent. All rate limits are relative to the command sent last. `physai.sdk.safety.states` defines the
states, `physai.sdk.safety.trajectory` keeps commanded positions within their limits.
"""

import math
from collections.abc import Mapping

import numpy as np

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.continuity import StreamWatch
from physai.sdk.safety.decision import NO_REQUEST, Flags, GuardResult, Request, everywhere, quiet_arrays
from physai.sdk.safety.fallback import Fallback
from physai.sdk.safety.limits import STILL_S, Array, GuardError, guard_limits
from physai.sdk.safety.plant import RestWatch
from physai.sdk.safety.sample import Bools, CommandColumns, Floats, SampleFindings, SensorColumns
from physai.sdk.safety.states import GuardState, Reason, RequestAnswer
from physai.sdk.safety.supervisor import Inputs, Outputs, SupervisorState, SupervisorThresholds, step

HOLD_S = 0.5
"""Maximum time in HOLD without a valid sample [s]: a legged robot cannot balance open-loop."""

EFFECT_S = 1.0
"""Time DAMP has to bring joints below their speed limit, or sensors back, before a protective stop [s]."""

TOLERATED_SAMPLES = 2
"""Consecutive samples outside a limit that are tolerated, to reject sensor spikes."""

CONFIRM_S = 2.0
"""Time after which a protective stop that was not read back is reported [s]."""

_RUN, _STOP = np.uint8(GuardState.RUN), np.uint8(GuardState.PROTECTIVE_STOP)

_FOUND = np.array(
    [
        Reason.SENSOR_NOT_FINITE,
        Reason.SENSOR_STALE,
        Reason.SENSOR_IMPLAUSIBLE,
        Reason.SENSOR_CONTRADICTS,
        Reason.SENSOR_FROZEN,
        Reason.COMMAND_NOT_FINITE,
        Reason.COMMAND_STALE,
        Reason.DEADLINE_MISSED,
        Reason.COMMAND_LIMIT,
        Reason.COMMAND_RATE,
        Reason.JOINT_POSITION,
        Reason.JOINT_VELOCITY,
        Reason.FOLLOWING_ERROR,
        Reason.NO_REFERENCE,
    ],
    np.uint32,
)
"""Flags in the order in which `Guard` collects what it found."""


class Guard:
    """Checks and limits joint commands; each row of every array is one world.

    Rows are independent: a guard of n worlds equals n guards of one world, bit for bit.
    """

    def __init__(self, contract: PolicyContract, num_worlds: int = 1) -> None:
        """Create a guard in RUN.

        Args:
            contract: source of all limits.
            num_worlds: number of robots; 1 on a robot.

        Raises:
            GuardError: `num_worlds` is less than 1, or the contract leaves no allowed command for a joint.
        """
        if num_worlds < 1:
            raise GuardError(f"a guard needs at least one world, got {num_worlds}")
        self.limits = limits = guard_limits(contract)
        self.num_worlds = num_worlds
        self.sensors = SensorColumns(contract, limits, num_worlds)
        self._commands = CommandColumns(contract, limits, num_worlds)
        self._rest = RestWatch(contract, limits, num_worlds)
        self._stream = StreamWatch(contract, limits, num_worlds)
        periods = (math.ceil(time_s / contract.timing.control_dt) for time_s in (HOLD_S, EFFECT_S, STILL_S, CONFIRM_S))
        hold, effect, still, confirm = periods
        reused = contract.safety.max_reused_commands
        self.thresholds = SupervisorThresholds(reused, hold, TOLERATED_SAMPLES, effect, still, confirm)
        self._fallback = Fallback(limits, self.sensors, self._commands)
        self.last: Array = np.zeros((num_worlds, len(limits.joints)))
        """Command sent last, shape (num_worlds, A)."""
        self.step: Array = np.zeros_like(self.last)
        """Its change from the one before, 0 after a period without a command."""
        self.sent, self.steps = self._by_output(self.last), self._by_output(self.step)
        """The same by output name, live."""
        self._state = SupervisorState.initial(num_worlds, GuardState.RUN)
        self._unreferenced = np.zeros(num_worlds, bool)
        self._stamps = np.zeros(num_worlds)
        # Commands, state, the commands that they continue from, and worlds that start.
        self._pending: tuple[Array, SupervisorState, Array, Bools] | None = None
        self._quiet = quiet_arrays(num_worlds)
        self.reset()

    def reset(self, mask: Bools | None = None) -> None:
        """Start an episode in the masked worlds (all if None), in RUN. For simulation only.

        The next command starts from effort 0 and from the measured position.

        Raises:
            GuardError: the mask has another shape than (num_worlds,).
        """
        rows = np.ones(self.num_worlds, bool) if mask is None else np.asarray(mask, bool)
        if rows.shape != (self.num_worlds,):
            raise GuardError(f"reset mask has shape {rows.shape}, expected ({self.num_worlds},)")
        self._forget(rows)
        self._state = SupervisorState.initial(self.num_worlds, GuardState.RUN).where(rows, self._state)
        self._settle()

    def activate(self) -> None:
        """Start guarding robots at rest: in STANDSTILL, from the position measured next.

        Only a `Request.start` with the number set here, or a later one, leads to RUN.
        """
        number = self._state.number + 1
        self._forget(np.ones(self.num_worlds, bool))
        state = SupervisorState.initial(self.num_worlds, GuardState.STANDSTILL)
        state.number[...] = state.read_back[...] = number
        self._state = state
        self._settle()

    @property
    def broken(self) -> Bools:
        """Worlds that get no command until their next start; see `physai.sdk.safety.continuity`."""
        return self._stream.broken

    @property
    def level(self) -> GuardState:
        """Latest state of the first world."""
        state = self._state if self._pending is None else self._pending[1]
        return GuardState(int(state.level[0]))

    @property
    def read_back(self) -> int:
        """See `GuardResult.read_back`; of the first world."""
        return int(self._state.read_back[0])

    @property
    def silence(self) -> int:
        """State of the first world's broken sample stream, for a guard that continues; see `StreamWatch.silence`."""
        return self._stream.silence

    def resume_from(self, last: Array, step: Array, silence: int = 0) -> None:
        """Continue from commands that another guard has sent.

        Args:
            last: the command sent last, shape (A,) or (num_worlds, A).
            step: its change from the one before, likewise.
            silence: of that guard, see `silence`.
        """
        self.last[...], self.step[...] = last, step
        self._unreferenced[:] = False
        self._stream.resume(silence)
        self._settle()

    def _forget(self, rows: Bools) -> None:
        self.last[rows], self.step[rows] = self.limits.rest, 0.0
        self._unreferenced[rows] = self.limits.holds_position.any()
        self.sensors.reset(rows)
        self._rest.reset(rows)
        self._stream.reset(rows)
        self._pending = None

    def check(
        self,
        *,
        now_s: float | Array,
        sensor_stamp_s: float | Array,
        joint_pos: Floats,
        joint_vel: Floats,
        targets: Mapping[str, Floats] | None,
        sensors: Mapping[str, Floats] | None = None,
        command_age_s: float | Array = 0.0,
        deadline_missed: bool | Bools = False,
        stop: bool | Bools = False,
        least: int = GuardState.RUN,
    ) -> GuardResult:
        """Observe, decide and commit, for callers that always send; call it once per control period.

        Args:
            now_s: time at which the command goes out [s], one for all worlds or shape (num_worlds,).
            sensor_stamp_s: measurement time of the sample, by the sensor's own stamp on the same clock [s], never its
                time of arrival; one for all, or shape (num_worlds,).
            joint_pos: positions of that sample, robot's joint order [rad or m], shape (num_worlds, joints).
            joint_vel: its velocities, shape (num_worlds, joints).
            targets: the policy's commands by output name, shape (num_worlds, joints of the term); None if there are
                none in any world, which counts as a missed deadline.
            sensors: further sensor fields by name, those that the contract's sensor_ranges name.
            command_age_s: time since the commands were computed [s]; older than a control period counts as missing.
            deadline_missed: whether they came too late; one for all, or shape (num_worlds,).
            stop: whether a protective stop is requested, likewise.
            least: minimum state to rise to.

        Raises:
            GuardError: a vector is missing or has another shape than the contract's.
        """
        with np.errstate(all="ignore"):
            self.observe(stamp_s=sensor_stamp_s, joint_pos=joint_pos, joint_vel=joint_vel, sensors=sensors)
            asks = stop is not False or least
            result = self.decide(
                age_s=now_s - sensor_stamp_s,
                targets=targets,
                command_age_s=command_age_s,
                deadline_missed=deadline_missed,
                request=Request(stop=stop, least=least) if asks else NO_REQUEST,
            )
            self.commit()
            return result

    def observe(
        self,
        *,
        stamp_s: float | Array,
        joint_pos: Floats,
        joint_vel: Floats,
        sensors: Mapping[str, Floats] | None = None,
    ) -> Bools:
        """Take a sample; return whether it is valid apart from its age, shape (num_worlds,). See `check`."""
        if isinstance(stamp_s, np.ndarray) and stamp_s.shape != self._stamps.shape:
            raise GuardError(f"sensor_stamp_s has shape {stamp_s.shape}, expected a number or ({self.num_worlds},)")
        self._stamps[...] = stamp_s
        if not self._all_run and self._stream.broken.any():
            # A jump that lasts is a new beginning for a robot that gets no commands until its next start.
            self.sensors.begin_again(self._stream.broken)
        self.sensors.read(self._stamps, joint_pos, joint_vel, sensors or {}, self.last)
        return self.sensors.valid

    @property
    def asks(self) -> Bools:
        """Worlds in which the policy is used: in RUN with a valid sample, shape (num_worlds,)."""
        return self.sensors.valid if self._all_run else self.sensors.valid & (self._state.level == _RUN)

    def decide(
        self,
        *,
        age_s: float | Array,
        targets: Mapping[str, Floats] | None,
        command_age_s: float | Array = 0.0,
        deadline_missed: bool | Bools = False,
        request: Request = NO_REQUEST,
    ) -> GuardResult:
        """Decide on the latest sample; nothing is stored before `commit`. See `check`.

        Turn numpy's floating-point warnings off around it (`np.errstate(all="ignore")`).
        """
        commands, sensors = self._commands, self.sensors
        commands.read_age(age_s)
        late = self._flags(targets is None or deadline_missed, "deadline_missed")
        if targets is None:
            commands.repeat(self.last)
        else:
            commands.read(targets, command_age_s)
        calm = self._calm
        rests = self._quiet.no if calm else self._rests()
        if self._starting:
            self._start(rests)
        kept = commands.compare(self.last, self.step, sensors.positions, sensors.velocities)
        if kept and sensors.calm and calm and late is None and request is NO_REQUEST:
            command = commands.command.copy()
            self._stream.accept(self._stamps)
            self._pending = command, self._state, self.last, self._quiet.no
            return self._result_calm(command)
        if calm:
            rests = self._rests()
        return self._decide(commands.judge(sensors, self._quiet.no if late is None else late), request, rests)

    def decided(self) -> tuple[Array, Array]:
        """The decided commands and their changes from the ones sent before, shape (num_worlds, A) each.

        Valid between `decide` and `commit`.
        """
        if self._pending is None:
            return self.last, np.zeros_like(self.last)
        commands, _, base, _ = self._pending
        return commands, commands - base

    def commit(self, *, sent: bool = True) -> None:
        """End the control period: store the decision and whether it was sent.

        A robot that received nothing keeps the previous command, so its commanded positions were constant.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return
        commands, state, base, starts = pending
        changed = state is not self._state
        self._state = state
        if base is not self.last:
            self.last[...] = base
            self._stream.reset(starts)
            self.sensors.commanded(starts, self.last)
        if sent:
            np.subtract(commands, self.last, out=self.step)
            self.last[...] = commands
        else:
            self.step[...] = 0.0
        if changed or self._starting:
            self._settle()

    def idle(self) -> None:
        """Account for a control period without a decision."""
        self.step[...] = 0.0

    def _flags(self, value: bool | Bools, label: str) -> Bools | None:
        """None where no world is flagged, else shape (num_worlds,)."""
        if isinstance(value, np.ndarray):
            if value.shape != (self.num_worlds,):
                raise GuardError(f"{label} has shape {value.shape}, expected ({self.num_worlds},)")
            return value if value.any() else None
        return np.ones(self.num_worlds, bool) if value else None

    def _rests(self) -> Bools:
        """Worlds outside RUN with every joint measured at rest; call it once per period that has any."""
        sensors = self.sensors
        watched = sensors.valid & self._commands.recent & (self._state.level != _RUN)
        return self._rest.read(self._stamps, sensors.positions, sensors.velocities, watched)

    def _start(self, rests: Bools) -> None:
        """Initialise the commands of worlds that have none to the measured positions, as the graph does.

        After `activate` the robot must rest there, because a first sample alone could be a spike.
        """
        first = self._unreferenced & self.sensors.valid & self._commands.recent
        first &= rests | (self._state.level == _RUN)
        if first.any():
            self.last[first] = self._measured()[first]
            self._unreferenced = self._unreferenced & ~first
            self.sensors.commanded(first, self.last)

    def _measured(self) -> Array:
        """The measured positions as commands, within the limits; the last commands of effort-commanded joints."""
        limits = self.limits
        measured = np.clip(self.sensors.positions[:, limits.joints], limits.lower, limits.upper)
        return np.where(limits.holds_position, measured, self.last)

    def _settle(self) -> None:
        """Cache whether every world is in RUN with no pending condition, which allows the fast path."""
        state = self._state
        self._starting = bool(self._unreferenced.any())
        self._all_run = not state.level.any()
        self._calm = self._all_run and not (self._starting or state.missed.any() or state.violated.any())

    def _result_calm(self, commands: Array) -> GuardResult:
        """The policy's own commands in every world."""
        quiet, state = self._quiet, self._state
        return GuardResult(
            self._by_output(commands),
            quiet.run,
            quiet.no,
            quiet.flags,
            quiet.flags,
            quiet.no,
            state.number,
            state.read_back,
            quiet.run,
            quiet.run,
            quiet.yes,
            quiet.zero,
        )

    def _by_output(self, commands: Array) -> dict[str, Array]:
        return {name: commands[:, part] for name, part in self.limits.slices.items()}

    def _decide(self, found: SampleFindings, request: Request, rests: Bools) -> GuardResult:
        """Step the supervisor, then compute the command that its state allows."""
        constant = ((self.step == 0.0) | ~self.limits.holds_position).all(axis=1)
        breaks = self._stream.read(self._stamps, found.blind, self._state.level != _RUN, constant)
        reasons = self._reasons(found, request)
        halt = self._flags(request.stop, "stop")
        if halt is not None:
            reasons[halt] |= np.uint32(Reason.STOP_REQUESTED)
        inputs = self._inputs(found, request, halt, reasons, rests & constant, breaks)
        state, out = step(self._state, inputs, self.thresholds)
        starts = self._stream.broken & (out.start == RequestAnswer.OBEYED)
        withheld = self._stream.broken & ~starts
        base = np.where(starts[:, None], self._measured(), self.last) if starts.any() else self.last
        reasons[out.unconfirmed & (state.level == _STOP)] |= np.uint32(Reason.STOP_NOT_CONFIRMED)
        # A start that was obeyed in this period has no command yet.
        run = (state.level == _RUN) & (self._state.level == _RUN)
        obeyed = run & found.kept & ~self._unreferenced
        # A command that keeps every limit goes out as it is, not as `last + (command - last)`.
        commands = np.where(
            obeyed[:, None],
            self._commands.command,
            self._fallback.command(found, run, state.level, base, np.where(starts[:, None], 0.0, self.step)),
        )
        if withheld.any():
            commands = np.where(withheld[:, None], self.last, commands)
        self._pending = commands, state, base, starts
        return self._result(commands, state, out, obeyed, reasons, found, withheld)

    def _result(
        self,
        commands: Array,
        state: SupervisorState,
        out: Outputs,
        obeyed: Bools,
        reasons: Flags,
        found: SampleFindings,
        withheld: Bools,
    ) -> GuardResult:
        return GuardResult(
            targets=self._by_output(commands),
            state=state.level,
            intervened=~obeyed,
            reasons=reasons,
            causes=state.causes,
            stopped=out.confirmed,
            number=state.number,
            read_back=state.read_back,
            reset=out.reset,
            start=out.start,
            referenced=~(self._unreferenced | withheld),
            excess=found.excess,
        )

    def _reasons(self, found: SampleFindings, request: Request) -> Flags:
        # Outside RUN the policy's commands are ignored, so their faults are not reported.
        in_run = self._state.level == _RUN
        wrong = (
            found.unmeasured,
            found.stale,
            found.implausible,
            found.contradicts,
            found.frozen,
            found.not_finite & in_run,
            found.outdated & in_run,
            found.late & in_run,
            found.limited & in_run,
            found.jerked & in_run,
            found.outside,
            found.too_fast,
            found.lagging & ~self._stream.broken,
            self._unreferenced | self._stream.broken,
        )
        flags: Flags = _FOUND @ np.array(wrong)
        return flags | np.uint32(request.reasons)

    def _inputs(
        self, found: SampleFindings, request: Request, halt: Bools | None, reasons: Flags, at_rest: Bools, breaks: Bools
    ) -> Inputs:
        quiet = self._quiet
        uncommanded = self._unreferenced | self._stream.broken
        violated = found.outside | found.too_fast | (found.lagging & ~uncommanded)
        return Inputs(
            missing=found.missing,
            blind=found.blind,
            violated=violated,
            too_fast=found.too_fast,
            at_rest=at_rest,
            repeated=self._rest.repeated,
            # A start was requested for the robot before the break.
            ready=~(found.blind | violated | self._unreferenced | breaks),
            unreferenced=self._unreferenced,
            reasons=reasons,
            skipped=everywhere(quiet.none, request.skipped),
            least=everywhere(quiet.run, request.least),
            stop=quiet.no if halt is None else halt,
            reset=everywhere(quiet.nothing, request.reset),
            start=everywhere(quiet.nothing, request.start),
        )
