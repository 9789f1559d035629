"""The transport `sim`: a twin in the runtime's process, or in a subprocess behind DDS or UDP.

The runtime finds it as entry point `sim` of the group `physai.transports`; the only interface between the two is
`physai.sdk.transport.protocol`.
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
from physai.sdk.contract.contract_diff import diff, format_diff
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
from physai.sim.policies.foreign_contract import following
from physai.sim.policies.resolve import named_source
from physai.sim.tasks.registry import built_in_task
from physai.sim.tasks.task import Task
from physai.twin.model.twin import Twin, load_twin
from physai.twin.virtual_robot.paced_twin import NANOSECONDS, PacedTwin, RuntimeTally
from physai.twin.virtual_robot.process import Clock
from physai.twin.virtual_robot.robot_twin import RobotTwin

OPTIONS = {
    "task": "task name, Python file or run folder (default: the contract's task, if built in)",
    "twin": "twin.json with the robot's measured parameters, lag, noise and jitter",
    "robot": "robot to use, for tasks that accept another one",
    "preset": "variant of the task",
    "clock": "realtime (default), or lockstep: each command advances the simulation by one control period",
    "seed": "seed of all random numbers (default: 0)",
    "noise": "task (default), or none: noise and biases of the task's sensors, with which a robot may never be at rest",
    "over": "dds or udp: run the twin in a subprocess behind that transport; its options have the prefix `over.`",
}
MAX_SEED = 2**32 - 1
OWN_DOMAINS = range(102, 215)
"""DDS domains for twins in a subprocess, against which ROS 2 advises for robots.

Source: https://docs.ros.org/en/jazzy/Concepts/Intermediate/About-Domain-ID.html
"""
OWN_PORTS = range(10_000, 32_000)
"""UDP ports for twins in a subprocess: below Linux's ephemeral range, so that the kernel assigns none to others.

Source: net.ipv4.ip_local_port_range, https://docs.kernel.org/networking/ip-sysctl.html, by default from 32768 on.
"""
ALIVE_S = 0.2
"""Period of checking that the subprocess is alive [s]."""
MAX_TRIES = 100  # ports
STOP_S = 5.0  # that the subprocess gets to exit


def make_transport(options: Mapping[str, str]) -> Transport:
    """Makes the transport `sim`: in this process, or with the option `over` in a subprocess.

    Raises:
        UnknownNameError: an option is unknown.
        TransportError: an option has an invalid value.
    """
    own = {name: value for name, value in options.items() if not name.startswith("over.")}
    for name in own:
        if name not in OPTIONS:
            raise unknown_name("option of transport sim", name, OPTIONS)
    for name, known in (("clock", get_args(Clock)), ("noise", ("task", "none"))):
        if own.get(name, known[0]) not in known:
            raise TransportError(f"option {name}: {own[name]!r}, expected {' or '.join(known)}")
    seed = own.get("seed", "0")
    if not (seed.isascii() and seed.isdigit() and int(seed) <= MAX_SEED):
        raise TransportError(f"option seed: {seed!r}, expected 0 … {MAX_SEED}")
    if "over" in own:
        return ProcessTransport(own, {n.removeprefix("over."): v for n, v in options.items() if n.startswith("over.")})
    if len(own) < len(options):
        raise TransportError("options with the prefix `over.` need the option over")
    return SimTransport(own)


def simulated_robot(
    contract: PolicyContract | None, options: Mapping[str, str], *, seed: int
) -> tuple[Task, RobotTwin]:
    """Loads a task and its robot's twin.

    Args:
        contract: the runtime's; None to use the task's.
        options: `task` (required without a contract), `twin`, `robot`, `preset` and `noise`.
        seed: seed of all random numbers.

    Raises:
        TransportError: the task's contract differs from `contract`.
        PhysaiError: the task or the twin cannot be loaded.
    """
    name, robot = _task_name(contract, options), options.get("robot")
    task = named_source(name, robot=robot, preset=options.get("preset")).load()
    task = task.without_noise() if options.get("noise") == "none" else task
    if contract is not None and contract.format_version >= 3:  # of a policy from elsewhere
        task = following(task, contract)
    if contract is not None and contract.fingerprint != task.contract.fingerprint:
        difference = format_diff(diff(contract, task.contract), left="policy", right="task")
        raise TransportError(f"the contract of task {task.name} differs from the policy's:\n{difference}")
    twin: Twin | None = load_twin(Path(options["twin"])) if "twin" in options else None
    return task, RobotTwin(task, twin, seed=seed)


def _task_name(contract: PolicyContract | None, options: Mapping[str, str]) -> str:
    """The task that the user named, or the contract's task if it is built in.

    Raises:
        TransportError: the contract's task is not built in.
    """
    if "task" in options or contract is None:
        return options.get("task", "")
    try:
        # Never load a task file by a name from the policy: that would run code of the policy's choice.
        return built_in_task(contract.task, source="the policy")
    except TaskError as error:
        raise TransportError(f"{error}; for the transport sim: --set task=PATH") from None


class SimTransport:
    """The twin in the runtime's process.

    Physics runs in `poll` and `wait`, outside the timed part of a tick. With clock `realtime` the twin follows this
    computer's clock, however late `poll` is called; with `lockstep` each command advances it by one control period.
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
            raise TransportError("the transport sim is already open")
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
        """The robot's statistics of the runtime."""
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
                self._fresh |= self._poll_lockstep(twin, pending)
            else:
                self._fresh |= self._poll_realtime(twin, pending)
        except TransportError:
            raise
        except PhysaiError as error:
            raise TransportError(str(error)) from error
        if not self._fresh:
            return False
        self._fresh = False
        self._copy(twin)
        return True

    def _poll_lockstep(self, twin: PacedTwin, pending: Mapping[str, Array] | None) -> bool:
        """Advances by one control period if there is a command, otherwise repeats the sample once per period."""
        now_ns = time.monotonic_ns()
        if pending is not None:
            self._again_ns = now_ns + self._period_ns
            return twin.take_in_lockstep(pending)
        if now_ns < self._again_ns:
            return False
        self._again_ns = now_ns + self._period_ns
        twin.stand_still()
        return True

    def _poll_realtime(self, twin: PacedTwin, pending: Mapping[str, Array] | None) -> bool:
        """Advances to the current time; returns whether a sample was due."""
        stamp_ns, sent_ns = self._sent_ns
        now_ns = time.monotonic_ns()
        measured = False
        # Apply the command at its send time, between the samples before and after it, even if `poll` is late.
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
        """Always empty: `open` checked that the twin measures every required field."""
        return ()

    def problems(self) -> tuple[str, ...]:
        """See `Transport.problems`."""
        if self._twin is None:
            return ()
        tally = self._twin.tally
        problems: list[str] = []
        if tally.lost_s > 0.0:
            problems.append(f"sim: skipped {tally.lost_s:.3f} s because this process fell behind")
        if tally.unsafe:
            problems.append(f"sim: rejected {tally.unsafe} commands: not finite or outside the safety envelope")
        return tuple(problems)

    def close(self) -> None:
        """See `Transport.close`."""
        self._twin = None


