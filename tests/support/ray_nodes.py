"""A Ray cluster of several nodes on one machine: on loopback addresses, or as hosts of their own in network namespaces.

A node is `ray start` in a process group of its own, so it can be killed as a whole. A host is a namespace with an
address of its own, whose cable to the bridge that joins all can be pulled.
"""

import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from physai.compute.ray.ray_environment import shared_token

START_S = 120.0
"""How long a node may take to start [s]."""
STORE_BYTES = 100_000_000
FAST_DETECTION = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
}
"""The head notices within about 6 s that a node does not answer, instead of Ray's 15 to 65 s."""


@dataclass(frozen=True)
class Node:
    """A node of a cluster."""

    number: int
    address: str
    process: subprocess.Popen[bytes]
    namespace: str | None
    log: Path


def _run(*words: str) -> None:
    finished = subprocess.run(words, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, f"{' '.join(words)}: {finished.stderr}"


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def why_no_hosts() -> str | None:
    """Why namespaces cannot be made here; None if they can."""
    if shutil.which("ip") is None:
        return "no `ip` (iproute2) to make network namespaces with"
    name = f"physai-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"network namespaces are not permitted: {tried.stderr.strip()}"
    bridge = f"phb{os.getpid()}"
    bridged = subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)
    _run("ip", "netns", "del", name)
    return None if bridged.returncode == 0 else "bridges are not permitted"


def _token_of_this_process() -> str | None:
    """What a cluster has to have that this process can join: once it had one with a token, Ray presents that to all."""
    raylet: Any = importlib.import_module("ray._raylet")
    return shared_token() if raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN else None


