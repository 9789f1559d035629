"""A simulated teacher answers a database's questions, from the terms that its segments hold."""

import hashlib
from collections.abc import Mapping

import numpy as np

from physai.compute.sandbox.reward import UserReward
from physai.rlhf.answers.answers import Answer, Choice, Preference
from physai.rlhf.answers.preferences import rewards_of
from physai.rlhf.answers.segment import REWARD, PreferenceError, Segment, SegmentLayout
from physai.rlhf.answers.store import PreferenceStore
from physai.rlhf.answers.teachers import Rewards, Teacher, scale_of


def answer_simulated(
    store: PreferenceStore,
    teacher: Teacher,
    *,
    rater: str,
    taste: Mapping[str, float] | None = None,
    reward: UserReward | None = None,
    seed: int = 0,
    limit: int | None = None,
) -> int:
    """Answers what a rater has not answered yet.

    Args:
        store: the database.
        teacher: how it answers.
        rater: the name under which it does.
        taste: weights of named terms that it likes; None for the task's own reward.
        reward: what it likes instead, by a file of the user's.
        seed: of its chance, for each pair anew: a run that was cut off goes on as if it had not been.
        limit: greatest number of answers; None for all.

    Returns:
        Number of answers.

    Raises:
        PreferenceError: a segment is damaged, the rater's name is invalid, or an answer of this seed was taken back.
        UserRewardError: the user's file failed.
    """
    wanted = taste or {REWARD: 1.0}
    names = store.layout.terms
    rewards = {
        number: rewards_of(segment.terms, names, wanted)
        if reward is None
        else rewards_by_file(segment, store.layout, reward)
        for number, segment in store.segments().items()
    }
    sums = {number: float(values.sum()) for number, values in rewards.items()}
    count = 0
    while limit is None or count < limit:
        question = store.next_question(rater)
        if question is None:
            break
        present = [sums[number] for number in store.segments_of_last_source()]
        rng = np.random.default_rng([seed, question.pair])
        first, second = (question.right, question.left) if question.swapped else (question.left, question.right)
        said = teacher.answer(rewards[first], rewards[second], scale_of(list(sums.values()), present), rng)
        key = hashlib.sha256(f"{rater} {seed} {question.pair}".encode()).hexdigest()
        shown = as_shown(said, swapped=question.swapped)
        answer = Answer(key=key, pair=question.pair, rater=rater, choice=shown, swapped=question.swapped)
        if not store.record(answer) and store.next_question(rater) == question:
            raise PreferenceError(
                f"the answer of {rater!r} with seed {seed} to pair {question.pair} was taken back; give another `seed`"
            )
        count += 1
    return count


def rewards_by_file(segment: Segment, layout: SegmentLayout, reward: UserReward) -> Rewards:
    """Rewards by a user's file for each step of a segment, (T,); the number of a rubric is spread over its steps.

    Raises:
        UserRewardError: the file failed.
    """
    terms = {f"terms.{name}": segment.terms[:, column] for column, name in enumerate(layout.terms)}
    seen = {f"seen.{name}": segment.critic[:, column] for name, column in layout.named.items()}
    given = {"qpos": segment.qpos, "critic": segment.critic, "action": segment.action, **terms, **seen}
    score = reward.score(given)
    steps = len(segment.qpos)
    return score if reward.form == "reward" else np.full(steps, score[0] / steps)


def as_shown(said: Preference, *, swapped: bool) -> Choice:
    """A preference as the choice between left and right."""
    if said in ("equal", "cannot_tell"):
        return said
    return "left" if (said == "first") != swapped else "right"
