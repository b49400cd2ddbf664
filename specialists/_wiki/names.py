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
LANGUAGES = frozenset({
    "aa", "ab", "ace", "ady", "af", "ak", "als", "alt", "am", "ami", "an", "ang", "ann", "anp", "ar", "arc", "ary",
    "arz", "as", "ast", "atj", "av", "avk", "awa", "ay", "az", "azb", "ba", "ban", "bar", "bat-smg", "bbc", "bcl",
    "bdr", "be", "be-tarask", "be-x-old", "bew", "bg", "bh", "bi", "bjn", "blk", "bm", "bn", "bo", "bpy", "br",
    "bs", "btm", "bug", "bxr", "ca", "cbk-zam", "cdo", "ce", "ceb", "ch", "chr", "chy", "ckb", "co", "cr", "crh",
    "cs", "csb", "cu", "cv", "cy", "da", "dag", "de", "dga", "din", "diq", "dsb", "dtp", "dty", "dv", "dz", "ee",
    "el", "eml", "en", "eo", "es", "et", "eu", "ext", "fa", "fat", "ff", "fi", "fiu-vro", "fj", "fo", "fon", "fr",
    "frp", "frr", "fur", "fy", "ga", "gag", "gan", "gcr", "gd", "gl", "glk", "gn", "gom", "gor", "got", "gpe",
    "gsw", "gu", "guc", "gur", "guw", "gv", "ha", "hak", "haw", "he", "hi", "hif", "hr", "hsb", "ht", "hu", "hy",
    "hyw", "ia", "iba", "id", "ie", "ig", "igl", "ik", "ilo", "inh", "io", "is", "isv", "it", "iu", "ja", "jam",
    "jbo", "jv", "ka", "kaa", "kab", "kaj", "kbd", "kbp", "kcg", "kg", "kge", "ki", "kk", "kl", "km", "kn", "knc",
    "ko", "koi", "krc", "ks", "ksh", "ku", "kus", "kv", "kw", "ky", "la", "lad", "lb", "lbe", "lez", "lfn", "lg",
    "li", "lij", "lld", "lmo", "ln", "lo", "lt", "ltg", "lv", "lzh", "mad", "mai", "map-bms", "mdf", "mg", "mhr",
    "mi", "min", "mk", "ml", "mn", "mni", "mnw", "mos", "mr", "mrj", "ms", "mt", "mus", "mwl", "my", "myv", "mzn",
    "na", "nah", "nan", "nap", "nds", "nds-nl", "ne", "new", "nia", "nl", "nn", "no", "nov", "nqo", "nr", "nrm",
    "nso", "nup", "nv", "ny", "oc", "olo", "om", "or", "os", "pa", "pag", "pam", "pap", "pcd", "pcm", "pdc", "pfl",
    "pi", "pih", "pl", "pms", "pnb", "pnt", "ps", "pt", "pwn", "qu", "rm", "rmy", "rn", "ro", "roa-rup", "roa-tara",
    "rsk", "ru", "rue", "rup", "rw", "sa", "sah", "sat", "sc", "scn", "sco", "sd", "se", "sg", "sgs", "sh", "shi",
    "shn", "si", "simple", "sk", "skr", "sl", "sm", "smn", "sn", "so", "sq", "sr", "srn", "ss", "st", "stq", "su",
    "sv", "sw", "syl", "szl", "szy", "ta", "tay", "tcy", "tdd", "te", "tet", "tg", "th", "ti", "tig", "tk", "tl",
    "tly", "tn", "to", "tpi", "tr", "trv", "ts", "tt", "tum", "tw", "ty", "tyv", "udm", "ug", "uk", "ur", "uz",
    "ve", "vec", "vep", "vi", "vls", "vo", "vro", "wa", "war", "wo", "wuu", "xal", "xh", "xmf", "yi", "yo", "yue",
    "za", "zea", "zgh", "zh", "zh-classical", "zh-min-nan", "zh-yue", "zu",
})  # fmt: skip
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
    trusted: bool


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
