"""What a visit of the page takes in Chromium: its requests, their bytes, and when it is painted and ready.

`python tests/bench/visit.py`
"""

import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import BrowserContext, Request, sync_playwright

ROUNDS = 9
SERVE = ["serve", "--port", "0", "--model", "builtin"]
READY = """() => new Promise((done) => {
    const look = () => document.querySelector("#model option") ? done(performance.now()) : requestAnimationFrame(look);
    look();
})"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    with _brain() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        visits = []
        for _ in range(ROUNDS):
            context = browser.new_context()
            visits.append((_visit(context, url), _visit(context, url)))
            context.close()
        browser.close()
    sys.stdout.write("| | requests | KiB | painted, ms | ready, ms |\n|---|---|---|---|---|\n")
    for name, found in zip(("the first", "a later one"), zip(*visits, strict=True), strict=True):
        requests, size, painted, ready = (statistics.median(values) for values in zip(*found, strict=True))
        sys.stdout.write(f"| {name} | {requests:.0f} | {size / 1024:.0f} | {painted:.0f} | {ready:.0f} |\n")


def _visit(context: BrowserContext, url: str) -> tuple[int, int, float, float]:
    """Requests, bytes with their heads, milliseconds until something is painted, and until one can ask."""
    page = context.new_page()
    done: list[Request] = []
    page.on("requestfinished", lambda request: done.append(request))
    page.goto(url)
    ready: float = page.evaluate(READY)
    painted: float = page.evaluate(PAINTED)
    page.wait_for_load_state("networkidle")
    sizes = [request.sizes() for request in done]
    page.close()
    return len(done), sum(one["responseBodySize"] + one["responseHeadersSize"] for one in sizes), painted, ready


@contextmanager
def _brain() -> Iterator[str]:
    command = [sys.executable, "-m", "brain", *SERVE]
    with subprocess.Popen(command, env={"BRAIN_STORE": "memory:"}, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(found[1] for line in process.stderr if (found := re.search(r"listens on (\S+)", line)))
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
