"""A server of NCBI's E-utilities on a real port: esearch in JSON, efetch in XML, einfo; and its failures."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

JSON = "application/json; charset=UTF-8"
XML = "text/xml; charset=UTF-8"
HTML = "text/html; charset=UTF-8"
DOCTYPE = (
    '<?xml version="1.0" ?>\n<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2025//EN" '
    '"https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">\n'
)
BUSY = '{"error":"API rate limit exceeded","api-key":"192.0.2.1","count":"4","limit":"3"}'


@dataclass(frozen=True)
class Reply:
    """One answer; with `cut` the connection closes in the middle of what its length promises."""

    body: str | bytes = ""
    status: int = 200
    kind: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


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
        replies: answers that come first, by program.
        requests: those that came, in order.
        arrived: set by each request.
        released: while it is clear, requests wait for it.
    """

    records: dict[str, str] = field(default_factory=dict)
    total: int | None = None
    result: dict[str, Any] = field(default_factory=dict)
    replies: dict[str, list[Reply]] = field(default_factory=lambda: defaultdict(list))
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

    def reply(self, program: str, params: Mapping[str, str]) -> Reply:
        if self.replies[program]:
            return self.replies[program].pop(0)
        if program == "esearch":
            return Reply(json.dumps(self.search(params)))
        if program == "efetch":
            found = [self.records[pmid] for pmid in params["id"].split(",") if pmid in self.records]
            return Reply(article_set(*found), kind=XML)
        if program == "einfo":
            info = {"header": {"type": "einfo", "version": "0.3"}, "einforesult": {"dbinfo": [{"dbname": "pubmed"}]}}
            return Reply(json.dumps(info))
        return Reply("not found", 404, HTML)

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
    behind: str = "",
    ids: str = "",
) -> str:
    """Return a PubmedArticle; `inside` ends its Article, `behind` follows it, `ids` goes into its list of numbers."""
    listed = "".join(f'<PublicationType UI="D000000">{kind}</PublicationType>' for kind in types)
    return (
        f'<PubmedArticle><MedlineCitation Status="MEDLINE" Owner="NLM"><PMID Version="1">{pmid}</PMID>'
        '<Article PubModel="Print-Electronic"><Journal><ISSN IssnType="Electronic">1533-4406</ISSN>'
        f'<JournalIssue CitedMedium="Internet"><Volume>389</Volume><Issue>1</Issue><PubDate>{published}</PubDate>'
        "</JournalIssue><Title>The journal of examples</Title><ISOAbbreviation>J Ex</ISOAbbreviation></Journal>"
        f"<ArticleTitle>{title}</ArticleTitle><Pagination><MedlinePgn>11-22</MedlinePgn></Pagination>"
        f'<Abstract>{abstract}</Abstract><AuthorList CompleteYN="Y">{authors}</AuthorList><Language>eng</Language>'
        f"<PublicationTypeList>{listed}</PublicationTypeList>{inside}</Article>"
        f"<MedlineJournalInfo><MedlineTA>J Ex</MedlineTA></MedlineJournalInfo>{behind}</MedlineCitation>"
        f'<PubmedData><ArticleIdList><ArticleId IdType="pubmed">{pmid}</ArticleId>{ids}</ArticleIdList></PubmedData>'
        "</PubmedArticle>"
    )


@contextmanager
def serving(state: Eutils) -> Iterator[Eutils]:
    """Serve at `state.base`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            self.answer(path, query)

        def do_POST(self) -> None:
            self.answer(self.path, self.rfile.read(int(self.headers["Content-Length"])).decode())

        def answer(self, path: str, query: str) -> None:
            program = path.rpartition("/")[2].removesuffix(".fcgi")
            params = dict(parse_qsl(query, keep_blank_values=True))
            state.requests.append(Request(program, params, self.command))
            state.arrived.set()
            state.released.wait(60)
            reply = state.reply(program, params)
            body = reply.body.encode() if isinstance(reply.body, str) else reply.body
            with suppress(ConnectionError):
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.kind)
                self.send_header("Content-Length", str(len(body) * (2 if reply.cut else 1)))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.base = f"http://127.0.0.1:{server.server_port}/entrez/eutils/"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    state.released.set()
    try:
        yield state
    finally:
        state.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
