"""OpenEnv's own client and validator against the service.

Optional, because the package brings more than a hundred others: `pip install openenv` beside physai, then
`pytest tests/integration/service/test_openenv_client.py`.
"""

# The package may be missing where types are checked.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false

import asyncio
import json
import subprocess
import sys
from collections.abc import Generator

import pytest

from physai.service.serving.process import ServiceProcess, running_service

pytest.importorskip("openenv.core", reason="needs OpenEnv: pip install openenv")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as service:
        yield service


@pytest.mark.parametrize("profile", ["single", "batch", "skills"])
@pytest.mark.parametrize("task", ["cartpole-swingup", "ur10e-reach"])
def test_the_validator_passes(service: ServiceProcess, profile: str, task: str) -> None:
    command = [
        sys.executable,
        "-m",
        "openenv.cli",
        "validate",
        "--json",
        "--url",
        f"{service.url}/openenv/{profile}/{task}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120.0, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["passed"]
    assert report["summary"]["failed_criteria"] == []
    assert report["standard_profile"] == "openenv-http/1.x"


def test_the_generic_client_runs_an_episode(service: ServiceProcess) -> None:
    from openenv.core import GenericEnvClient

    with GenericEnvClient(base_url=f"{service.url}/openenv/single/cartpole-swingup").sync() as env:
        first = env.reset(seed=4)
        assert first.reward is None
        rewards: list[float] = []
        done = False
        while not done and len(rewards) < 2000:
            result = env.step({"joint_effort_target": [3.0]})
            rewards.append(result.reward)
            done = result.done
        assert done
        assert env.state()["step_count"] == len(rewards)
        again = env.reset(seed=4)
        assert again.observation == first.observation


def test_the_tool_client_moves_the_arm(service: ServiceProcess) -> None:
    from openenv.core.mcp_client import MCPToolClient

    async def drive() -> None:
        async with MCPToolClient(base_url=f"{service.url}/openenv/skills/ur10e-reach") as env:
            assert [tool.name for tool in await env.list_tools()] == ["read_state", "act", "move_to"]
            before = await env.call_tool("read_state")
            after = await env.call_tool("move_to", targets={"elbow_joint": 0.5}, seconds=3.0)
            elbow = before["joints"].index("elbow_joint")
            assert after["observations"]["joint_pos"][elbow] == pytest.approx(0.5, abs=0.05)
            assert (await env.reset(seed=1)).observation is not None

    asyncio.run(drive())


def test_a_model_context_protocol_client_moves_the_arm(service: ServiceProcess) -> None:
    client = pytest.importorskip("fastmcp", reason="needs FastMCP, which OpenEnv brings").Client

    async def drive() -> None:
        async with client(f"{service.url}/openenv/skills/ur10e-reach/mcp") as mcp:
            assert [tool.name for tool in await mcp.list_tools()] == ["read_state", "act", "move_to"]
            result = await mcp.call_tool("act", {"seconds": 0.32})
            assert result.structured_content["time"] == pytest.approx(0.32)

    asyncio.run(drive())
