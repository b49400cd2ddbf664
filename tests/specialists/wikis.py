"""A wiki for tests that speaks the Action API, with the quirks of others."""

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from web_site import Site, Text, site

Json = Any
Params = Mapping[str, str]


@dataclass(frozen=True)
class Article:
    """A page of a wiki; `extract` is its plain text with headings such as `== History ==`."""

    html: str = ""
    extract: str = ""
    props: Mapping[str, str] = field(default_factory=dict)
    categories: Sequence[str] = ()


def reply(
    body: bytes | str = "{}", status: int = 200, headers: Mapping[str, str] = MappingProxyType({}), **more: Any
) -> Text:
    """An answer in JSON."""
    return Text(body, status=status, headers=headers, **{"type": "application/json", **more})


@dataclass
class ActionApi:
    """The Action API over a few pages.

    Attributes:
        redirects: from a title to another one and its section.
        hits: titles by the words of a search.
        version: of the format; a server that knows only 1 ignores what is requested.
        extracts, parses: whether it has TextExtracts, and `action=parse`.
        replies: the first answers.
    """

    pages: Mapping[str, Article]
    redirects: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    hits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    suggestion: str = ""
    version: int = 2
    extracts: bool = True
    parses: bool = True
    batches: bool = False
    replies: list[Text] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    server: Site = field(init=False)

    def answer(self, params: Params) -> Json:
        action = {"query": self._query, "parse": self._parse, "opensearch": self._opensearch}[params["action"]]
        return action(params)

    def _query(self, params: Params) -> Json:
        query: dict[str, Json] = {}
        answer: dict[str, Json] = {"batchcomplete": True if self.version == 2 else "", "query": query}
        if "titles" in params:
            self._add_page(params, query, answer)
        if params.get("list") == "search":
            titles = self.hits.get(params["srsearch"], ())
            query["search"] = [{"ns": 0, "title": title, "snippet": self._snippet(title)} for title in titles]
            query["searchinfo"] = {"suggestion": self.suggestion} if self.suggestion and not titles else {}
            if titles:
                answer["continue"] = {"sroffset": 6, "continue": "-||"}
        if params.get("meta") == "siteinfo":
            query["rightsinfo"] = {"url": "", "text": ""}
        return answer

    def _add_page(self, params: Params, query: dict[str, Json], answer: dict[str, Json]) -> None:
        title, fragment = self.redirects.get(params["titles"], (params["titles"], ""))
        if title != params["titles"]:
            redirect = {"from": params["titles"], "to": title}
            query["redirects"] = [redirect | ({"tofragment": fragment} if fragment else {})]
        page: dict[str, Json] = {"ns": 0, "title": title}
        if title not in self.pages:
            page["missing"] = True if self.version == 2 else ""
        elif self.batches and "excontinue" in params:
            page |= {"pageid": 7, "extract": self._props(title, params)["extract"]}
        else:
            page |= {"pageid": 7, **self._props(title, params)}
            if self.batches:
                page.pop("extract", None)
                del answer["batchcomplete"]
                answer["continue"] = {"excontinue": 1, "continue": "||"}
        query["pages"] = [page] if self.version == 2 else {str(page.get("pageid", -1)): page}

    def _props(self, title: str, params: Params) -> dict[str, Json]:
        page, props = self.pages[title], params.get("prop", "").split("|")
        found: dict[str, Json] = {"lastrevid": 42}
        if "info" in props and params.get("inprop") == "url":
            found["fullurl"] = f"https://wiki.example/wiki/{title.replace(' ', '_')}"
        if "revisions" in props:
            found["revisions"] = [{"revid": 42, "timestamp": "2026-05-06T07:08:09Z"}]
        if "pageprops" in props and page.props:
            found["pageprops"] = dict(page.props)
        if "categories" in props:
            found["categories"] = [{"ns": 14, "title": f"Category:{one}"} for one in page.categories]
        if "extracts" in props and self.extracts:
            found["extract"] = page.extract.partition("\n\n\n==")[0] if "exintro" in params else page.extract
        return found

    def _parse(self, params: Params) -> Json:
        title = params["page"]
        if not self.parses:
            return {"error": {"code": "unknown_action", "info": "Unrecognized value for parameter action"}}
        if title not in self.pages:
            return {"error": {"code": "missingtitle", "info": "The page you specified doesn't exist."}}
        source = self.pages[title].html
        headings = [(m[1], m[2], m.start()) for m in re.finditer(r"<h(\d)>(.*?)</h\d>", source)]
        parsed: dict[str, Json] = {"title": title, "pageid": 7}
        if "sections" in params["prop"]:
            parsed["sections"] = [
                {"level": level, "line": line, "number": str(n), "index": str(n), "anchor": line.replace(" ", "_")}
                for n, (level, line, _) in enumerate(headings, 1)
            ]
        if "text" in params["prop"]:
            starts = [0, *(start for *_, start in headings), len(source)]
            number = int(params.get("section", "-1"))
            part = source if number < 0 else source[starts[number] : starts[number + 1]]
            parsed["text"] = part if self.version == 2 else {"*": part}
        return {"parse": parsed}

    def _opensearch(self, params: Params) -> Json:
        words = params["search"]
        return [words, [title for title in self.pages if title.casefold().startswith(words.casefold())], [], []]

    def _snippet(self, title: str) -> str:
        extract = html.escape(self.pages[title].extract[:80]) if title in self.pages else ""
        return f'<span class="searchmatch">{extract}</span>'


@contextmanager
def serve(api: ActionApi) -> Iterator[ActionApi]:
    """Serves a wiki on a port of this machine."""

    def answer(path: str, _: bytes) -> Text:
        params = dict(parse_qsl(urlsplit(path).query, keep_blank_values=True))
        api.requests.append(params)
        return api.replies.pop(0) if api.replies else reply(json.dumps(api.answer(params)))

    with site(answer) as api.server:
        api.url = f"{api.server.url}/api.php"
        yield api
