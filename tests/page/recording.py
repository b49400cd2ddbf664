"""All that was ever on screen: each state of the page, as its changes leave it."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Locator

RECORD = """node => {
    const states = [node.innerText], observer = new MutationObserver(() => states.push(node.innerText));
    observer.observe(node, { subtree: true, childList: true, characterData: true, attributes: true });
    return { states, observer };
}"""


@contextmanager
def recorded(place: Locator) -> Iterator[list[str]]:
    """The texts that could be read in a place, in order; they are there behind the block."""
    states: list[str] = []
    recording = place.evaluate_handle(RECORD)
    yield states
    states += recording.evaluate("it => (it.observer.disconnect(), it.states)")
