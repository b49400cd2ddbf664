"""Measure a visit of the page in Chromium: requests, bytes, and the times until it is painted and ready.

`python tests/bench/visit.py`
"""

import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, BrowserContext, Request, sync_playwright

ROUNDS = 9
SLOW = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 94_000}
"""A phone's network: milliseconds, and bytes per second."""
SERVE = ["serve", "--port", "0", "--model", "builtin"]
READY = """() => new Promise((done) => {
    const look = () => document.querySelector("#model option") ? done(performance.now()) : requestAnimationFrame(look);
    look();
})"""
PAINTED = """() => new Promise((done) => {
    new PerformanceObserver((seen) => {
        const [paint] = seen.getEntriesByName("first-contentful-paint");
        if (paint) done(paint.startTime);
    }).observe({ type: "paint", buffered: true });
})"""


def main() -> None:
    sys.stdout.write("| visit | requests | KiB | painted, ms | ready, ms |\n|---|---|---|---|---|\n")
    with _brain() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        _measure(browser, url, "", slow=False)
        _measure(browser, url, ", with 150 ms round trip and 1.6 Mbit/s", slow=True)
        browser.close()


def _measure(browser: Browser, url: str, how: str, *, slow: bool) -> None:
    visits = []
    for _ in range(ROUNDS):
        context = browser.new_context()
        visits.append((_visit(context, url, slow), _visit(context, url, slow)))
        context.close()
    for name, found in zip(("first", "later"), zip(*visits, strict=True), strict=True):
        requests, size, painted, ready = (statistics.median(values) for values in zip(*found, strict=True))
        sys.stdout.write(f"| {name}{how} | {requests:.0f} | {size / 1024:.0f} | {painted:.0f} | {ready:.0f} |\n")


def _visit(context: BrowserContext, url: str, slow: bool) -> tuple[int, int, float, float]:
    """Return requests to the server, bytes with headers, and ms until the first paint and until the page is ready."""
    page = context.new_page()
    if slow:
        context.new_cdp_session(page).send("Network.emulateNetworkConditions", SLOW)
    done: list[Request] = []
    page.on("requestfinished", lambda request: done.append(request))
    page.goto(url)
    ready: float = page.evaluate(READY)
    painted: float = page.evaluate(PAINTED)
    page.wait_for_load_state("networkidle")
    sizes = [one["responseBodySize"] + one["responseHeadersSize"] for one in (request.sizes() for request in done)]
    page.close()
    return sum(size > 0 for size in sizes), sum(sizes), painted, ready


@contextmanager
def _brain() -> Iterator[str]:
    command = [sys.executable, "-m", "brain", *SERVE]
    with subprocess.Popen(command, env={"BRAIN_STORE": "memory:"}, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(found[1] for line in process.stderr if (found := re.search(r"(http://\S+)", line)))
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
