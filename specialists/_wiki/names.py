"""The wikis that a call can name: Wikipedia in its languages, the operator's by name, offline files."""

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
"""Codes of Wikipedias, which are not all codes of languages; others lead nowhere."""

_NAME = re.compile(r"[\w][\w .-]{0,59}")
_ADDRESS = re.compile(r"https?://[^\s/@]+(?:/\S*)?")
_WIKIPEDIA_HOST = re.compile(r"(?:([\w-]{2,15})\.)?wikipedia\.org")


@dataclass(frozen=True)
class WikiSettings:
    """The settings of `wiki`."""

    language: Annotated[str, Meta(description="code of the Wikipedia that is asked when a call names no language")] = (
        "en"
    )
    default: Annotated[str, Meta(description="name of the wiki that is asked when a call names none")] = WIKIPEDIA
    wikis: Annotated[
        dict[str, str],
        Meta(
            description="other MediaWikis: names and addresses of their `api.php`, as a table, in the environment as "
            "`name=address,…`; `{language}` in an address stands for the call's language"
        ),
    ] = field(default_factory=dict)
    zim: Annotated[
        list[str], Meta(description="offline wikis: paths of ZIM files, which go by their names; needs `wiki-offline`")
    ] = field(default_factory=list)
    contact: Annotated[
        str, Meta(description="an address of yours, told to the wikis that are asked, as Wikimedia asks for")
    ] = ""


@dataclass(frozen=True, slots=True)
class OnlineWiki:
    """A MediaWiki: its label for the reader, the address of its API, and whether the operator gave it."""

    label: str
    api: str
    is_trusted: bool


@dataclass(frozen=True, slots=True)
class OfflineWiki:
    """A ZIM file."""

    label: str
    path: Path


def find_problem(*, settings: WikiSettings) -> str | None:
    """The setting that is wrong, if there is one."""
    try:
        apis = api_addresses(settings)
    except ValueError:
        return "its setting WIKIS is wrong: it must hold names of wikis with the addresses of their api.php"
    if settings.language not in LANGUAGES:
        return "its setting LANGUAGE is wrong: it must be the code of a Wikipedia, such as en"
    if settings.default.casefold() not in {*apis, *zim_files(settings)}:
        return "its setting DEFAULT is wrong: it must be the name of a wiki"
    return None


def api_addresses(settings: WikiSettings) -> Mapping[str, str]:
    """Addresses of APIs by name. Raises ValueError for other settings."""
    found = {WIKIPEDIA: WIKIPEDIA_API}
    for name, address in settings.wikis.items():
        if not _NAME.fullmatch(name.casefold()) or not _ADDRESS.fullmatch(address):
            raise ValueError(name)
        found[name.casefold()] = address if address.endswith(".php") else address.rstrip("/") + "/api.php"
    return found


def zim_files(settings: WikiSettings) -> Mapping[str, Path]:
    """ZIM files by their names, without `.zim`."""
    paths = [Path(path).expanduser() for path in settings.zim]
    return {path.stem.casefold(): path for path in paths}


def choose_wiki(wiki: str | None, language: str | None, settings: WikiSettings) -> OnlineWiki | OfflineWiki:
    """The wiki of a call; raises `Refused` with the names of wikis, or for an unknown language."""
    apis, files = api_addresses(settings), zim_files(settings)
    name = (wiki or settings.default).strip().casefold()
    if match := _WIKIPEDIA_HOST.fullmatch(name):
        name, language = WIKIPEDIA, language or match[1]
    if name in files and name not in apis:
        return OfflineWiki(f"{files[name].stem} (offline)", files[name])
    if name not in apis:
        raise Refused(f"there is no wiki named '{(wiki or '')[:60]}'; there are: {', '.join([*apis, *files])[:250]}")
    language = (language or settings.language).strip()
    code = language.lower().replace("_", "-")
    code = code if code in LANGUAGES else code.partition("-")[0]  # `pt-BR` is that of `pt`
    if code not in LANGUAGES:
        raise Refused(
            f"there is no Wikipedia in '{language[:40]}'; a language goes by its code, such as en, de, zh or simple"
        )
    label = f"{name.upper()} ({code})" if "{language}" in apis[name] else name.upper()
    return OnlineWiki(label, apis[name].replace("{language}", code), apis[name] != WIKIPEDIA_API)
