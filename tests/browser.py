"""A real Chromium, without a window, for tests of the page."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
)
MISSING = "chromium and chromium-driver are not here: the page is NOT TESTED"
SECONDS = 30.0
TALLEST = 6000


class Browser:
    """Drives a browser as the tests need it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def js(self, code: str, *args: Any) -> Any:
        """Runs the body of a JavaScript function and returns its value."""
        return self.driver.execute_script(code, *args)

    def text(self, selector: str) -> str:
        """The text of an element, as it is in the document."""
        return self.js("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def until(self, condition: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
        """Polls until `condition()` is true and returns its value."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > deadline:
                pytest.fail(f"not within {seconds:.0f} s: {what}\n{self.text('body')[:3000]}")
            time.sleep(0.05)
        return value

    def screen(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """Sets the size of the screen, and what the system prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1}
        self._cdp("Emulation.setDeviceMetricsOverride", **size, mobile=phone)
        self._cdp("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce" if phone else "no-preference"}
        self._cdp("Emulation.setEmulatedMedia", features=[scheme, motion])
        self.settle()

    def settle(self) -> None:
        """Waits until all changes, also one of the screen's size, are visible on the screen."""
        self.driver.set_script_timeout(10)
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 250)"
        )

    def picture(self) -> Any:
        """The whole page as an image, in CSS pixels (height, width, RGB)."""
        import base64

        import numpy as np
        from PIL import Image

        size = self.js(
            "const root = document.documentElement; return [innerWidth, root.scrollHeight]"
        )
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], TALLEST), "scale": 1}
        data = self._cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        image = Image.open(BytesIO(base64.b64decode(data))).convert("RGB")
        return np.asarray(image.resize((int(clip["width"]), int(clip["height"]))))

    def plots(self) -> dict[str, dict[str, Any]]:
        """What is drawn in each visible canvas, by the canvas's name: see `_PLOTS`."""
        return self.js(_PLOTS)

    def heap(self) -> int:
        """The bytes that the page's scripts use, after a garbage collection."""
        self._cdp("HeapProfiler.collectGarbage")
        self._cdp("Performance.enable")
        metrics = self._cdp("Performance.getMetrics")["metrics"]
        return int(next(m["value"] for m in metrics if m["name"] == "JSHeapUsedSize"))

    def problems(self) -> list[str]:
        """What the browser has logged: errors of scripts, refused loads, broken policies."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            # "rendering" is about how the tests read the canvases.
            if entry["level"] != "INFO" and entry.get("source") != "rendering"
        ]

    def accessibility(self) -> list[str]:
        """What axe finds, as one line for each element concerned."""
        from axe_core_python.selenium import Axe

        found = Axe().run(self.driver)  # by the driver, past the page's own policy
        return [
            f"{violation['id']}: {node['html'][:200]}"
            for violation in found["violations"]
            for node in violation["nodes"]
        ]

    def press(self, *keys: str) -> None:
        """Presses keys on the element that has the focus, as a person does."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def _cdp(self, method: str, **values: Any) -> dict[str, Any]:
        return self.driver.execute_cdp_cmd(method, values)


# Of each canvas: how many of its pixels are drawn on, how many colours there are, and how far over
# its width and height the drawing goes (parts of 1).
_PLOTS = """
const found = {};
for (const canvas of document.querySelectorAll("canvas")) {
  if (!canvas.clientWidth || !canvas.width) continue;
  const { width, height } = canvas;
  const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const colours = new Set();
  let drawn = 0, left = width, right = 0, top = height, bottom = 0;
  for (let at = 0; at < width * height; at += 1) {
    if (pixels[at * 4 + 3] < 128) continue;
    drawn += 1;
    colours.add((pixels[at * 4] << 16) | (pixels[at * 4 + 1] << 8) | pixels[at * 4 + 2]);
    const x = at % width, y = (at - x) / width;
    left = Math.min(left, x); right = Math.max(right, x);
    top = Math.min(top, y); bottom = Math.max(bottom, y);
  }
  found[canvas.id || canvas.dataset.curve] = {
    drawn: drawn / (width * height), colours: colours.size,
    label: canvas.getAttribute("aria-label"),
    wide: Math.max(0, right - left) / width, high: Math.max(0, bottom - top) / height,
  };
}
return found;
"""


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Starts a browser with a profile of its own; skips the test if none is installed."""
    if not (CHROMIUM and DRIVER):
        pytest.skip(MISSING)
    webdriver = pytest.importorskip("selenium.webdriver", reason=MISSING)
    from selenium.webdriver.chrome.service import Service

    profile = tempfile.mkdtemp(prefix="tfrun-chromium-")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in (*OPTIONS, f"--user-data-dir={profile}", "--window-size=1360,900"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    environment = {**os.environ, "SE_OFFLINE": "true"}
    try:
        driver = webdriver.Chrome(options=options, service=Service(DRIVER, env=environment))
        try:
            driver.set_page_load_timeout(SECONDS)
            yield Browser(driver)
        finally:
            driver.quit()
    finally:
        shutil.rmtree(profile, ignore_errors=True)


class Cable:
    """Forwards TCP connections to a port; a test can interrupt it, and let it go on.

    Attributes:
      port: the end to connect to.
    """

    def __init__(self, port: int) -> None:
        import asyncio

        self._target, self._open = port, True
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def pull(self) -> None:
        """Ends all connections; new ones end at once."""
        self._open = False
        self._loop.call_soon_threadsafe(self._cut)

    def put_in(self) -> None:
        self._open = True

    def close(self) -> None:
        self._open = False
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._cut)
        self._loop.call_soon_threadsafe(self._loop.call_later, 0.1, self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader, writer) -> None:
        import asyncio

        if not self._open:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        await asyncio.gather(
            self._copy(reader, far_writer), self._copy(far_reader, writer), return_exceptions=True
        )
        self._writers -= {writer, far_writer}

    @staticmethod
    async def _copy(reader, writer) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


def kept(picture: Any, name: str) -> None:
    """Saves a screenshot in the directory TFRUN_TEST_PICTURES, for a person to look at."""
    folder = os.environ.get("TFRUN_TEST_PICTURES")
    if folder:
        from PIL import Image

        Path(folder).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(Path(folder, f"{name}.png"))
