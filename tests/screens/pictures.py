"""Take the screenshots of the page and the terminal in `docs/screens/`: `python tests/screens [NAME…]`.

The specialists are real if they work without a network; the model is scripted. A screenshot replaces the existing one
only if more than a few pixels differ: clocks and durations always do.
"""

import argparse
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brain_servers import Server, brain_served
from chromium import CHROMIUM, CHROMIUM_ARGS
from page.chat import Chat
from page.server import ControlledModel, request
from PIL import Image, ImageChops
from playwright.sync_api import Browser, Locator, expect, sync_playwright

from brain import Registry
from brain.errors import ModelError
from screens.data import DENTIST, EARLIER, FACTS, fill_calendar, import_conversations, make_pdf
from screens.terminal import TERMINALS

ROOT = Path(__file__).parents[2]
SCREENS = ROOT / "docs" / "screens"
TICKET = ROOT / "docs" / "ticket.png"
DESKTOP: Mapping[str, Any] = {"viewport": {"width": 1200, "height": 800}}
PHONE: Mapping[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
HERE: Mapping[str, Any] = {"locale": "en-GB", "timezone_id": "Europe/Berlin", "reduced_motion": "reduce"}
PATIENCE = 60_000
"""Milliseconds; text recognition is slow at first."""
WAIT_FOR = """(node, text) => new Promise((done) => {
    const look = () => node.textContent.includes(text) ? done() : requestAnimationFrame(look);
    look();
})"""
"""Checks every frame, because the text is visible for a moment only."""
COLOURS = 256
MAX_CHANGED_PIXELS = 1500
"""Of a screenshot that differs in its clocks only."""


@dataclass
class Scene:
    """The page, its model, and a folder for files."""

    chat: Chat
    model: ControlledModel
    folder: Path

    def ask(self, message: str, *passes: str) -> None:
        """Complete a turn with these passes of the model."""
        self.chat.ask(message)
        self.write(*passes)
        expect(self.chat.button("Send")).to_be_visible(timeout=PATIENCE)

    def write(self, *passes: str) -> None:
        for text in passes:
            self.model.write(text)
            self.model.end()


@dataclass
class Picture:
    """A screenshot: the actions before it, the browser window, and whether the demo model answers."""

    play: Callable[[Scene], object]
    window: Mapping[str, Any]
    stand_in: bool = False


PICTURES: dict[str, Picture] = {}


def picture(
    stand_in: bool = False, name: str = "", window: Mapping[str, Any] = DESKTOP, **more: object
) -> Callable[[Callable[[Scene], object]], Callable[[Scene], object]]:
    """Add a screenshot of what a function plays; its name is that of the function unless `name` is given."""

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

- Brain checks the parameters before each call and reports mistakes to the model.
- `Progress` reports how far a call is; `Refused` rejects a call with a reason.

| option | meaning |
| --- | --- |
| `timeout` | time limit of a call, in seconds |
| `approval` | whether a person approves each call |
"""


@picture()
@picture(name="dark", color_scheme="dark")
@picture(name="phone", window=PHONE)
def answer(scene: Scene) -> None:
    query = request("docs", query="write a specialist")
    scene.ask("How do I write a specialist?", f"Let me check the documentation.\n\n{query}", ANSWER)
    expect(scene.chat.answer.get_by_role("table")).to_be_visible()
    scene.chat.log.evaluate("node => node.scrollTo(0, 0)")


@picture()
def running(scene: Scene) -> None:
    scene.chat.attach(make_pdf(TICKET, scene.folder / "tickets.pdf", 12))
    scene.chat.ask("Which tickets are in this file?")
    scene.chat.log.evaluate(WAIT_FOR, "page 5 of 12")


@picture()
def result(scene: Scene) -> None:
    inputs = {"age": 76, "sex": "female", "hypertension": "yes", "others_absent": True}
    call = request("medical", calculator="cha2ds2_vasc", inputs=inputs)
    text = "The score is **4**: 2 for age, 1 for sex and 1 for hypertension.\n\nThis is not medical advice."
    scene.ask("CHA₂DS₂-VASc of a woman of 76 with hypertension and nothing else?", call, text)
    scene.chat.open_card("medical")


DIRECTOR = "<deep_thinking>[check] {}</deep_thinking><instruction>{}</instruction>"


@picture()
def rounds(scene: Scene) -> None:
    scene.chat.strategy.select_option("dual")
    scene.chat.ask("How do I write a specialist?")
    scene.write(DIRECTOR.format("What does the documentation say?", "Find out what a specialist consists of."))
    scene.write(f"<action>{request('docs', query='write a specialist')}", "A function with annotations.</action>")
    scene.write(DIRECTOR.format("Limits and approval are missing.", "Find out how a specialist asks for approval."))
    scene.write(f"<action>{request('docs', query='approval of a specialist')}", "With `approval`.</action>")
    scene.write(DIRECTOR.format("Complete.", "TASK_DONE Show a short example, then the two options."))
    scene.write(f"<deliverable><final_output>{ANSWER}</final_output></deliverable>")
    expect(scene.chat.button("Send")).to_be_visible(timeout=PATIENCE)
    expect(scene.chat.rounds.last).to_contain_text("ms")
    scene.chat.rounds.nth(1).locator("summary").first.click()
    scene.chat.log.evaluate("node => node.scrollTo(0, 0)")


@picture()
def approval(scene: Scene) -> None:
    scene.chat.ask("I no longer need the dentist on Tuesday.")
    scene.write(request("calendar", start=DENTIST, end=DENTIST))
    scene.write(request("calendar", action="delete", event_id="dentist"))
    expect(scene.chat.card("calendar").last).to_contain_text("Nothing happens unless")


@picture()
def tasks(scene: Scene) -> None:
    scene.ask("Good morning!", "Good morning! What can I do for you?")
    _add_task(scene, "Compare three bicycle shops in Bern")
    scene.write("**Velo Bern** is the cheapest, and the only one that is open on Sundays.")
    expect(_task_group(scene, "Finished")).to_contain_text("done")
    _add_task(scene, "Cancel the dentist on Tuesday")
    scene.write(
        request("calendar", start=DENTIST, end=DENTIST), request("calendar", action="delete", event_id="dentist")
    )
    expect(_task_group(scene, "Waiting for you")).to_contain_text("dentist")
    _add_task(scene, "Morning briefing: my calendar, and what is new on aspirin", "workdays")
    _add_task(scene, "Read the documentation and list what a specialist can do")
    scene.model.write(request("docs", query="specialist"), " ")
    expect(_task_group(scene, "Running")).to_contain_text("docs")


def _add_task(scene: Scene, prompt: str, when: str = "now") -> None:
    scene.chat.page.get_by_role("tab", name="Tasks").click()
    scene.chat.box.fill(f"/task {prompt}")
    scene.chat.button("Send").click()
    dialog = scene.chat.dialog("New task")
    dialog.get_by_role("combobox", name="When").select_option(when)
    if when != "now":
        dialog.get_by_role("button", name="Check schedule").click()
    dialog.get_by_role("button", name="Create task").click()
    expect(dialog).to_be_hidden()


def _task_group(scene: Scene, name: str) -> Locator:
    heading = scene.chat.page.get_by_role("heading", name=name)
    return scene.chat.page.get_by_role("tabpanel").get_by_role("listitem").filter(has=heading)


@picture()
def error(scene: Scene) -> None:
    scene.chat.ask("What does the ticket say?")
    scene.write(request("ocr", image_id=1))
    scene.model.write("This conversation has no picture yet. Attach the ticket, and I will")
    scene.model.write(ModelError("model_failed", "The model stopped in the middle of its answer.", "scripted"))
    expect(scene.chat.answer.get_by_role("button", name="Retry", exact=True)).to_be_visible()


@picture()
def attach(scene: Scene) -> None:
    scene.chat.attach(TICKET)
    text = "It is a ticket for **row 4, seat 12**. Its QR code contains `TICKET-4-12`."
    scene.ask("What does it say?", text)
    scene.chat.attach(TICKET, make_pdf(TICKET, scene.folder / "tickets.pdf", 12))
    scene.chat.box.fill("And these?")


@picture()
def memory(scene: Scene) -> None:
    for fact in FACTS:
        response = scene.chat.page.request.post("v1/memory", data=fact)
        assert response.status == 201, response.text()
    scene.chat.button("Memory").click()
    expect(scene.chat.page.get_by_role("dialog")).to_contain_text("penicillin")


@picture()
def specialists(scene: Scene) -> None:
    scene.chat.button("Specialists").click()
    expect(scene.chat.page.get_by_role("dialog")).to_contain_text("Wikipedia")


@picture(name="phone-list", window=PHONE)
def phone_list(scene: Scene) -> None:
    answer(scene)
    scene.chat.button("Show or hide conversations").click()
    expect(scene.chat.history.get_by_role("searchbox")).to_be_visible()


def main() -> int:
    parser = argparse.ArgumentParser("python tests/screens", description=__doc__)
    names = [*PICTURES, *TERMINALS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(names)}")
    parser.add_argument(
        "--to", type=Path, default=SCREENS, metavar="FOLDER", help="target folder (default: docs/screens)"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(names):
        parser.error(f"unknown screenshots: {', '.join(sorted(unknown))}. Choose from {', '.join(names)}")
    arguments.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, _browser() as browser:
        for name in arguments.names or names:
            place = Path(folder, name)
            place.mkdir()
            if name in TERMINALS:
                image = _take_terminal(browser, name, place)
            else:
                image = _take_page(browser, PICTURES[name], place)
            sys.stdout.write(f"{name}: {_save(image, arguments.to / f'{name}.png')}\n")
    return 0


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


def _take_page(browser: Browser, picture: Picture, folder: Path) -> Image.Image:
    os.environ["XDG_DATA_HOME"] = str(folder / "data")
    fill_calendar(folder / "data")
    with _brain(folder) as brain:
        model = ControlledModel(brain.loop, "demo")
        if not picture.stand_in:
            brain.play(model)
        context = browser.new_context(**picture.window, base_url=brain.url)
        page = context.new_page()
        page.goto("")
        chat = Chat(page)
        chat.wait_until_ready()
        expect(page.locator("#history")).to_contain_text(EARLIER[-1][0])  # hidden on a phone, so it has no role there
        try:
            picture.play(Scene(chat, model, folder))
            page.evaluate("document.fonts.ready")
            page.mouse.move(0, 0)
            data = page.screenshot(animations="disabled", caret="hide")
            return Image.open(io.BytesIO(data)).convert("RGB")
        finally:
            context.close()
            model.end()


@contextmanager
def _brain(folder: Path) -> Iterator[Server]:
    store = f"sqlite:{folder / 'brain.db'}"
    import_conversations(store)
    with brain_served(Registry().discover(), STORE=store, TIME_ZONE="Europe/Berlin", REST_SECONDS=86_400) as brain:
        yield brain


def _take_terminal(browser: Browser, name: str, folder: Path) -> Image.Image:
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.set_content(TERMINALS[name](folder))
    data = page.locator("main").screenshot()
    page.close()
    return Image.open(io.BytesIO(data)).convert("RGB")


def _save(image: Image.Image, path: Path) -> str:
    """Write the screenshot unless the existing one looks the same; return what happened."""
    fewer = image.quantize(COLOURS, dither=Image.Dither.NONE)
    if path.exists() and _count_changes(fewer, Image.open(path)) <= MAX_CHANGED_PIXELS:
        return "unchanged"
    fewer.save(path, optimize=True)
    return f"{path.stat().st_size // 1024} KiB"


def _count_changes(one: Image.Image, other: Image.Image) -> int:
    """The number of visibly different pixels; all of them if the sizes differ."""
    if one.size != other.size:
        return one.width * one.height
    difference = ImageChops.difference(one.convert("RGB"), other.convert("RGB")).convert("L")
    return sum(difference.histogram()[24:])
