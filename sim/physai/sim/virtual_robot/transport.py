"""The twin as a transport of the runtime: in its own process, or in another one behind DDS or UDP.

Found by the runtime as entry point `sim` of the group `physai.transports`; it meets no type of the runtime's but
those of `physai.sdk.transport.protocol`.
"""

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from physai.sdk.base.errors import PhysaiError, TaskError, unknown_name
from physai.sdk.contract.diff import diff, format_diff
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import (
    Array,
    Sample,
    SupportsReset,
    Transport,
    TransportError,
    empty_sample,
    required_fields,
)
from physai.sdk.transport.registry import open_transport, robot_link_names
from physai.sim.tasks.registry import built_in_task, load_task
from physai.sim.tasks.task import Task
from physai.sim.twin.twin import Twin, load_twin
from physai.sim.virtual_robot.paced_twin import NANOSECONDS, PacedTwin, RuntimeTally
from physai.sim.virtual_robot.process import Clock
from physai.sim.virtual_robot.robot_twin import RobotTwin

OPTIONS = {
    "task": "task's name or Python file (default: that of the contract, where it is built in)",
    "twin": "twin.json with the robot's measured parameters, lag, noise and jitter",
    "robot": "robot to play the task with, where it takes another",
    "preset": "variant of the task",
    "clock": "realtime (default), or lockstep: a control period passes with each command, and none without",
    "seed": "fixes every random number (default: 0)",
    "over": "dds or udp: the twin runs in another process behind that; the other options after `over.` are its own",
}
MAX_SEED = 2**32 - 1
OWN_DOMAINS = range(102, 215)
"""DDS domains for twins in another process: those that ROS 2 advises people against, so that no robot is there.

Source: https://docs.ros.org/en/jazzy/Concepts/Intermediate/About-Domain-ID.html
"""
OWN_PORTS = range(10_000, 32_000)
"""UDP ports for twins in another process: below those that Linux gives to whoever asks for any, so that nobody gets
one between the choice and the other process's start.

Source: net.ipv4.ip_local_port_range, https://docs.kernel.org/networking/ip-sysctl.html, by default from 32768 on.
"""
ALIVE_S = 0.2
"""Time between looks whether another process is still there [s]."""
MAX_TRIES = 100
"""Ports that are tried."""
STOP_S = 5.0
"""Time another process gets to end [s]."""


def make_transport(options: Mapping[str, str]) -> Transport:
    """The transport `sim`: in this process, or with the option `over` in another one.

    Raises:
        UnknownNameError: there is no such option.
        TransportError: an option has a value it cannot have.
    """
    own = {name: value for name, value in options.items() if not name.startswith("over.")}
    for name in own:
        if name not in OPTIONS:
            raise unknown_name("option of transport sim", name, OPTIONS)
    clock = own.get("clock", "realtime")
    if clock not in get_args(Clock):
        raise TransportError(f"option clock: {clock!r}, expected {' or '.join(get_args(Clock))}")
    seed = own.get("seed", "0")
    if not (seed.isascii() and seed.isdigit() and int(seed) <= MAX_SEED):
        raise TransportError(f"option seed: {seed!r}, expected 0 … {MAX_SEED}")
    if "over" in own:
        inner = {name.removeprefix("over."): v for name, v in options.items() if name.startswith("over.")}
        return ProcessTransport(own, inner)
    if len(own) < len(options):
        raise TransportError("options after `over.` need the option over")
    return SimTransport(own)


def simulated_robot(
    contract: PolicyContract | None, options: Mapping[str, str], *, seed: int
) -> tuple[Task, RobotTwin]:
    """A task and its robot's twin, as options name them.

    Args:
        contract: what the runtime agreed to; None to take the task's.
        options: `task` (where there is no contract), `twin`, `robot` and `preset`.
        seed: fixes every random number.

    Raises:
        TransportError: the task's contract is another one.
        PhysaiError: the task or the twin cannot be loaded.
    """
    task = load_task(_task_name(contract, options), robot=options.get("robot"), preset=options.get("preset"))
    if contract is not None and contract.fingerprint != task.contract.fingerprint:
        difference = format_diff(diff(contract, task.contract), left="policy", right="task")
        raise TransportError(f"the twin plays task {task.name}, whose contract is not the policy's:\n{difference}")
    twin: Twin | None = load_twin(Path(options["twin"])) if "twin" in options else None
    return task, RobotTwin(task, twin, seed=seed)


def _task_name(contract: PolicyContract | None, options: Mapping[str, str]) -> str:
    """The task that the user named, or the built-in one of the contract.

    Raises:
        TransportError: the contract's is not built in: a policy's file does not choose what Python runs.
    """
    if "task" in options or contract is None:
        return options.get("task", "")
    try:
        return built_in_task(contract.task, source="the policy")
    except TaskError as error:
        raise TransportError(f"{error}; for the transport sim: --set task=PATH") from None


