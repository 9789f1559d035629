"""Quantities of a motion that a person sees, as numbers with names: links, their lean, speeds of the joints.

The task's metrics are among them, although the page of pairs does not draw the target that some are measured from.

What a critic sees says the same only indirectly: that an arm's tool points down follows from six joint angles. Sixty
answers do not tell a function of six angles from what happens to go along with it; they tell one of a few dozen named
numbers (docs/explanation/rlhf.md). So tasks that learn from preferences show these numbers to the critic, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from physai.rlhf.answers.preferences import DERIVED, measures
from physai.sim.engines.protocol import Array, Stage
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import Task, Term, WorldView

MAX_LABEL = 128
"""Characters of a link's name that are used; a model's names may have any length."""


def seen_names(task: Task) -> tuple[str, ...]:
    """Names of what a person sees of a task's motions.

    For each link that a joint moves: `x`, `y` and `z` of its frame in the world [m], and `lean_x`, `lean_y` and
    `lean_z`, the vertical components of its axes: 1 where an axis points up, -1 where it points down. Then the measures
    that a taste may name, and the task's metrics, such as the distance of an arm's tool from its target. Of a robot
    without a fixed base there is no `x` and `y`, for its place is nothing to like.
    """
    kinds = ("x", "y", "z", "lean_x", "lean_y", "lean_z") if _fixed(task) else ("z", "lean_x", "lean_y", "lean_z")
    links = _labels({number: task.model.body(number).name for number in _links(task)})
    return *(f"{kind}.{link}" for kind in kinds for link in links), *_numbers(task)


def with_seen(task: Task) -> Task:
    """The task, whose critic sees what `seen_names` names, too; its policy, rewards and worlds are the same."""
    if task.seen:
        return task
    everything, names = _everything(task), seen_names(task)

    def critic(view: WorldView) -> Array:
        return view.xp.concatenate([task.critic(view), everything(view)], axis=1)

    return replace(
        task,
        critic=critic,
        critic_size=task.critic_size + len(names),
        seen=names,
        stage=max(task.stage, Stage.POSITION),
        derived=tuple(dict.fromkeys((*task.derived, *DERIVED))),
    )


def _fixed(task: Task) -> bool:
    return task.contract.robot.base == "fixed"


def _links(task: Task) -> list[int]:
    """Bodies with joints of their own, in the model's order."""
    return np.flatnonzero(np.asarray(task.model.body_jntnum) > 0).tolist()


def _labels(links: Mapping[int, str]) -> list[str]:
    """The links' names, short enough for a layout; with their numbers if any two would be the same."""
    labels = [(name or f"body{number}")[:MAX_LABEL] for number, name in links.items()]
    if len(set(labels)) == len(labels):
        return labels
    return [f"{label}#{number}" for label, number in zip(labels, links, strict=True)]


def _numbers(task: Task) -> dict[str, Term]:
    """Measures and metrics; the names of links have a dot."""
    own = measures(task)
    metrics = {name: term for name, term in task.metrics.items() if "." not in name and len(name) <= MAX_LABEL}
    return own | {name: term for name, term in metrics.items() if name not in own}


def _everything(task: Task) -> Callable[[WorldView], Array]:
    links, fixed = Constant(_links(task)), _fixed(task)
    named: list[Term] = list(_numbers(task).values())

    def everything(view: WorldView) -> Array:
        xp = view.xp
        position = xp.take(view.derived["xpos"], links.like(view.qpos), axis=1)
        q = xp.take(view.derived["xquat"], links.like(view.qpos), axis=1)
        w, x, y, z = (q[:, :, column] for column in range(4))
        # The last row of the rotation matrix.
        lean = [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)]
        places = [position[:, :, axis] for axis in ((0, 1, 2) if fixed else (2,))]
        return xp.concatenate([*places, *lean, *(measure(view)[:, None] for measure in named)], axis=1)

    return everything
