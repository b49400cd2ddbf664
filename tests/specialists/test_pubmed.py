"""`pubmed` against a server of the E-utilities: its requests, its results, and every failure."""

import asyncio
import json
import random
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eutils import BUSY, HTML, XML, Eutils, article_set, record, response, serving
from specialist_calls import answer, context, outcome, refusal, refused
from web_site import Text

from brain import Citation, Context, Page, Progress, Refused, Result
from brain.net.fetch import Fetch
from brain.prompts.blocks import result_text
from specialists._pubmed import eutils
from specialists._pubmed.eutils import PubmedSettings, parse_search
from specialists.pubmed import health, pubmed

TODAY = date(2026, 11, 21)
RETRACTED = record(
    "22",
    title="A claim.",
    types=("Journal Article", "Retracted Publication"),
    after="<CommentsCorrectionsList><CommentsCorrections RefType='RetractionIn'><RefSource>J Ex. 2024;1:2</RefSource>"
    "<PMID>99</PMID></CommentsCorrections></CommentsCorrectionsList>",
)
URL = "https://pubmed.ncbi.nlm.nih.gov"
CASES = tomllib.loads((Path(__file__).parent / "pubmed_cases.toml").read_text("utf-8"))
ARTICLE = "Metformin and dementia."


@pytest.fixture
def server() -> Iterator[Eutils]:
    with serving(Eutils({"11": record("11", types=("Review",)), "22": RETRACTED}, total=1234)) as state:
        yield state


def ctx(server: Eutils, *, message: str = "", requests_per_second: int = 100, **more: Any) -> Context:
    settings = PubmedSettings(base=server.base, requests_per_second=requests_per_second, **more)
    return context(settings=settings, message=message)


async def steps(ctx: Context, **params: Any) -> list[Progress | Result]:
    """Return all that a call yields, on a day of November 2026."""
    return [item async for item in pubmed(**params, context=ctx, settings=ctx.settings, today=TODAY)]


def result(server: Eutils, **params: Any) -> Result:
    last = asyncio.run(steps(ctx(server), **params))[-1]
    assert isinstance(last, Result)
    return last


def refuse(server: Eutils, params: dict[str, Any] | None = None, **more: Any) -> str:
    return refusal(pubmed, params or {"query": "x"}, ctx(server, **more))


# Lists


def test_a_list_of_articles(server: Eutils) -> None:
    found = result(server, query="metformin dementia", date_range="last 5 years", article_types=["review"])
    head, first, second, more = found.text.split("\n\n")
    assert head.startswith(
        "🔬 PUBMED: 2 of 1,234 articles for 'metformin dementia' (2021-11-21 to 2026-11-21; review)\n"
    )
    assert head.endswith('(metformin dementia) AND ("review"[pt])[All Fields]')
    journal = "J Ex 2023-07-06;389(1):11-22"
    assert first == (
        f"[1] Metformin and dementia.\nDoe JA\n{journal} · Review\nPMID 11\nMetformin helped. It was safe."
    )
    assert second.startswith("[2] ⚠ RETRACTED")
    assert second.endswith(
        f": A claim.\nDoe JA\n{journal} · Retracted Publication\nPMID 22\n"
        "⚠ retraction notice: J Ex. 2024;1:2, PMID 99\nMetformin helped. It was safe."
    )
    assert [part in more for part in ("offset=2", "pmid=11")] == [True, True]
    assert found.citations == [
        Citation("PMID:11", ARTICLE, f"{URL}/11/"),
        Citation("PMID:22", "RETRACTED: A claim.", f"{URL}/22/"),
    ]
    data = json.loads(msgspec.json.encode(found.data))
    assert (data["total"], [one["retracted"] for one in data["articles"]]) == (1234, [False, True])


