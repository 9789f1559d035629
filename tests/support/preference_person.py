"""A person who compares motions on the page of preferences, scripted: looks at what the page loaded, presses keys."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from tests.support.chromium import Browser, chromium

TIMEOUT_S = 60.0
LIKE = 0.05
"""Motions of which it sees so little more or less, as a share, look alike."""
KEYS = {"left": Keys.ARROW_LEFT, "right": Keys.ARROW_RIGHT, "equal": Keys.ARROW_UP}

# Notes what the page itself asks the service for and draws, without asking for anything more.
WATCH = """
window.watched = {pair: null, motions: {}};
const asked = window.fetch;
window.fetch = async (...request) => {
  const answer = await asked(...request);
  const url = String(request[0]), segment = /segments[/]([0-9]+)/.exec(url);
  if (segment && answer.ok) window.watched.motions[segment[1]] = await answer.clone().json();
  if (/preferences[/]next/.test(url) && answer.ok) window.watched.pair = (await answer.clone().json()).pair;
  return answer;
};
"""
SHOWN = """
const {pair, motions} = window.watched;
return document.getElementById('main').ariaBusy === 'false' && pair && motions[pair.left] && motions[pair.right]
  ? {id: pair.id, left: motions[pair.left], right: motions[pair.right]} : null;
"""


def _poses(motion: dict[str, Any]) -> npt.NDArray[np.float32]:
    """Positions [m] and orientations (wxyz) of the bodies, shape (frames, bodies, 7)."""
    poses: npt.NDArray[np.float32] = np.frombuffer(base64.b64decode(motion["poses"]), "<f4")
    return poses.reshape(motion["frames"], motion["bodies"], 7)


def tilt(motion: dict[str, Any]) -> float:
    """Mean angle between the z axis of the last body and straight down [rad]."""
    quat = _poses(motion)[:, -1, 3:]
    return float(np.arccos((2.0 * (quat[:, 1] ** 2 + quat[:, 2] ** 2) - 1.0).clip(-1.0, 1.0)).mean())


def less(left: float, right: float) -> str:
    """What someone answers who likes little of something."""
    if abs(left - right) <= LIKE * max(left, right):
        return "equal"
    return "left" if left < right else "right"


def answer_pairs(
    url: str,
    rater: str,
    pairs: int,
    dislike: Callable[[dict[str, Any]], float],
    picture: Path | None = None,
) -> list[tuple[int, str]]:
    """Answers pairs on the page of the service at a URL by keys; returns each pair's number and the answer given."""
    given: list[tuple[int, str]] = []
    with chromium() as browser:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        browser.get(f"{url}/prefer")
        _until(browser, lambda: browser.find_elements(By.ID, "rater"))
        browser.find_element(By.ID, "rater").send_keys(rater, Keys.ENTER)
        for number in range(pairs):
            shown = _until(browser, lambda number=number: _question(browser, number + 1))
            choice = less(dislike(shown["left"]), dislike(shown["right"]))
            if picture is not None and number == 1:
                browser.save_screenshot(str(picture))
            ActionChains(browser).send_keys(KEYS[choice]).perform()
            given.append((shown["id"], choice))
        # The last answer is stored when the page goes on.
        _until(browser, lambda: not _asked(browser, pairs))
    return given


def _asked(browser: Browser, number: int) -> bool:
    return browser.execute_script("return document.getElementById('progress')?.textContent ?? ''").startswith(
        f"Pair {number} of "
    )


def _question(browser: Browser, number: int) -> dict[str, Any] | None:
    return browser.execute_script(SHOWN) if _asked(browser, number) else None


def _until(browser: Browser, condition: Any) -> Any:
    return WebDriverWait(browser, TIMEOUT_S, poll_frequency=0.05).until(lambda _: condition())
