"""Success rate on the robot, from field episodes, their replays and the twin's own episodes."""

import numpy as np

from physai.gates.checks.gate import Context, GateFinding, Play, RateRun
from physai.sdk.evidence.field_episodes import FieldEpisodes
from physai.sdk.evidence.verdict import Measurement
from physai.sdk.stats.prediction_powered import prediction_powered_interval


def add_field_rate(context: Context, field: FieldEpisodes, run: RateRun, finding: GateFinding) -> Play:
    """Append measurements of the success rate on the robot to a finding, and return it; its outcome does not change.

    Args:
        context: subject and settings of the run.
        field: the field episodes.
        run: the rate test under calibrated conditions.
        finding: the finding to complete.
    """
    # The test stops when its rate looks good or bad, so the episodes up to its budget are played, too: their number
    # must not depend on their outcomes.
    size, most = context.settings.batch, context.settings.success.max_episodes
    calibrated, first = context.conditions["calibrated"], size * len(run.batches)
    rest = [context.batch(at // size, calibrated, count=min(size, most - at)) for at in range(first, most, size)]
    played = [*run.played, *((yield rest) if rest else [])]
    finding.episodes, finding.seeds = most, context.seed_range(most)
    pairs = np.array([(one.success, one.replay_success) for one in field.episodes])
    simulated = np.concatenate([result.success for result in played])
    found = prediction_powered_interval(pairs[:, 0], pairs[:, 1], simulated)
    rows = (
        ("success_rate.field", found.rate, *found.interval),
        ("success_rate.field_alone", found.field_rate, *found.field_interval),
        ("field_correlation", found.correlation.value, found.correlation.low, found.correlation.high),
        ("success_rate.replays", float(pairs[:, 1].mean()), None, None),
        ("success_rate.twin", float(simulated.mean()), None, None),
        ("field_episodes", found.pairs, None, None),
        ("field_episodes.effective", found.effective, None, None),
    )
    for name, value, lower, upper in rows:
        if value is not None:
            share = None if lower is None else found.confidence
            finding.measured.append(Measurement(name=name, value=value, lower=lower, upper=upper, confidence=share))
    return finding