def test_requests(server: Eutils) -> None:
    found = answer(
        pubmed,
        {"query": "metformin", "max_results": 1, "date_range": "2024", "sort": "date", "offset": 1},
        ctx(server, email="ada@example.org", api_key="s3cret"),
    )
    assert "s3cret" not in found
    assert [(request.program, request.method) for request in server.requests] == [("esearch", "GET"), ("efetch", "GET")]
    own = {"db": "pubmed", "tool": "brain-sse", "email": "ada@example.org", "api_key": "s3cret"}
    assert server.last("esearch") == {
        "term": "metformin", "retmode": "json", "retstart": "1", "retmax": "1", "sort": "pub_date",
        "datetype": "pdat", "mindate": "2024/01/01", "maxdate": "2024/12/31", **own,
    }  # fmt: skip
    assert server.last("efetch") == {"id": "22", "retmode": "xml", "rettype": "abstract", **own}


@pytest.mark.parametrize("case", CASES["queries"], ids=lambda case: str(case["params"]))
def test_queries(server: Eutils, case: dict[str, Any]) -> None:
    answer(pubmed, case["params"], ctx(server, message=f" {case.get('message', '')}\n"))
    assert server.last()["term"] == case.get("term", case["params"]["query"])
    first = case.get("first")
    assert (server.last().get("mindate"), server.last().get("datetype")) == (first, first and "pdat")


def test_invisible_characters_of_a_query_are_dropped(server: Eutils) -> None:
    result(server, query="  “long\tCOVID”\x00\n\u202efatigue\ud800 ")
    assert server.last()["term"] == '"long COVID" fatigue'


def test_a_long_query_is_posted(server: Eutils) -> None:
    term = " OR ".join(f'"drug number {n}"[tiab]' for n in range(150))
    assert len(result(server, query=term).text.splitlines()[0]) < 300
    assert (server.requests[0].method, server.last()["term"]) == ("POST", term)


def test_a_list_names_the_rest(server: Eutils) -> None:
    long = "".join(f"<AbstractText Label='S{n}'>{'Word after word. ' * 30}</AbstractText>" for n in range(9))
    server.records = {str(n): record(str(n), abstract=long) for n in range(1, 41)}
    found = result(server, query="x", max_results=20, offset=5)
    assert found.text.startswith("🔬 PUBMED: 6-25 of 1,234 articles for 'x'\n")
    assert "\n\n[6] Metformin" in found.text
    assert "offset=25" in found.text.rpartition("\n\n")[2]
    assert found.more is not None
    shown = result_text(found.text, 8192, found.more)
    last = int(shown.rpartition("\n[Cut:")[0].rpartition("\n\n[")[2].partition("]")[0])
    assert 10 < last < 20
    assert f"offset={last - 1}." in shown
    assert found.more(len(found.text)).endswith("offset=25")
    assert re.findall(r"\w+=\d+", found.more(0)) == ["pmid=6", "offset=6"]
    server.total = 40
    at_the_end = result(server, query="x", max_results=20, offset=39).more
    assert at_the_end is not None
    assert re.findall(r"\w+=\d+", at_the_end(0)) == ["pmid=40"]


def test_an_empty_result_shows_how_pubmed_read_the_query(server: Eutils) -> None:
    server.total = 0
    server.result = {
        "idlist": [],
        "querytranslation": '"xyzzyq"[All Fields]',
        "errorlist": {"phrasesnotfound": ["xyzzyq"], "fieldsnotfound": ["titel"]},
        "warninglist": {
            "phrasesignored": ["the"],
            "quotedphrasesnotfound": ['"purple metformin"'],
            "outputmessages": ["No items found."],
        },
    }
    head, *notes, remedies = result(
        server, query="xyzzyq", date_range="2024", article_types=["guideline"]
    ).text.splitlines()
    assert head.endswith(" 'xyzzyq' (2024-01-01 to 2024-12-31; guideline)")
    assert [note.rpartition(": ")[2] for note in notes] == [
        '"xyzzyq"[All Fields]', "xyzzyq", "titel", '"purple metformin"', "the",
    ]  # fmt: skip
    assert [name in remedies for name in ("date_range", "article_types")] == [True, True]
    assert server.programs == ["esearch"]


# Articles by their numbers