class SimTransport:
    """The twin in the runtime's own process: no wire, nothing lost.

    Physics is computed in `poll` and `wait`, before the tick whose time counts. In `realtime` the twin moves with
    this computer's clock, however late `poll` is called; in `lockstep` one control period passes with each command.
    """

    name = "sim"

    def __init__(self, options: Mapping[str, str]) -> None:
        """See `make_transport`."""
        self._options = dict(options)
        self._seed = int(options.get("seed", "0"))
        self._lockstep = options.get("clock", "realtime") == "lockstep"
        self._twin: PacedTwin | None = None
        self._pending: dict[str, Array] | None = None
        self._sent_ns = (0, 0)
        self._fresh = False

    def open(self, contract: PolicyContract) -> None:
        """See `Transport.open`."""
        if self._twin is not None:
            raise TransportError("the transport sim is open already")
        _, robot = simulated_robot(contract, self._options, seed=self._seed)
        self._sample = empty_sample(contract)
        self._required = required_fields(contract)
        lacking = [name for name in self._required if name not in robot.fields]
        if lacking:
            raise TransportError(f"the twin of {contract.robot.name} does not measure {', '.join(lacking)}")
        self._period_ns = round(contract.timing.control_dt * NANOSECONDS)
        self._again_ns = 0
        self._twin = PacedTwin(robot, seed=self._seed, start_ns=time.monotonic_ns())
        self._fresh = True

    def _opened(self) -> PacedTwin:
        if self._twin is None:
            raise TransportError("the transport sim is not open")
        return self._twin

    @property
    def tally(self) -> RuntimeTally:
        """What the robot has seen of the runtime."""
        return self._opened().tally

    def sample(self) -> Sample:
        """See `Transport.sample`."""
        return self._sample

    def poll(self) -> bool:
        """See `Transport.poll`."""
        twin = self._opened()
        pending, self._pending = self._pending, None
        try:
            if self._lockstep:
                self._fresh |= self._take_turn(twin, pending)
            else:
                self._fresh |= self._pass_time(twin, pending)
        except TransportError:
            raise
        except PhysaiError as error:
            raise TransportError(str(error)) from error
        if not self._fresh:
            return False
        self._fresh = False
        self._copy(twin)
        return True

    def _take_turn(self, twin: PacedTwin, pending: Mapping[str, Array] | None) -> bool:
        """Lets a control period pass if there is a command; without one the robot stands still and measures again."""
        now_ns = time.monotonic_ns()
        if pending is not None:
            self._again_ns = now_ns + self._period_ns
            return twin.take_in_lockstep(pending)
        if now_ns < self._again_ns:
            return False
        self._again_ns = now_ns + self._period_ns
        twin.stand_still()
        return True

    def _pass_time(self, twin: PacedTwin, pending: Mapping[str, Array] | None) -> bool:
        """Lets the time up to now pass; whether a sample was due in it."""
        stamp_ns, sent_ns = self._sent_ns
        now_ns = time.monotonic_ns()
        measured = False
        # A command belongs between the samples before and after it, however many of them this call makes up for.
        while pending is not None and twin.due_ns <= sent_ns:
            twin.tick(sent_ns)
            measured = True
        if pending is not None:
            twin.take(pending, stamp_ns, sent_ns)
        while twin.due_ns <= now_ns:
            twin.tick(now_ns)
            measured = True
        return measured

    def _copy(self, twin: PacedTwin) -> None:
        sample = self._sample
        for name, values in twin.twin.fields.items():
            sample.fields[name][:] = values
            sample.stamps_ns[name] = twin.stamp_ns
        sample.stamp_ns, sample.received_ns = twin.stamp_ns, time.monotonic_ns()
        sample.sequence += 1

    def wait(self, timeout_s: float) -> bool:
        """See `Transport.wait`."""
        end_ns = time.monotonic_ns() + round(timeout_s * NANOSECONDS)
        while not self.poll():
            now_ns = time.monotonic_ns()
            if now_ns >= end_ns:
                return False
            until_ns = min(end_ns, self._again_ns if self._lockstep else self._opened().due_ns)
            time.sleep(max(0, until_ns - now_ns) / NANOSECONDS)
        return True

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """See `Transport.send`."""
        self._opened()
        self._pending = {name: values.reshape(-1).copy() for name, values in targets.items()}
        self._sent_ns = stamp_ns, time.monotonic_ns()

    def missing(self) -> tuple[tuple[str, float], ...]:
        """Nothing is ever missing: the twin measures all there is."""
        return ()

    def problems(self) -> tuple[str, ...]:
        """See `Transport.problems`."""
        if self._twin is None:
            return ()
        tally = self._twin.tally
        told: list[str] = []
        if tally.lost_s > 0.0:
            told.append(f"sim: {tally.lost_s:.3f} s were left out because this process was late")
        if tally.unsafe:
            told.append(f"sim: {tally.unsafe} commands were not finite or outside the safety envelope, and not obeyed")
        return tuple(told)

    def close(self) -> None:
        """See `Transport.close`."""
        self._twin = None