class RayNodes:
    """Nodes of one cluster; the first is the head. Use `ray_nodes`."""

    def __init__(self, folder: Path, *, hosts: bool, token: str | None = None) -> None:
        self._folder, self._hosts, self._token = folder, hosts, token or _token_of_this_process()
        self._port, self._started = free_port(), 0
        self._bridge = f"phb{os.getpid()}"
        self._cables: dict[int, str] = {}
        self.nodes: list[Node] = []
        if hosts:
            # RFC 2544 keeps these addresses for tests of networks.
            self._net = f"198.18.{os.getpid() % 256}"
            _run("ip", "link", "add", self._bridge, "type", "bridge")
            _run("ip", "addr", "add", f"{self._net}.1/24", "dev", self._bridge)
            _run("ip", "link", "set", self._bridge, "up")
        else:
            self._net = "127.0.0"

    @property
    def address(self) -> str:
        """What `--ray` takes."""
        return f"{self._net}.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """Of everything that joins the cluster."""
        token = {"RAY_AUTH_MODE": "disabled"}
        if self._token is not None:
            token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token}
        return {
            **FAST_DETECTION,
            **token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            # Worker processes are not started before somebody asks for them.
            "RAY_prestart_worker_first_driver": "0",
            "RAY_enable_worker_prestart": "0",
        }

    def start(
        self,
        *,
        cpus: int,
        resources: Mapping[str, float] | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Node:
        """Starts a node, the head first, and does not wait for the others; see `await_all`.

        The head is on the machine's own side of the bridge, where a learner in the calling process is, too.
        """
        self._started += 1
        number = self._started
        address = f"{self._net}.{number}"
        namespace = self._host(number) if self._hosts and number > 1 else None
        common = [
            *("--node-ip-address", address, "--num-cpus", str(cpus), "--block"),
            # A folder each: nodes that share one and start at the same time choose the same names for their sockets.
            *("--temp-dir", str(self._folder / str(number))),
            *("--object-store-memory", str(STORE_BYTES), "--min-worker-port", "0", "--max-worker-port", "0"),
            *("--resources", "{" + ", ".join(f'"{k}": {v}' for k, v in (resources or {}).items()) + "}"),
            *(() if name is None else ("--node-name", name)),
            *(() if labels is None else ("--labels", ",".join(f"{k}={v}" for k, v in labels.items()))),
        ]
        words = ["--address", self.address]
        if number == 1:
            words = [
                *("--head", "--port", str(self._port), "--ray-client-server-port", str(free_port())),
                *("--include-dashboard", "false"),
            ]
        log = self._folder / f"node-{number}.log"
        prefix = [] if namespace is None else ["ip", "netns", "exec", namespace]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "ray.scripts.scripts", "start", *words, *common],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment, **(environment or {})},
                start_new_session=True,
            )
        node = Node(number, address, process, namespace, log)
        self.nodes.append(node)
        if number == 1:
            self._until_started(node)
        return node

    def _host(self, number: int) -> str:
        """A namespace with an address, joined to the bridge by a pair of interfaces."""
        name, cable = f"physai-{os.getpid()}-{number}", f"phv{os.getpid()}n{number}"
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", cable, "master", self._bridge, "up")
        _run("ip", "-n", name, "addr", "add", f"{self._net}.{number}/24", "dev", "eth0")
        _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", name, "link", "set", "eth0", "up")
        # Ray finds a host's own address by its way to the world.
        _run("ip", "-n", name, "route", "add", "default", "via", f"{self._net}.1")
        self._cables[number] = cable
        return name

    def prefix(self, node: Node) -> list[str]:
        """Words before a command that is to run on a node's host."""
        if node.namespace is None:
            return []
        # Ray joins any node whose process it finds, and a host does not have another one's.
        others = [pid for one in self.nodes if one is not node for pid in processes_of_session(one.process.pid)]
        hidden = [f"mount -t tmpfs none /proc/{pid}; " for pid in others if _program(pid) == "raylet"]
        return ["ip", "netns", "exec", node.namespace, "sh", "-c", "".join(hidden) + 'exec "$@"', "sh"]

    def await_all(self) -> None:
        """Waits for every node that was started."""
        for node in self.nodes:
            self._until_started(node)

    def _until_started(self, node: Node) -> None:
        end = time.monotonic() + START_S
        while b"Ray runtime started" not in node.log.read_bytes():
            said = node.log.read_text(errors="replace")[-2000:]
            assert node.process.poll() is None, f"node {node.number} ended: {said}"
            assert time.monotonic() < end, f"node {node.number} did not start in {START_S:.0f} s: {said}"
            time.sleep(0.1)

    def kill(self, node: Node) -> None:
        """Kills all processes of a node, as when its power fails."""
        for pid in processes_of_session(node.process.pid):
            _signal(pid, signal.SIGKILL)
        node.process.wait()
        self.nodes.remove(node)

    def kill_raylet(self, node: Node) -> None:
        """Kills Ray's own process of a node, which its workers do not survive."""
        found = [pid for pid in processes_of_session(node.process.pid) if _program(pid) == "raylet"]
        assert len(found) == 1, f"node {node.number} has {len(found)} raylets"
        _signal(found[0], signal.SIGKILL)

    @contextmanager
    def stopped(self, node: Node, *, whole: bool) -> Generator[None]:
        """Stops the head's own process, or all of a node's, while the block runs; connections to it stay open."""
        found = [pid for pid in processes_of_session(node.process.pid) if whole or _program(pid) == "gcs_server"]
        assert found, f"node {node.number} has no such process"
        for pid in found:
            _signal(pid, signal.SIGSTOP)
        yield
        for pid in found:
            _signal(pid, signal.SIGCONT)

    def cut(self, node: Node) -> None:
        """Pulls the cable between a host and all others; nothing that is sent arrives, and no error is reported."""
        _run("ip", "link", "set", self._cables[node.number], "nomaster")

    def heal(self, node: Node) -> None:
        """Plugs the cable in again."""
        _run("ip", "link", "set", self._cables[node.number], "master", self._bridge)

    def close(self) -> None:
        """Ends all nodes and takes the network away."""
        for node in reversed(list(self.nodes)):
            self.kill(node)
        for number, cable in self._cables.items():
            subprocess.run(["ip", "link", "del", cable], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", f"physai-{os.getpid()}-{number}"], capture_output=True, check=False)
        if self._hosts:
            subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: state, parent, group, session, …."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def processes_of_session(session: int) -> list[int]:
    """The processes of a session that `start_new_session` began, and their descendants, which may have left it."""
    stats = {int(entry.name): _stat(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    found = {pid for pid, stat in stats.items() if stat and int(stat[3]) == session}
    while more := {pid for pid, stat in stats.items() if stat and int(stat[1]) in found} - found:
        found |= more
    return sorted(found)


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace").rpartition("/")[2]
    except OSError:
        return ""


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def alive(ray: Any, role: str = "GeneratorActor") -> Counter[str]:
    """How many actors of a class are on each node, as the cluster itself has noted them."""
    state: Any = importlib.import_module("ray._private.state")
    names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
    return Counter(
        names[entry["Address"]["NodeID"]]
        for entry in state.actors().values()
        if entry["ActorClassName"] == role and entry["State"] == "ALIVE"
    )


@contextmanager
def ray_nodes(cpus: Sequence[int], *, hosts: bool = False, token: str | None = None) -> Generator[RayNodes]:
    """A cluster while the block runs; the test is skipped where it cannot be made.

    Args:
        cpus: processors that each node has to give, of the head first.
        hosts: nodes other than the head are hosts of their own, in network namespaces (needs root).
        token: which everything that joins has to have; None for what this process can join.
    """
    pytest.importorskip("ray")
    if hosts and (reason := why_no_hosts()) is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        # Short, because the path of a socket has at most 107 bytes.
        folder = Path(tempfile.mkdtemp(prefix="phr"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        nodes = RayNodes(folder, hosts=hosts, token=token)
        stack.callback(nodes.close)
        for count in cpus:
            nodes.start(cpus=count)
        nodes.await_all()
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in nodes.environment.items():
            patched.setenv(name, value)
        yield nodes