@pytest.mark.parametrize(
    "params",
    [
        *({"pmid": pmid} for pmid in (11, "11", "PMID: 11", "pmid11", f"{URL}/11/", " 11, ", "11 11")),
        *(
            {"query": query}
            for query in ("show me the abstract of PMID 11", "PMID: 11", f"{URL}/11/", "read pmid:11 please")
        ),
    ],
)
def test_a_pmid_returns_the_whole_article(server: Eutils, params: dict[str, Any]) -> None:
    long = "".join(f"<AbstractText Label='PART {n}'>{'Word after word. ' * 40}End.</AbstractText>" for n in range(5))
    server.records["11"] = record("11", abstract=long)
    found = result(server, **params)
    assert (server.programs, server.last("efetch")["id"]) == (["efetch"], "11")
    assert found.text.startswith("🔬 PUBMED: PMID 11\n\nMetformin and dementia.\nDoe JA\nJ Ex 2023")
    assert "PART 4: Word" in found.text
    assert found.citations == [Citation("PMID:11", ARTICLE, f"{URL}/11/")]


def test_several_are_read_in_order_and_missing_ones_named(server: Eutils) -> None:
    head, _, rest = result(server, pmid="22,5,11").text.partition("\n\n")
    assert head.startswith("🔬 PUBMED: PMID 22, PMID 11\nNote: ")
    assert head.endswith(" PMID 5")
    assert rest.startswith("⚠ RETRACTED")


def test_a_long_text_continues_at_its_offset(server: Eutils) -> None:
    server.records["11"] = record("11", abstract=f"<AbstractText>{'Word after word. ' * 1000}</AbstractText>")
    first = result(server, pmid=11)
    assert first.more is not None
    shown = result_text(first.text, 8192, first.more)
    body = shown.rpartition("\n[Cut:")[0].partition("\n\n")[2]
    assert f"pmid=11 and offset={len(body)}." in shown
    assert body + result(server, pmid=11, offset=len(body)).text.partition("\n\n")[2] == first.text.partition("\n\n")[2]


@pytest.mark.parametrize(
    ("params", "part", "requests"),
    [
        ({"query": "x", "offset": 9}, "7 articles", 1),
        ({"query": "x", "offset": 9999}, "9,999", 0),
        ({"query": "x", "date_range": "recently"}, "'recently'", 0),
        ({"query": "x" * 4001}, "4,001", 0),
        ({"pmid": "5"}, "PMID 5", 1),
        ({"pmid": 11, "offset": 100000}, "100,000", 1),
        ({"pmid": "1,2,3,4,5,6,7,8,9,10,11"}, "11", 0),
        ({"pmid": "PMID"}, "0 PMIDs", 0),
        *(
            ({"pmid": pmid}, f"'{pmid}'", 0)
            for pmid in ("PMC7092803", "10.1056/NEJMoa2001017", "0", -4, "1234567890123", "²")
        ),
        *(
            (params, "no query", 0)
            for params in ({}, {"query": ""}, {"query": " ?! "}, {"query": "Find some papers!"}, {"pmid": " "})
        ),
    ],
)
def test_invalid_parameters(server: Eutils, params: dict[str, Any], part: str, requests: int) -> None:
    server.total = 7
    failure = refused(pubmed, params, ctx(server, message="Find some papers!"))
    assert part in failure.reason
    assert failure.advice
    assert len(server.requests) == requests


# Responses of a server


UNREADABLE = "response cannot be read"
UNREACHABLE = "did not answer properly"
BAD_QUERY = "query"
BAD_KEY = "API key"
SOON = {"Retry-After": "0"}


