"""`--seeds`: which are named, and which options do not go with it."""

import pytest

from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.main import main
from physai.train.api.seeds import parse_seeds


@pytest.mark.parametrize(
    ("text", "seeds"), [("0..4", [0, 1, 2, 3, 4]), ("7..7", [7]), ("0,3,7", [0, 3, 7]), ("5", [5]), ("9,1", [9, 1])]
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text",
    ["", "a", "0..", "..4", "4..0", "0..1000", "-1..3", "1,,2", "1,1", "0...4", "1.5", "0..99999999999999999999"],
)
def test_what_is_no_list_of_seeds(text: str) -> None:
    with pytest.raises(PhysaiError, match="`seeds`"):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "1"], "does not go with --seed"),
        (["--resume", "somewhere"], "run the same command again"),
        (["--gpus", "2"], "does not go with --gpus"),
        (["--set", "seed=3"], "leave out --set seed"),
    ],
)
def test_options_that_mean_nothing_for_several_runs(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "cartpole-swingup", "--seeds", "0..1", *words]) == 2
    assert message in capsys.readouterr().err
