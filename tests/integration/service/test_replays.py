"""Two policies on the same seeds: what is played is what the recordings say, in step."""

from collections.abc import Generator
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.support.service import trained_policy

from physai.service.serving.process import ServiceProcess, running_service
from physai.service.view.replay import ReplayedMotions
from physai.sim.playback.recordings.recording_reader import Recording, read_recording
from physai.sim.tasks.registry import load_task


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=1) as service:
        yield service


def play(service: ServiceProcess, policy: str, seed: int) -> str:
    job = service.client.submit("play", {"policy": policy, "seed": seed, "duration_s": 3.0})
    for _ in service.client.follow(job):
        pass
    found = service.client.job(job)
    assert found["state"] == "succeeded", found
    return job


@pytest.mark.slow
def test_two_policies_meet_the_same_world_and_are_shown_in_step(service: ServiceProcess, tmp_path: Path) -> None:
    jobs = [play(service, trained_policy(service, seed=seed), 5) for seed in (0, 1)]
    recordings: list[Recording] = []
    for job in jobs:
        path = tmp_path / f"{job}.mcap"
        path.write_bytes(httpx.get(f"{service.url}/v1/jobs/{job}/artefacts/motion.mcap").content)
        recordings.append(read_recording(path))
    one, two = (recording.episodes[0] for recording in recordings)
    assert one.seed == two.seed
    assert np.array_equal(one.qpos[0], two.qpos[0])
    assert not np.array_equal(one.qpos[-1], two.qpos[-1])
    replay = ReplayedMotions(load_task("cartpole-swingup").model, ["A", "B"], recordings)
    for step in (0, 1, 37):
        # A little later than the moment, because times are rounded to nanoseconds.
        shown = replay.at(float(one.time_s[step]) + 1e-6)
        assert np.array_equal(shown, [one.qpos[step], two.qpos[step]])
    assert np.array_equal(replay.at(1e6), [recording.episodes[-1].qpos[-1] for recording in recordings])
    answer = httpx.post(f"{service.url}/v1/replays", json={"jobs": jobs})
    assert answer.status_code == 200, answer.text
    assert answer.json()["worlds"] == 2
    assert len(answer.json()["outcomes"]) == 2
    assert httpx.get(service.url + answer.json()["url"]).status_code == 200


@pytest.mark.slow
def test_what_cannot_be_shown(service: ServiceProcess) -> None:
    job = play(service, trained_policy(service), 1)
    other = play(service, trained_policy(service, task="pendubot-swingup"), 1)
    train = service.client.submit("train", {"task": "cartpole-swingup", "iterations": 1})
    expected = {(): 422, (job,) * 5: 422, ("none",): 404, (train,): 409, (job, other): 409}
    for jobs, status in expected.items():
        answer = httpx.post(f"{service.url}/v1/replays", json={"jobs": list(jobs)})
        assert answer.status_code == status, answer.text
        assert answer.json()["detail"]
