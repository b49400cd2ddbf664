"""Fixtures: one browser and one network for all tests of the page; a server and a visitor for each test."""

from collections.abc import Iterator, Mapping

import pytest
from chromium import CHROMIUM, CHROMIUM_ARGS
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from page.chat import Chat
from page.markdown import load
from page.network import Network, running_network
from page.server import PageServer, serve_page
from page.visitor import TIMEOUT, Visitor, prepare


@pytest.fixture(scope="package")  # not the session: while it runs, its thread can run no loop of asyncio
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    expect.set_options(timeout=TIMEOUT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def network() -> Iterator[Network]:
    with running_network() as network:
        yield network


@pytest.fixture(scope="package")
def shared_context(browser: Browser) -> BrowserContext:
    """A browser context with the page's files in its cache."""
    return prepare(browser.new_context())


@pytest.fixture(scope="module")
def renderer(browser: Browser, network: Network) -> Iterator[Chat]:
    """A page that renders Markdown outside a conversation, for all tests of a module."""
    with serve_page(network) as server:
        visitor = Visitor(prepare(browser.new_context()))
        chat = visitor.open(server.url)
        load(chat)
        yield chat
        visitor.leave()
        visitor.context.close()
    assert visitor.problems == []


@pytest.fixture
def server(request: pytest.FixtureRequest, network: Network) -> Iterator[PageServer]:
    """Brain, with the settings of `@pytest.mark.parametrize("server", [{…}], indirect=True)`."""
    with serve_page(network, **getattr(request, "param", {})) as server:
        yield server


@pytest.fixture
def visitor(
    browser: Browser, shared_context: BrowserContext, server: PageServer, request: pytest.FixtureRequest
) -> Iterator[Visitor]:
    """A person. Problems that the browser reports fail the test.

    A parameter gives the person a new browser context: NEW for a test that installs clocks or scripts in it, or the
    settings PHONE or STILL.
    """
    options: Mapping[str, object] | None = getattr(request, "param", None)
    own = None if options is None else prepare(browser.new_context(**options))  # type: ignore[arg-type]
    visitor = Visitor(own or shared_context)
    yield visitor
    visitor.leave()
    if own:
        own.close()
    assert visitor.problems == []


@pytest.fixture
def chat(visitor: Visitor, server: PageServer) -> Chat:
    """The page, open in a tab."""
    return visitor.open(server.url)
