"""The page in each language: chosen from the browser or by the person, loaded once, and fitting a phone."""

import pytest
from playwright.sync_api import expect

from page.server import PageServer, request
from page.texts import LANGUAGES, failure, page_text
from page.visitor import PHONE, Visitor

pytestmark = pytest.mark.chromium

LOCALES = {"de": "de-AT", "en": "en-GB", "es": "es-MX", "fr": "fr-CA", "zh": "zh-CN"}
IN_EACH = pytest.mark.parametrize(
    ("visitor", "language"),
    [({**PHONE, "locale": locale}, language) for language, locale in LOCALES.items()],
    indirect=["visitor"],
    ids=list(LOCALES),
)
GERMAN = pytest.mark.parametrize("visitor", [{"locale": "de-DE"}], indirect=True)


@IN_EACH
def test_the_browser_decides_and_all_fits_a_phone(server: PageServer, visitor: Visitor, language: str) -> None:
    page = visitor.new_page()
    page.goto(server.url)
    expect(page.locator("#model option")).not_to_have_count(0)
    expect(page.get_by_role("textbox", name=page_text("message", language), exact=True)).to_be_visible()
    assert page.evaluate("document.documentElement.lang.split('-')[0]") == language
    requested = [head.split()[1] for head in server.network.requests]
    assert [path.rpartition("/")[2] for path in requested if "/texts/" in path] == [f"{language}.json"]
    for name in ("settings", "specialists", "memory"):
        page.get_by_role("button", name=page_text(name, language), exact=True).click()
        dialog = page.get_by_role("dialog", name=page_text(name, language), exact=True)
        expect(dialog).to_be_visible()
        assert dialog.evaluate("node => node.scrollWidth - node.clientWidth") <= 0
        page.keyboard.press("Escape")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert set(LANGUAGES) == set(LOCALES)


@GERMAN
def test_the_choice_of_a_person_is_remembered(server: PageServer, visitor: Visitor) -> None:
    page = visitor.new_page()
    page.goto(server.url)
    for before, name, now in (("de", "Français", "fr"), ("fr", page_text("languageAuto", "fr"), "de")):
        page.get_by_role("button", name=page_text("settings", before), exact=True).click()
        page.get_by_role("button", name=name, exact=True).click()
        expect(page.get_by_role("button", name=page_text("send", now), exact=True)).to_be_visible()
        page.reload()
        expect(page.get_by_role("button", name=page_text("send", now), exact=True)).to_be_visible()


@GERMAN
def test_numbers_and_errors_are_in_the_language_of_the_page(server: PageServer, visitor: Visitor) -> None:
    visitor.allow("400")
    page = visitor.new_page()
    page.goto(server.url)
    expect(page.locator("#model option")).not_to_have_count(0)
    picker = page.locator("#picker")
    picker.set_input_files({"name": "a.bin", "mimeType": "", "buffer": bytes(3 << 19)})
    expect(page.get_by_role("listitem").filter(has_text="a.bin")).to_contain_text("1,5 MiB")
    page.get_by_role("textbox", name=page_text("message", "de"), exact=True).fill("Hallo")
    page.keyboard.press("Enter")
    server.model.write(request("wiki", name=1), " x")
    server.model.end()
    card = page.get_by_role("group", name="wiki", exact=True)
    expect(card).to_contain_text(failure("wiki", "invalid_params", language="de"))
    card.locator("summary").click()
    expect(card).to_contain_text(page_text("details", "de"))
    expect(page.get_by_role("button", name=page_text("send", "de"), exact=True)).to_be_visible()
    rejection = {"code": "bad_request", "message": "No such model"}
    page.route("**/v1/turns", lambda route: route.fulfill(status=400, json={"error": rejection}))
    page.get_by_role("textbox", name=page_text("message", "de"), exact=True).fill("Und jetzt?")
    page.keyboard.press("Enter")
    what = LANGUAGES["de"]["errors"]["bad_request"]["what"]
    expect(page.get_by_role("main").get_by_role("alert").filter(has_text=what)).to_have_text(f"{what} No such model")
