"""The picture of a run's latencies: numbers are where they belong."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from benchmarks.robot.latency_picture import curve, drawing

from physai.deploy_jetson.telemetry.histogram import Histogram

SVG = "{http://www.w3.org/2000/svg}"


def histogram(*values_us: float) -> Histogram:
    made = Histogram()
    made.add(np.array([round(1000 * value) for value in values_us]))
    return made


def drawn(**stages: Histogram) -> ElementTree.Element:
    curves = [curve(name.replace("_", " "), values) for name, values in stages.items()]
    return ElementTree.fromstring(drawing(curves, deadline_us=1800.0, title="a < b", lines=["somewhere"]))


def lines(picture: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """Points of each curve."""
    paths = [path.get("d", "") for path in picture.iter(f"{SVG}path") if path.get("fill") == "none"]
    return [[(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)] for path in paths]


def heights(picture: ElementTree.Element) -> dict[str, float]:
    """Where the numbers of the vertical axis stand."""
    texts = [text for text in picture.iter(f"{SVG}text") if text.get("text-anchor") == "end"]
    return {text.text or "": float(text.get("y", "nan")) - 4 for text in texts}


def test_a_stage_that_always_takes_100_us_is_a_level_line_there() -> None:
    picture = drawn(whole=histogram(*[100.0] * 1000), send=histogram(*[1.0] * 1000))
    (whole, send), axis = lines(picture), heights(picture)
    assert [y for _, y in whole] == pytest.approx([axis["100 µs"]] * len(whole), abs=0.2)
    assert [y for _, y in send] == pytest.approx([axis["1 µs"]] * len(send), abs=0.2)
    assert axis["10 ms"] < axis["1 ms"] < axis["100 µs"]


def test_the_rarest_is_at_the_right_end() -> None:
    (whole,) = lines(drawn(whole=histogram(*[10.0] * 999, 1000.0)))
    assert whole == sorted(whole)
    assert [y for _, y in whole] == sorted((y for _, y in whole), reverse=True)
    # One of a thousand: the curve leaves the common level at its very end only.
    assert sum(y == whole[0][1] for _, y in whole) > 0.95 * len(whole)


def test_the_deadline_the_title_and_the_names_are_there() -> None:
    picture = drawn(whole=histogram(5.0), timer_alone=histogram(7.0))
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"a < b", "somewhere", "deadline 1.8 ms", "whole", "timer alone"} <= set(texts)
