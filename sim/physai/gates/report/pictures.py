"""Pictures of an episode for a report, so that readers see which robot does what."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from physai.gates.execution.subject import ValidationSubject
from physai.sdk.base.errors import PhysaiError
from physai.sim.playback.moment import Moment
from physai.sim.playback.picture_subject import framing, markers_of
from physai.sim.playback.player import Player
from physai.sim.playback.rendering import Image, OffscreenRenderer, png_bytes
from physai.sim.playback.video import shrunk
from physai.sim.policies.devices import make_policy

SHOWN = 4
"""Pictures of the episode, the first of its start and the last of its end."""
WIDTH, HEIGHT = 320, 240


@dataclass(frozen=True)
class Filmstrip:
    """Pictures of one episode."""

    pictures: Sequence[str] = ()
    """`data:` addresses of PNG files, in the order of time."""
    times_s: Sequence[float] = ()
    """Time of each picture since the start of the episode [s]."""
    caption: str = ""
    """What is shown, or why there are no pictures."""


def filmstrip(subject: ValidationSubject) -> Filmstrip:
    """Play one episode of the validated policy with the nominal parameters and draw `SHOWN` moments of it.

    Args:
        subject: policy, task and seed of the validation.

    Returns:
        The pictures; none where the policy does not fit the task or OpenGL is missing, which the caption says.
    """
    try:
        policy = make_policy(subject.arms["policy"], source=str(subject.path), device=subject.device)
        player = Player(policy, subject.task, episodes=1, seed=subject.seed, randomise=False)
        moments = list(player)
        chosen = [moments[round(k * (len(moments) - 1) / (SHOWN - 1))] for k in range(SHOWN)]
        images = _drawn(subject, chosen)
    except PhysaiError as error:
        return Filmstrip(caption=f"No picture: {error}")
    return Filmstrip(
        pictures=[f"data:image/png;base64,{b64encode(png_bytes(image)).decode()}" for image in images],
        times_s=[moment.time_s for moment in chosen],
        caption=f"{subject.task.robot.name}: one episode of this policy, in the simulation with nominal parameters",
    )


def _drawn(subject: ValidationSubject, moments: Sequence[Moment]) -> list[Image]:
    task = subject.task
    markers = markers_of(task)
    poses, points = framing(task, markers)
    with OffscreenRenderer(task.model, width=2 * WIDTH, height=2 * HEIGHT, poses=poses, points=points) as renderer:
        return [
            shrunk(
                renderer.render(moment.qpos, markers.at(moment.qpos, moment.commands) if markers else ()), WIDTH, HEIGHT
            )
            for moment in moments
        ]
