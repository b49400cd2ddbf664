"""What axe finds in the page as it stands: each rule that is broken, with the element that breaks it."""

from pathlib import Path

from nodes import Clients

from page.chat import Chat

SETTLED = """() => Promise.all(document.getAnimations()
    .filter((one) => one.effect.getTiming().iterations !== Infinity).map((one) => one.finished)).then(() => null)"""
FIND = """async () => {
    const rules = axe.getRules().map(({ ruleId, tags }) => [ruleId, { enabled: !tags.includes("wcag2aaa") }]);
    const { violations, passes } = await axe.run(document, { rules: Object.fromEntries(rules) });
    const broken = violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 200)}`));
    return { broken, held: passes.map(({ id }) => id) };
}"""


class Axe:
    """All its rules, also those that are experimental; only what goes beyond WCAG's level AA is none."""

    def __init__(self, clients: Clients) -> None:
        self._source = Path(clients.folder, "node_modules", "axe-core", "axe.min.js").read_text("utf-8")

    def finds(self, chat: Chat) -> list[str]:
        """What is wrong; it looks when nothing moves any more."""
        chat.page.evaluate(SETTLED)
        chat.page.evaluate(self._source)
        found = chat.page.evaluate(FIND)
        broken: list[str] = found["broken"]
        assert "color-contrast" in found["held"] or broken
        return broken
