"""What `physai train` says of generators."""

import pytest

from physai.cluster.cli.generators import described
from physai.train.settings.config import TrainConfig


@pytest.mark.parametrize(
    ("generators", "staleness", "text"),
    [(None, 0, ""), (1, 0, " on 1 generator"), (2, 0, " on 2 generators"), (1, 3, " on 1 generator, staleness 3")],
)
def test_one_generator_is_not_several(generators: int | None, staleness: int, text: str) -> None:
    assert described(generators, TrainConfig(staleness=staleness)) == text
