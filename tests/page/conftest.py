"""What the page's tests share: one browser, a window of its own for each test, and Brain behind a line."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from page.chat import Chat
from page.chromium import CHROMIUM_ARGS
from page.stage import Stage, staged
from page.visitor import Visitor


@pytest.fixture(scope="package")  # not the session: while it runs, its thread can run no loop of asyncio
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Brain with the settings of `@pytest.mark.parametrize("stage", [{…}], indirect=True)`, if there are any."""
    with staged(**getattr(request, "param", {})) as stage:
        yield stage


@pytest.fixture
def visitor(browser: Browser, stage: Stage, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    """A person; what the page complains of fails the test. Settings of the window as for `stage`: PHONE, DARK, STILL.

    They leave before Brain does.
    """
    visitor = Visitor(browser, getattr(request, "param", {}))
    yield visitor
    visitor.leave()
    assert visitor.complaints == []


@pytest.fixture
def chat(visitor: Visitor, stage: Stage) -> Chat:
    """The page, open in a tab."""
    return visitor.opens(stage.url)