@pytest.mark.parametrize(
    "busy",
    [
        response(BUSY, 429, headers=SOON),
        response(BUSY, 200, headers=SOON),
        response('{"error":"/lbsm/eutils_lb -> Neg","api-key":"192.0.2.1","type":"ip","status":"ok"}', headers=SOON),
        response("slow down", 429, "text/plain", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        response("<html><body>Bad Gateway</body></html>", 502, HTML, SOON),
        response("", 503, HTML, SOON),
        response("<!DOCTYPE html><html><body>Maintenance</body></html>", 200, HTML, SOON),
        response('{"esearchresult":{"ERROR":"Search Backend failed: \n timed\n out"}}', headers=SOON),
    ],
)
def test_a_busy_server_is_retried(server: Eutils, busy: Text) -> None:
    server.replies["esearch"] = [busy] * 3
    server.replies["efetch"] = [busy]
    progress: list[Progress] = []
    assert isinstance(outcome(pubmed, {"query": "x"}, ctx(server), progress), Result)
    assert server.programs == ["esearch"] * 4 + ["efetch"] * 2
    assert "in 0 s" in progress[0].text


def test_delays_grow_if_the_server_names_none(server: Eutils, monkeypatch: pytest.MonkeyPatch) -> None:
    assert eutils.BACKOFF == (0.5, 1.0, 2.0)
    monkeypatch.setattr(eutils, "BACKOFF", (0.1, 0.2, 0.4))
    server.replies["esearch"] = [response(BUSY, 429), response("oops", 500, HTML)]
    progress: list[Progress] = []
    outcome(pubmed, {"query": "x"}, ctx(server), progress)
    assert [step.text.rpartition(" in ")[2] for step in progress if "busy" in step.text] == ["0.1 s", "0.2 s"]


@pytest.mark.parametrize(
    ("busy", "part", "advice", "requests"),
    [
        (response(BUSY, 429, headers=SOON), "too many requests", "later", 4),
        (response("x", 502, HTML, SOON), "not working", "later", 4),
        (response(BUSY, 429, headers={"Retry-After": "90"}), "too many requests", "90 seconds", 1),
    ],
)
def test_it_gives_up(server: Eutils, busy: Text, part: str, advice: str, requests: int) -> None:
    server.replies["esearch"] = [busy] * 9
    failure = refused(pubmed, {"query": "x"}, ctx(server))
    assert part in failure.reason
    assert advice in failure.advice
    assert len(server.requests) == requests


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (response('{"esearchresult":{"ERROR":"Empty term and query_key - nothing todo"}}'), BAD_QUERY),
        (response('{"header":{},"esearchresult":{"ERROR":"line\nend in /export/home/x.cpp"}}'), BAD_QUERY),
        (response("Bad Request", 400, HTML), BAD_QUERY),
        (response('{"error":"API key invalid","api-key":"s3cret","type":"api-key","status":"unknown"}', 400), BAD_KEY),
        (response("<p>Blocked</p>", 403, HTML), "blocks"),
        (response('{"esearchresult":{"count":"1234","idlist":["11"'), UNREADABLE),
        (response("[" * 200_000), UNREADABLE),
        (response('{"esearchresult":{"count":"many","idlist":[]}}'), UNREADABLE),
        (response('{"esearchresult":{"count":"3","idlist":"11"}}'), UNREADABLE),
        (response('{"esearchresult":[]}'), UNREADABLE),
        (response("[]"), UNREADABLE),
        (response("", type="text/plain"), UNREADABLE),
        (response(b"\xff\xfe\x00" * 99), UNREADABLE),
        (response('{"esearchresult":{"count":"3","idlist":[null,{},"../x"]}}'), UNREADABLE),
        (response(b"PK\x03\x04", type="application/zip"), UNREACHABLE),
        (response("x" * 1_100_000), UNREACHABLE),
        (response('{"esearchresult":', cut=True), UNREACHABLE),
    ],
)
def test_a_search_that_fails(server: Eutils, reply: Text, reason: str) -> None:
    server.replies["esearch"] = [reply]
    assert reason in refuse(server, api_key="s3cret")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (response(article_set(), type=XML), UNREADABLE),
        (response("<eFetchResult><ERROR>internal</ERROR></eFetchResult>", type=XML), UNREADABLE),
        (response("no XML", type="text/plain"), UNREADABLE),
        (response(f'<!DOCTYPE a [<!ENTITY b "c">]><a>{record("11", title="&b;")}</a>', type=XML), UNREADABLE),
        (response("<a>" * 3_000_000, type=XML), UNREACHABLE),
        (response(article_set(record("11")), type=XML, cut=True), UNREACHABLE),
        (response("ID list is empty!", 400, "text/plain"), "PMID"),
    ],
)
def test_articles_that_fail(server: Eutils, reply: Text, reason: str) -> None:
    server.replies["efetch"] = [reply]
    assert reason in refuse(server)


