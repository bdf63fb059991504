"""Chromium without a window, for the tests of the page."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NEEDED = "TRITON_DIST_NEEDS_BROWSER"
"""Environment variable that makes a browser that is missing a failure."""

_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1440,860",
)


def _missing(what: str) -> Any:
    reason = f"{what} is missing: apt-get install chromium chromium-driver, pip install selenium"
    if os.environ.get(NEEDED):
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def started() -> Iterator[Any]:
    """A selenium driver; skips the test where Chromium or selenium is not installed."""
    try:
        from selenium import webdriver
    except ImportError:
        _missing("selenium")
    binary = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    chromedriver = shutil.which("chromedriver")
    if binary is None or chromedriver is None:
        _missing("Chromium" if binary is None else "chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory() as folder:
        for argument in (*_ARGUMENTS, f"--user-data-dir={folder}"):
            options.add_argument(argument)
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
        try:
            driver.set_script_timeout(60)
            yield driver
        finally:
            driver.quit()


class Page:
    """A report that is open. ``run`` gives what a script returns."""

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver = driver
        driver.get(path.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def press(self, keys: str) -> None:
        """Type where the focus is."""
        self.driver.switch_to.active_element.send_keys(keys)

    def frame(self) -> None:
        """Wait for what was asked for to be painted."""
        self.driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))")

    def view(self) -> dict[str, Any]:
        return self.run("return {...report.view}")

    def colour_at(self, x: float, y: float) -> list[int]:
        """The colour of a point of the canvas."""
        return self.run(
            "const c = report.painter.canvas, s = c.width / c.clientWidth;"
            "return [...c.getContext('2d').getImageData(arguments[0] * s, arguments[1] * s, 1, 1).data].slice(0, 3)",
            x,
            y,
        )

    def errors(self) -> list[str]:
        """What the console has said, but for what it says of ``colour_at``."""
        return [entry["message"] for entry in self.driver.get_log("browser") if "getImageData" not in entry["message"]]
