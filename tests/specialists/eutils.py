"""A server of NCBI's E-utilities on a real port: esearch in JSON, efetch in XML, einfo; and its failures."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl

from limits import WAIT_SECONDS
from web_site import Text, site

JSON = "application/json; charset=UTF-8"
XML = "text/xml; charset=UTF-8"
HTML = "text/html; charset=UTF-8"
DOCTYPE = (
    '<?xml version="1.0" ?>\n<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2025//EN" '
    '"https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">\n'
)
BUSY = '{"error":"API rate limit exceeded","api-key":"192.0.2.1","count":"4","limit":"3"}'


def response(
    body: bytes | str = "",
    status: int = 200,
    type: str = JSON,
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    cut: bool = False,
) -> Text:
    """A response; with `cut` the connection closes in the middle of the body."""
    return Text(body, type, status, {**headers, **({"Content-Length": "9999999"} if cut else {})})


@dataclass(frozen=True)
class Request:
    """One request to a program such as `esearch`."""

    program: str
    params: Mapping[str, str]
    method: str


@dataclass
class Eutils:
    """The server's state.

    Attributes:
        records: articles by PMID.
        total: number of articles that a search finds; default all records.
        replies: first responses, by program.
        requests: received requests in order.
        arrived: set by each request.
        released: requests wait until it is set.
    """

    records: dict[str, str] = field(default_factory=dict)
    total: int | None = None
    result: dict[str, Any] = field(default_factory=dict)
    replies: dict[str, list[Text]] = field(default_factory=lambda: defaultdict(list))
    requests: list[Request] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    base: str = ""

    def last(self, program: str = "esearch") -> Mapping[str, str]:
        """Return the parameters of the newest request to a program."""
        return [request.params for request in self.requests if request.program == program][-1]

    @property
    def programs(self) -> list[str]:
        return [request.program for request in self.requests]

    def respond(self, program: str, params: Mapping[str, str]) -> Text:
        if self.replies[program]:
            return self.replies[program].pop(0)
        if program == "esearch":
            return response(json.dumps(self.search(params)))
        if program == "efetch":
            found = [self.records[pmid] for pmid in params["id"].split(",") if pmid in self.records]
            return response(article_set(*found), type=XML)
        info = {"header": {"type": "einfo", "version": "0.3"}, "einforesult": {"dbinfo": [{"dbname": "pubmed"}]}}
        return response(json.dumps(info))

    def search(self, params: Mapping[str, str]) -> Any:
        ids = list(self.records)
        first, most = int(params.get("retstart", 0)), int(params.get("retmax", 20))
        result = {
            "count": str(self.total if self.total is not None else len(ids)),
            "retmax": params.get("retmax", "20"),
            "retstart": params.get("retstart", "0"),
            "idlist": ids[first : first + most],
            "translationset": [],
            "querytranslation": f"{params['term']}[All Fields]",
        }
        return {"header": {"type": "esearch", "version": "0.3"}, "esearchresult": {**result, **self.result}}


def article_set(*records: str) -> str:
    return f"{DOCTYPE}<PubmedArticleSet>{''.join(records)}</PubmedArticleSet>"


def record(
    pmid: str = "1",
    *,
    title: str = "Metformin and dementia.",
    abstract: str = "<AbstractText>Metformin helped. It was safe.</AbstractText>",
    authors: str = "<Author><LastName>Doe</LastName><ForeName>Jane Ann</ForeName><Initials>JA</Initials></Author>",
    published: str = "<Year>2023</Year><Month>Jul</Month><Day>06</Day>",
    types: Sequence[str] = ("Journal Article",),
    inside: str = "",
    after: str = "",
    ids: str = "",
) -> str:
    """Return a PubmedArticle; `inside` ends its Article, `after` follows it, `ids` extends its list of ids."""
    listed = "".join(f'<PublicationType UI="D000000">{kind}</PublicationType>' for kind in types)
    return (
        f'<PubmedArticle><MedlineCitation Status="MEDLINE" Owner="NLM"><PMID Version="1">{pmid}</PMID>'
        '<Article PubModel="Print-Electronic"><Journal><ISSN IssnType="Electronic">1533-4406</ISSN>'
        f'<JournalIssue CitedMedium="Internet"><Volume>389</Volume><Issue>1</Issue><PubDate>{published}</PubDate>'
        "</JournalIssue><Title>The journal of examples</Title><ISOAbbreviation>J Ex</ISOAbbreviation></Journal>"
        f"<ArticleTitle>{title}</ArticleTitle><Pagination><MedlinePgn>11-22</MedlinePgn></Pagination>"
        f'<Abstract>{abstract}</Abstract><AuthorList CompleteYN="Y">{authors}</AuthorList><Language>eng</Language>'
        f"<PublicationTypeList>{listed}</PublicationTypeList>{inside}</Article>"
        f"<MedlineJournalInfo><MedlineTA>J Ex</MedlineTA></MedlineJournalInfo>{after}</MedlineCitation>"
        f'<PubmedData><ArticleIdList><ArticleId IdType="pubmed">{pmid}</ArticleId>{ids}</ArticleIdList></PubmedData>'
        "</PubmedArticle>"
    )


@contextmanager
def serving(state: Eutils) -> Iterator[Eutils]:
    """Serve at `state.base`."""

    def answer(path: str, body: bytes) -> Text:
        path, _, query = path.partition("?")
        program = path.rpartition("/")[2].removesuffix(".fcgi")
        params = dict(parse_qsl(query or body.decode(), keep_blank_values=True))
        state.requests.append(Request(program, params, "POST" if body else "GET"))
        state.arrived.set()
        state.released.wait(WAIT_SECONDS)
        return state.respond(program, params)

    with site(answer) as server:
        state.base = f"{server.url}/entrez/eutils/"
        state.released.set()
        try:
            yield state
        finally:
            state.released.set()
