"""The wikis that a call can name: Wikipedia by language, configured wikis, and offline files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from brain import Refused

WIKIPEDIA = "wikipedia"
WIKIPEDIA_API = "https://{language}.wikipedia.org/w/api.php"
LANGUAGES = frozenset(Path(__file__).with_name("languages.txt").read_text("ascii").split())
"""Codes of all Wikipedias."""

_NAME = re.compile(r"[\w][\w .-]{0,59}")
_URL = re.compile(r"https?://[^\s/@]+(?:/\S*)?")
_WIKIPEDIA_HOST = re.compile(r"(?:([\w-]{2,15})\.)?wikipedia\.org")


@dataclass(frozen=True)
class WikiSettings:
    """The settings of `wiki`."""

    language: Annotated[str, Meta(description="default language, as the code of a Wikipedia")] = "en"
    default: Annotated[str, Meta(description="name of the default wiki")] = WIKIPEDIA
    wikis: Annotated[
        dict[str, str],
        Meta(
            description="other MediaWikis: a table of names and `api.php` URLs, in the environment `name=url,…`; "
            "`{language}` in a URL is replaced by the call's language"
        ),
    ] = field(default_factory=dict)
    zim: Annotated[
        list[str], Meta(description="offline wikis: paths of ZIM files, named by file name; needs `wiki-offline`")
    ] = field(default_factory=list)
    contact: Annotated[
        str, Meta(description="your e-mail address or URL, sent to the wikis; Wikimedia requires one")
    ] = ""


@dataclass(frozen=True, slots=True)
class OnlineWiki:
    """A MediaWiki: label in results, URL of its API, and whether the operator configured it."""

    label: str
    api: str
    is_trusted: bool


@dataclass(frozen=True, slots=True)
class OfflineWiki:
    """A ZIM file."""

    label: str
    path: Path


def find_problem(*, settings: WikiSettings) -> str | None:
    """Return what is wrong with the settings, or None."""
    try:
        apis = api_urls(settings)
    except ValueError as error:
        return f"BRAIN_SPECIALIST_WIKI_WIKIS: invalid name or URL of the wiki {error}"
    if settings.language not in LANGUAGES:
        return f"BRAIN_SPECIALIST_WIKI_LANGUAGE: there is no Wikipedia in {settings.language!r}; use a code such as en"
    if settings.default.casefold() not in (names := {**apis, **zim_files(settings)}):
        return f"BRAIN_SPECIALIST_WIKI_DEFAULT: {settings.default!r} is not one of: {', '.join(names)}"
    return None


def api_urls(settings: WikiSettings) -> Mapping[str, str]:
    """Return the URLs of APIs by name. Raises `ValueError` with the name of a wiki whose name or URL is invalid."""
    found = {WIKIPEDIA: WIKIPEDIA_API}
    for name, url in settings.wikis.items():
        if not _NAME.fullmatch(name.casefold()) or not _URL.fullmatch(url):
            raise ValueError(name)
        found[name.casefold()] = url if url.endswith(".php") else url.rstrip("/") + "/api.php"
    return found


def zim_files(settings: WikiSettings) -> Mapping[str, Path]:
    """Return the ZIM files by name, without `.zim`."""
    paths = [Path(path).expanduser() for path in settings.zim]
    return {path.stem.casefold(): path for path in paths}


def choose_wiki(wiki: str | None, language: str | None, settings: WikiSettings) -> OnlineWiki | OfflineWiki:
    """Return the wiki of a call; raises `Refused` for an unknown wiki or language."""
    apis, files = api_urls(settings), zim_files(settings)
    name = (wiki or settings.default).strip().casefold()
    if match := _WIKIPEDIA_HOST.fullmatch(name):
        name, language = WIKIPEDIA, language or match[1]
    if name in files and name not in apis:
        return OfflineWiki(f"{files[name].stem} (offline)", files[name])
    if name not in apis:
        names = ", ".join([*apis, *files])[:250]
        raise Refused(f"there is no wiki named '{(wiki or '')[:60]}'", f"use one of: {names}")
    language = (language or settings.language).strip()
    code = language.lower().replace("_", "-")
    code = code if code in LANGUAGES else code.partition("-")[0]  # `pt-BR` has no Wikipedia but `pt`
    if code not in LANGUAGES:
        advice = "use a language code such as en, de, zh or simple"
        raise Refused(f"there is no Wikipedia in '{language[:40]}'", advice)
    label = f"{name.capitalize()} ({code})" if "{language}" in apis[name] else name.capitalize()
    return OnlineWiki(label, apis[name].replace("{language}", code), apis[name] != WIKIPEDIA_API)