class ProcessTransport:
    """The twin in a process of its own: `physai robot simulate`, behind a transport of the robot's."""

    name = "sim"

    def __init__(self, options: Mapping[str, str], inner: Mapping[str, str]) -> None:
        """See `make_transport`; `inner` are the options of the transport between the two processes."""
        over = options["over"]
        if over not in robot_link_names():
            raise unknown_name("transport with a robot's end", over, robot_link_names())
        self._options = dict(options)
        self._wire = {**_apart(over), **inner}
        self._inner = open_transport(over, _runtime_options(over, self._wire))
        self.process: subprocess.Popen[str] | None = None
        """The other process, while it is wanted."""
        self.tally: dict[str, Any] | None = None
        """What the other process has counted; None as long as it runs."""

    def open(self, contract: PolicyContract) -> None:
        """See `Transport.open`; starts the other process."""
        command = [sys.executable, "-m", "physai.sim.cli.virtual_robot", _task_name(contract, self._options), "--json"]
        command += ["--transport", self._options["over"], "--fingerprint", contract.fingerprint]
        command += ["--parent", str(os.getpid())]
        for name in ("twin", "robot", "preset", "clock", "seed"):
            if name in self._options:
                command += [f"--{name}", self._options[name]]
        for name, value in self._wire.items():
            command += ["--set", f"{name}={value}"]
        self._inner.open(contract)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def _require_alive(self) -> None:
        process = self.process
        if process is None or process.poll() is not None:
            ended = "is not open" if process is None else f"ended with exit code {process.returncode}"
            raise TransportError(f"the transport sim: its other process {ended}")

    def sample(self) -> Sample:
        """See `Transport.sample`."""
        return self._inner.sample()

    def poll(self) -> bool:
        """See `Transport.poll`."""
        return self._inner.poll()

    def wait(self, timeout_s: float) -> bool:
        """See `Transport.wait`; ends with an error once the other process has ended."""
        end = time.monotonic() + timeout_s
        while True:
            self._require_alive()
            left = end - time.monotonic()
            if self._inner.wait(max(0.0, min(ALIVE_S, left))):
                return True
            if not left > ALIVE_S:
                return False

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """See `Transport.send`."""
        self._inner.send(targets, stamp_ns)

    def missing(self) -> tuple[tuple[str, float], ...]:
        """See `Transport.missing`."""
        return self._inner.missing()

    def problems(self) -> tuple[str, ...]:
        """See `Transport.problems`."""
        process = self.process
        code = None if process is None else process.poll()
        ended = () if code is None else (f"sim: its other process has ended with exit code {code}",)
        return (*ended, *self._inner.problems())

    def forget(self) -> None:
        """See `SupportsReset`."""
        if isinstance(self._inner, SupportsReset):
            self._inner.forget()

    def close(self) -> None:
        """See `Transport.close`; ends the other process and keeps its tally."""
        process, self.process = self.process, None
        if process is not None:
            process.terminate()
            try:
                output, _ = process.communicate(timeout=STOP_S)
                self.tally = json.loads(output) if output.strip() else None
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        self._inner.close()


def _apart(over: str) -> dict[str, str]:
    """Options that keep a rehearsal apart from every real robot: what is sent to the twin must move nothing else."""
    if over == "dds":
        return {"domain": str(own_domain()), "range": "LOCALHOST"}
    if over == "udp":
        return {"bind": f"127.0.0.1:{free_port()}"}
    return {}


def own_domain() -> int:
    """The DDS domain of a twin that belongs to this process; another process has the same one by chance only."""
    return OWN_DOMAINS[os.getpid() % len(OWN_DOMAINS)]


def free_port() -> int:
    """One of the own ports; any of them, as several twins may look for one at the same time.

    Raises:
        TransportError: none of those that were tried is free.
    """
    for port in random.SystemRandom().sample(OWN_PORTS, MAX_TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise TransportError(f"none of {MAX_TRIES} UDP ports in {OWN_PORTS.start} … {OWN_PORTS.stop - 1} is free")


def _runtime_options(over: str, robot: Mapping[str, str]) -> dict[str, str]:
    """Options of the runtime's end for those of the robot's: over UDP the one's port is the other's destination."""
    if over == "udp":
        return {"robot" if name == "bind" else name: value for name, value in robot.items()}
    return dict(robot)