def test_a_truncated_response_is_read_as_far_as_it_goes(server: Eutils) -> None:
    whole = article_set(record("11"), record("22"))
    server.replies["efetch"] = [response(whole[: whole.index(">22<")], type=XML)]
    text = result(server, query="x").text
    assert " PMID 22\n\n[1] Metformin" in text
    assert "[2]" not in text


def test_any_response_of_a_search_is_read_or_refused() -> None:
    values = ["", "11", "x" * 300, 11, -1, 1e99, True, None, [], ["11", 22], {}, {"phrasesnotfound": ["a", 1, None]}]
    keys = ["count", "idlist", "querytranslation", "errorlist", "warninglist", "ERROR"]
    rng = random.Random(4711)
    read = 0
    for _ in range(3000):
        fields: dict[str, Any] = {"count": "2", "idlist": ["11"]}
        fields |= {rng.choice(keys): rng.choice(values) for _ in range(rng.randint(0, 3))}
        body = json.dumps({"esearchresult": fields}).encode()
        try:
            found = parse_search(Page("http://127.0.0.1/", 200, "application/json", {}, body))
        except Refused:
            continue
        read += 1
        assert found.total >= 0
        assert all(pmid.isdecimal() for pmid in found.pmids)
        assert all(len(remark) < 600 for remark in found.remarks)
    assert read > 500


# Servers that cannot be reached, limits and time


def test_servers_that_cannot_be_reached(server: Eutils) -> None:
    async def private(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    gone = PubmedSettings(base="http://127.0.0.1:9/secret/path/", requests_per_second=100)
    for ctx_ in (context(settings=gone), context(settings=PubmedSettings(), fetch=Fetch(resolve=private))):
        reason = refusal(pubmed, {"query": "x"}, ctx_)
        assert UNREACHABLE in reason
        assert "secret" not in reason
    server.released.clear()
    late = replace(ctx(server), deadline=0.0)
    assert UNREACHABLE in refusal(pubmed, {"query": "x"}, late)


def test_calls_share_the_rate_limit_and_a_cancelled_one_frees_its_slot(server: Eutils) -> None:
    """The server allows one request at a time: the second waits, a late one is refused, the last gets the slot."""

    async def main() -> None:
        here = ctx(server, requests_per_second=1)
        server.released.clear()
        first = asyncio.create_task(steps(here, pmid=11))
        assert await asyncio.to_thread(server.arrived.wait, 60)
        second = pubmed(pmid=22, context=here, settings=here.settings)
        assert await anext(second) == Progress("waiting for PubMed's rate limit")
        await second.aclose()  # type: ignore[attr-defined]
        with pytest.raises(Refused, match="rate limit"):
            await steps(replace(here, deadline=0.0), pmid=11)
        first.cancel()
        await asyncio.wait([first])
        server.released.set()
        assert isinstance((await steps(here, pmid=11))[-1], Result)

    asyncio.run(main())


# The specialist itself


def test_health(server: Eutils) -> None:
    def checked(ctx: Context) -> str | None:
        return asyncio.run(health(context=ctx, settings=ctx.settings))

    assert checked(ctx(server)) is None
    own = {"db": "pubmed", "retmode": "json", "tool": "brain-sse", "email": "brain-sse@example.org"}
    assert server.last("einfo") == own
    server.replies["einfo"] = [response("{}"), response('{"error":"API key invalid"}', 400)]
    assert UNREADABLE in (checked(ctx(server)) or "")
    assert BAD_KEY in (checked(ctx(server)) or "")
    gone = context(settings=PubmedSettings(base="http://127.0.0.1:9/", requests_per_second=100))
    assert "127.0.0.1" in (checked(gone) or "")
