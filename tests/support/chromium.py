"""A real browser without a window, with WebGL in software."""

import contextlib
import shutil
from collections.abc import Generator
from typing import Any

import pytest

pytest.importorskip("selenium", reason="pip install selenium")
from selenium import webdriver
from selenium.common.exceptions import TimeoutException

__all__ = ["Browser", "TimeoutException", "chromium", "needs_chromium"]

DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium")

Browser = Any
"""A selenium WebDriver, whose own annotations are incomplete."""

needs_chromium = pytest.mark.skipif(
    DRIVER is None or CHROMIUM is None, reason="Chromium is not installed; on Debian: apt-get install chromium-driver"
)


@contextlib.contextmanager
def chromium() -> Generator[Browser]:
    """Starts the browser, and ends it."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    rendering = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader")
    for argument in ("--headless=new", "--no-sandbox", *rendering, "--window-size=1200,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    try:
        yield driver
    finally:
        driver.quit()
