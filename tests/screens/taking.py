"""The pictures of the page and the terminal in `docs/screens/`, taken anew: `python tests/screens [NAME…]`.

Specialists are real, as far as they work without a network; the model plays. A picture that differs from the one that
is there in a few dots only, such as those of a clock, leaves it as it was; one that was deleted is taken in any case.
"""

import argparse
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from page.chat import Chat
from page.chromium import CHROMIUM_ARGS
from page.server import ControlledModel, request
from PIL import Image, ImageChops
from playwright.sync_api import Browser, Page, expect, sync_playwright
from serving import Server, brain_served

from brain import Registry
from brain.errors import ModelError
from screens.kept import DENTIST, EARLIER, FACTS, conversations, fill_calendar, several_pages
from screens.terminal import TERMINALS

ROOT = Path(__file__).parents[2]
SCREENS = ROOT / "docs" / "screens"
TICKET = ROOT / "docs" / "ticket.png"
DESK: Mapping[str, Any] = {"viewport": {"width": 1200, "height": 800}}
PHONE: Mapping[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
HERE: Mapping[str, Any] = {"locale": "en-GB", "timezone_id": "Europe/Berlin", "reduced_motion": "reduce"}
PATIENCE = 60_000
"""Milliseconds: reading pictures takes a while where nothing of it was ever used."""
WAIT_FOR = """(node, text) => new Promise((done) => {
    const look = () => node.textContent.includes(text) ? done() : requestAnimationFrame(look);
    look();
})"""
"""Looks at each frame: what is there for a moment only is seen."""
COLOURS = 256
SAME = 1500
"""Dots that may differ in a picture that is the same: clocks, and what they push aside."""


@dataclass
class Scene:
    """What is in front of the camera."""

    chat: Chat
    model: ControlledModel
    folder: Path

    def asked(self, message: str, *passes: str) -> None:
        """A whole turn, in which the model says this."""
        self.chat.ask(message)
        self.says(*passes)
        expect(self.chat.button("Send")).to_be_visible(timeout=PATIENCE)

    def says(self, *passes: str) -> None:
        for text in passes:
            self.model.write(text)
            self.model.end()


@dataclass
class Picture:
    """How one is taken: what is played, in which window, and by whom (`stand_in`: by the model that is built in)."""

    play: Callable[[Scene], object]
    window: Mapping[str, Any]
    stand_in: bool = False


PICTURES: dict[str, Picture] = {}


def picture(
    stand_in: bool = False, name: str = "", window: Mapping[str, Any] = DESK, **more: object
) -> Callable[[Callable[[Scene], object]], Callable[[Scene], object]]:
    """Takes the function's name for that of a picture of what it plays."""

    def take(play: Callable[[Scene], object]) -> Callable[[Scene], object]:
        PICTURES[name or play.__name__] = Picture(play, {**HERE, **window, **more}, stand_in)
        return play

    return take


@picture(stand_in=True)
def empty(scene: Scene) -> None:
    expect(scene.chat.button("How do I write a specialist?")).to_be_visible()


ANSWER = """\
### A function, and nothing else

Its **name**, its docstring and its annotations tell the model what it does:

```python
@specialist(examples=["weather in Paris"], timeout=10)
async def weather(city: str, units: Literal["metric", "imperial"] = "metric") -> str:
    \"\"\"Current weather for a city.\"\"\"
    return f"It is sunny in {city}."
```

- Parameters are checked before it runs, and a wrong one is told to the model.
- `Progress` says how far it is, `Refused` why it does not want to.

| option | says |
| --- | --- |
| `timeout` | how many seconds a call may take |
| `approval` | whether a person is asked before it runs |
"""


@picture()
@picture(name="dark", color_scheme="dark")
@picture(name="phone", window=PHONE)
def answer(scene: Scene) -> None:
    query = request("docs", query="write a specialist")
    scene.asked("How do I write a specialist?", f"Let me look it up in the manual.\n\n{query}", ANSWER)
    expect(scene.chat.answer.get_by_role("table")).to_be_visible()
    scene.chat.log.evaluate("node => node.scrollTo(0, 0)")


@picture()
def running(scene: Scene) -> None:
    scene.chat.attach(several_pages(TICKET, scene.folder / "tickets.pdf", 12))
    scene.chat.ask("Which tickets are in this file?")
    scene.chat.log.evaluate(WAIT_FOR, "page 5 of 12")


@picture()
def result(scene: Scene) -> None:
    inputs = {"age": 76, "sex": "female", "hypertension": "yes", "others_absent": True}
    asked = request("medical", calculator="cha2ds2_vasc", inputs=inputs)
    told = "The score is **4**: age counts 2, being a woman 1 and hypertension 1.\n\nThis is not medical advice."
    scene.asked("CHA₂DS₂-VASc of a woman of 76 with hypertension and nothing else?", asked, told)
    scene.chat.open_card("medical")


@picture()
def approval(scene: Scene) -> None:
    scene.chat.ask("I no longer need the dentist on Tuesday.")
    scene.says(request("calendar", start=DENTIST, end=DENTIST))
    scene.says(request("calendar", action="delete", event_id="dentist"))
    expect(scene.chat.card("calendar").last).to_contain_text("left; nothing is done")


@picture()
def error(scene: Scene) -> None:
    scene.chat.ask("What stands on the ticket?")
    scene.says(request("ocr", image_id=1))
    scene.model.write("There is no picture in this conversation yet. Attach the ticket, and I will")
    scene.model.write(ModelError("model_failed", "The model failed in the middle of its answer.", "it was told to"))
    expect(scene.chat.answer.get_by_role("button", name="Retry", exact=True)).to_be_visible()


@picture()
def attach(scene: Scene) -> None:
    scene.chat.attach(TICKET)
    told = "It is a ticket for **row 4, seat 12**. The QR code at its right says `TICKET-4-12`."
    scene.asked("What does it say?", told)
    scene.chat.attach(TICKET, several_pages(TICKET, scene.folder / "tickets.pdf", 12))
    scene.chat.box.fill("And these?")


@picture()
def memory(scene: Scene) -> None:
    for fact in FACTS:
        answered = scene.chat.page.request.post("v1/memory", data=fact)
        assert answered.status == 201, answered.text()
    scene.chat.button("Memory").click()
    expect(scene.chat.page.get_by_role("dialog")).to_contain_text("I drink no coffee")


@picture()
def specialists(scene: Scene) -> None:
    scene.chat.button("Specialists").click()
    expect(scene.chat.page.get_by_role("dialog")).to_contain_text("Wikipedia")


@picture(name="phone-list", window=PHONE)
def phone_list(scene: Scene) -> None:
    answer(scene)
    scene.chat.button("Show or hide the conversations").click()
    expect(scene.chat.history.get_by_role("searchbox")).to_be_visible()


def main() -> int:
    parser = argparse.ArgumentParser("python tests/screens", description=__doc__)
    names = [*PICTURES, *TERMINALS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; all when none is named")
    parser.add_argument("--to", type=Path, default=SCREENS, metavar="FOLDER", help="where they go (docs/screens)")
    given = parser.parse_args()
    if unknown := set(given.names) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    given.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, _browser() as browser:
        for name in given.names or names:
            place = Path(folder, name)
            place.mkdir()
            taken = _terminal(browser, name, place) if name in TERMINALS else _page(browser, PICTURES[name], place)
            sys.stdout.write(f"{name}: {_keep(taken, given.to / f'{name}.png')}\n")
    return 0


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_ARGS)
        yield browser
        browser.close()


def _page(browser: Browser, wanted: Picture, folder: Path) -> Image.Image:
    os.environ["XDG_DATA_HOME"] = str(folder / "data")
    fill_calendar(folder / "data")
    with _brain(folder) as brain:
        model = ControlledModel(brain.loop, "demo")
        if not wanted.stand_in:
            brain.play(model)
        context = browser.new_context(**wanted.window, base_url=brain.url)
        page = context.new_page()
        page.goto("")
        chat = Chat(page)
        chat.wait_until_ready()
        expect(page.locator("#history")).to_contain_text(EARLIER[-1][0])  # on a phone it is folded, and has no role
        try:
            wanted.play(Scene(chat, model, folder))
            return _shot(page)
        finally:
            context.close()
            model.end()


@contextmanager
def _brain(folder: Path) -> Iterator[Server]:
    store = f"sqlite:{folder / 'brain.db'}"
    conversations(store)
    with brain_served(Registry().discover(), STORE=store, TIME_ZONE="Europe/Berlin", REST_SECONDS=86_400) as brain:
        yield brain


def _terminal(browser: Browser, name: str, folder: Path) -> Image.Image:
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.set_content(TERMINALS[name](folder))
    data = page.locator("main").screenshot()
    page.close()
    return Image.open(io.BytesIO(data)).convert("RGB")


def _shot(page: Page) -> Image.Image:
    page.evaluate("document.fonts.ready")
    page.mouse.move(0, 0)
    data = page.screenshot(animations="disabled", caret="hide")
    return Image.open(io.BytesIO(data)).convert("RGB")


def _keep(taken: Image.Image, path: Path) -> str:
    """Writes the picture, unless the one that is there shows the same; what was done."""
    fewer = taken.quantize(COLOURS, dither=Image.Dither.NONE)
    if path.exists() and _differ(fewer, Image.open(path)) <= SAME:
        return "as it was"
    fewer.save(path, optimize=True)
    return f"{path.stat().st_size // 1024} KiB"


def _differ(one: Image.Image, other: Image.Image) -> int:
    """How many dots differ to the eye; all, when the sizes do."""
    if one.size != other.size:
        return one.width * one.height
    difference = ImageChops.difference(one.convert("RGB"), other.convert("RGB")).convert("L")
    return sum(difference.histogram()[24:])
