"""A person without a mouse: what has the focus, and the way to it."""

from collections.abc import Iterator

from playwright.sync_api import Page

NAME = """() => {
    const node = document.activeElement;
    if (node === document.body) return "";
    const label = [...node.labels?.[0]?.childNodes ?? []].filter((part) => part !== node);
    const text = label.map((part) => part.textContent).join("") || node.innerText;
    return node.ariaLabel || text.trim().split("\\n")[0];
}"""
PLACE = """() => {
    const { x, y, width, height } = document.activeElement.getBoundingClientRect();
    const left = Math.max(0, x - 6), top = Math.max(0, y - 6);
    const right = Math.min(innerWidth, x + width + 6), bottom = Math.min(innerHeight, y + height + 6);
    return { x: left, y: top, width: right - left, height: bottom - top };
}"""
WITHOUT = "() => { window.focused = document.activeElement; window.focused.blur(); }"
FARTHEST = 60  # stops


class Keyboard:
    """Its keys, and nothing else."""

    def __init__(self, page: Page) -> None:
        self._page = page

    @property
    def focus(self) -> str:
        """The name of what has the focus; empty when nothing has it."""
        name: str = self._page.evaluate(NAME)
        return name

    def press(self, *keys: str) -> None:
        for key in keys:
            self._page.keyboard.press(key)

    def writes(self, text: str) -> None:
        """Instead of what is selected."""
        self._page.keyboard.insert_text(text)

    def stops(self, key: str = "Tab") -> Iterator[str]:
        """What has the focus after each press of the key, until nothing has it or the first has it again."""
        first = None
        for _ in range(FARTHEST):
            self.press(key)
            focus = self.focus
            if not focus or focus == first:
                return
            first = first or focus
            yield focus
        raise AssertionError("the keyboard is trapped")

    def goes_to(self, name: str, key: str = "Tab") -> None:
        """To the next thing whose name begins like this."""
        passed: list[str] = []
        while not self.focus.startswith(name) or not passed:
            passed.append(self.focus)
            assert len(passed) < FARTHEST, f"{name} is nowhere: {passed}"
            self.press(key)

    def chooses(self, name: str, key: str = "Tab") -> None:
        """Goes there, and presses Enter."""
        self.goes_to(name, key)
        self.press("Enter")

    def sees_the_focus(self) -> bool:
        """Whether what has the focus looks different from what has not."""
        place = self._page.evaluate(PLACE)
        focused = self._page.screenshot(clip=place, animations="disabled")
        self._page.evaluate(WITHOUT)
        without = self._page.screenshot(clip=place, animations="disabled")
        self._page.evaluate("window.focused.focus()")
        return focused != without