class ProcessTransport:
    """The twin in a subprocess, `physai robot simulate`, behind one of the robot's transports."""

    name = "sim"

    def __init__(self, options: Mapping[str, str], inner: Mapping[str, str]) -> None:
        """See `make_transport`; `inner` holds the options of the transport between the two processes."""
        over = options["over"]
        if over not in robot_link_names():
            raise unknown_name("transport with a robot endpoint", over, robot_link_names())
        self._options = dict(options)
        self._link_options = {**_isolated(over), **inner}
        self._inner = open_transport(over, _runtime_options(over, self._link_options))
        self.process: subprocess.Popen[str] | None = None
        """The subprocess while the transport is open."""
        self.tally: dict[str, Any] | None = None
        """The subprocess's statistics, available after `close`."""

    def open(self, contract: PolicyContract) -> None:
        """See `Transport.open`; starts the subprocess."""
        command = [sys.executable, "-m", "physai.sdk.cli", "robot", "simulate"]
        command += [_task_name(contract, self._options), "--json"]
        command += ["--transport", self._options["over"], "--fingerprint", contract.fingerprint]
        # The subprocess ends with its parent, even if that is killed.
        command += ["--parent", str(os.getpid())]
        for name in ("twin", "robot", "preset", "clock", "seed"):
            if name in self._options:
                command += ["--model" if name == "robot" else f"--{name}", self._options[name]]
        for name, value in self._link_options.items():
            command += ["--set", f"{name}={value}"]
        # First the link, then the process: no sample is lost while it starts.
        self._inner.open(contract)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def _require_alive(self) -> None:
        process = self.process
        if process is None or process.poll() is not None:
            state = "is not running" if process is None else f"exited with code {process.returncode}"
            raise TransportError(f"the transport sim: its subprocess {state}")

    def sample(self) -> Sample:
        """See `Transport.sample`."""
        return self._inner.sample()

    def poll(self) -> bool:
        """See `Transport.poll`."""
        return self._inner.poll()

    def wait(self, timeout_s: float) -> bool:
        """See `Transport.wait`; raises TransportError once the subprocess has exited."""
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
        exited = () if code is None else (f"sim: the subprocess exited with code {code}",)
        return (*exited, *self._inner.problems())

    def forget(self) -> None:
        """See `SupportsReset`."""
        if isinstance(self._inner, SupportsReset):
            self._inner.forget()

    def close(self) -> None:
        """See `Transport.close`; stops the subprocess and reads its tally."""
        process, self.process = self.process, None
        if process is not None:
            process.terminate()
            try:
                output, _ = process.communicate(timeout=STOP_S)
                self.tally = json.loads(output) if output.strip() else None
            except subprocess.TimeoutExpired:
                process.kill()
                # Reaps the killed process and closes its pipe.
                process.communicate()
        self._inner.close()


def _isolated(over: str) -> dict[str, str]:
    """Options that isolate the twin from real robots: commands sent to it must not move anything else."""
    if over == "dds":
        return {"domain": str(own_domain()), "range": "LOCALHOST"}
    if over == "udp":
        return {"bind": f"127.0.0.1:{free_port()}"}
    return {}


def own_domain() -> int:
    """The DDS domain for twins started by this process; shared with another process by coincidence only."""
    return OWN_DOMAINS[os.getpid() % len(OWN_DOMAINS)]


def free_port() -> int:
    """A free port of OWN_PORTS.

    Raises:
        TransportError: none of the ports tried is free.
    """
    # At random, since several twins may search at the same time.
    for port in random.SystemRandom().sample(OWN_PORTS, MAX_TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise TransportError(f"none of {MAX_TRIES} UDP ports in {OWN_PORTS.start} … {OWN_PORTS.stop - 1} is free")


def _runtime_options(over: str, robot: Mapping[str, str]) -> dict[str, str]:
    """Converts the robot's link options to the runtime's: over UDP the robot's `bind` is the runtime's `robot`."""
    if over == "udp":
        return {"robot" if name == "bind" else name: value for name, value in robot.items()}
    return dict(robot)
