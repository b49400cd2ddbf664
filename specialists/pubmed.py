"""`pubmed` searches biomedical articles and reads their abstracts."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from msgspec import Meta

from brain import AssistContext, Citation, Context, Page, Progress, Refused, Result, specialist
from specialists._kit.examples import read_examples
from specialists._pubmed.articles import Article, read_articles
from specialists._pubmed.dates import Period, parse_period
from specialists._pubmed.eutils import BAD_KEY, NO_ARTICLE_ADVICE, Eutils, PubmedSettings, SearchResult
from specialists._pubmed.query import ASKING_WORDS, MESSAGE_LENGTH, clean_query, content_words, find_pmids, parse_pmids
from specialists._pubmed.records import unreadable
from specialists._pubmed.text import format_article, format_summary, shorten

TEXT_LENGTH = 200_000
_SHOWN_QUERY = 200
_TRANSLATION = 300
_MAX_FIRST = 9998
"""Index of the last article that PubMed returns (NCBI, E-utilities in depth: ESearch)."""

ArticleType = Literal[
    "review",
    "systematic review",
    "meta-analysis",
    "clinical trial",
    "randomized controlled trial",
    "observational study",
    "case report",
    "guideline",
]
_TYPES = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "systematic review": r"\bsystematic reviews?\b|\bsystematische übersicht|\brevues? systématiques?\b",
        "meta-analysis": r"\bmeta-?\s?anal(?:ys[ei]s|ysen?)\b|\bméta-analyses?\b|\bmeta-?análisis\b",
        "randomized controlled trial": r"\brandomi[sz]ed\b|\brcts?\b|\brandomisierte|\brandomisée?s?\b|\baleatorizad",
        "case report": r"\bcase reports?\b|\bfallberichte?\b",
        "guideline": r"\bguidelines?\b|\bleitlinien?\b",
    }.items()
}
"""Words for types that a question limits the search to."""
_YEAR = re.compile(r"\b(from|in|since|seit|ab|aus|depuis|de|desde) ([12]\d{3})\b", re.IGNORECASE)
_SINCE = ("since", "seit", "ab", "depuis", "desde")
_NEWEST = re.compile(r"\b(?:newest|latest|neueste[nr]?|derniers|dernières|más recientes)\b", re.IGNORECASE)
MAX_WORDS = 6
"""Words of an assisted search. PubMed finds only articles with all of them."""
_TAGGED = {"case report": "case reports"}
"""Publication types that PubMed names differently."""


async def health(*, context: Context, settings: PubmedSettings) -> str | None:
    """Return why PubMed cannot be used, or None."""
    try:
        async for step in Eutils(context, settings).about():
            if isinstance(step, Page) and "einforesult" not in step.text:
                return unreadable().reason
    except Refused as refusal:
        if refusal.reason == BAD_KEY:
            return f"{BAD_KEY}: check BRAIN_SPECIALIST_PUBMED_API_KEY"
        return refusal.__cause__.reason if isinstance(refusal.__cause__, Refused) else refusal.reason
    return None


def make_params(message: str, context: AssistContext) -> Mapping[str, object]:
    """Return the parameters of an assisted call: PMIDs, or words, types and dates."""
    if pmids := find_pmids(message):
        return {"pmid": pmids}
    types = [name for name, pattern in _TYPES.items() if pattern.search(message)]
    query, dates = content_words(message)
    if year := _YEAR.search(message):
        dates = dates or (f"since {year[2]}" if year[1].lower() in _SINCE else year[2])
    words = [word for word in context.find_subject(message, ASKING_WORDS) if word not in (dates or "")]
    params: dict[str, object] = {"query": " ".join(words[:MAX_WORDS]) or query or message}
    params |= {"date_range": dates} if dates else {}
    params |= {"article_types": types} if types else {}
    return params | ({"sort": "date"} if _NEWEST.search(message) else {})


@specialist(
    read_only=True,
    sends=True,
    timeout=30,
    cache_seconds=600,
    settings=PubmedSettings,
    health=health,
    assist=make_params,
    tags=("medicine", "literature", "research"),
    examples=(
        "find studies on metformin and dementia in PubMed",
        "recent clinical trials of semaglutide for heart failure",
        "what does the medical literature say about vitamin D and depression",
        "systematic reviews and meta-analyses of statins in the elderly",
        "which papers were published on long COVID since 2022",
        "randomized controlled trials of ketamine for depression from the last 5 years",
        "show me the abstract of PMID 31978945",
        "has this article been retracted",
        "peer-reviewed evidence for intermittent fasting",
        "case reports of myocarditis after vaccination",
        "journal articles by an author in The Lancet",
        "aktuelle Studien in PubMed",
        *read_examples("pubmed"),
    ),
)
async def pubmed(
    query: Annotated[
        str | None,
        Meta(description="PubMed syntax works: AND, OR, [tiab], [au]", examples=["metformin AND dementia"]),
    ] = None,
    max_results: Annotated[int, Meta(description="1-20", ge=1, le=20)] = 5,
    date_range: Annotated[str | None, Meta(description="'2024', '2019-2023', 'since 2020', 'last 6 months'")] = None,
    article_types: Annotated[list[ArticleType] | None, Meta(description="any of these")] = None,
    pmid: Annotated[int | str | None, Meta(description="instead of query: PMIDs to read whole")] = None,
    sort: Literal["relevance", "date"] = "relevance",
    offset: Annotated[int, Meta(description="number of articles to skip", ge=0)] = 0,
    *,
    context: Context,
    settings: PubmedSettings,
    today: date | None = None,
) -> AsyncIterator[Progress | Result]:
    """Searches PubMed for biomedical articles, with abstracts.

    PubMed finds only articles that contain all words of a query. So if the query is the user's whole message, only its
    content words are searched. `today` is for tests; the default is the user's day.
    """
    eutils = Eutils(context, settings)
    query, pmids = query or "", str(pmid or "").strip()
    if pmids := pmids or find_pmids(query):
        ids = parse_pmids(pmids)
        async for step in eutils.articles(ids):
            yield (step if isinstance(step, Progress) else await asyncio.to_thread(_show_articles, ids, step, offset))
        return
    if query.strip() == context.message.strip()[:MESSAGE_LENGTH].strip():
        query, date_words = content_words(query)
        date_range = date_range or date_words
    if offset > _MAX_FIRST:
        reason = f"the offset is {offset:,}, but PubMed returns only the first {_MAX_FIRST + 1:,} articles"
        raise Refused(reason, "narrow the query, date_range or article_types")
    today = today or datetime.now(ZoneInfo(context.time_zone)).date()
    when = parse_period(date_range, today) if date_range and date_range.strip() else None
    search = _Search(clean_query(query), when, tuple(dict.fromkeys(article_types or ())), offset)
    order = "pub_date" if sort == "date" else "relevance"
    found = SearchResult(0, (), "", ())
    async for result in eutils.search(search.term, when, sort=order, first=offset, most=max_results):
        if isinstance(result, Progress):
            yield result
        else:
            found = result
    shown = found.pmids[:max_results]
    if not found.total:
        yield search.empty_result(found)
    elif not shown:
        if offset < found.total:
            raise unreadable()
        raise Refused(f"the offset is {offset:,}, but there are {found.total:,} articles", "use a smaller offset")
    else:
        yield Progress(f"reading {len(shown)} of {found.total:,} articles", 0.5)
        async for step in eutils.articles(shown):
            yield (step if isinstance(step, Progress) else await asyncio.to_thread(search.result, found, shown, step))


@dataclass(frozen=True, slots=True)
class _Search:
    """A search that skips `first` articles."""

    query: str
    when: Period | None
    types: Sequence[ArticleType]
    first: int

    @property
    def term(self) -> str:
        """The query in PubMed's syntax, with the types; the model's words are unchanged."""
        tagged = " OR ".join(f'"{_TAGGED.get(kind, kind)}"[pt]' for kind in self.types)
        return f"({self.query}) AND ({tagged})" if tagged else self.query

    def __str__(self) -> str:
        limits = [str(self.when)] if self.when else []
        limits += [" or ".join(self.types)] if self.types else []
        return f"'{shorten(self.query, _SHOWN_QUERY)}'" + (f" ({'; '.join(limits)})" if limits else "")

    def notes(self, found: SearchResult) -> list[str]:
        """Return PubMed's interpretation of the query, and the terms that it ignored."""
        notes = [f"Note: {remark}" for remark in found.remarks]
        if found.translation and found.translation != self.query:
            notes.insert(0, f"PubMed searched for: {shorten(found.translation, _TRANSLATION)}")
        return notes

    def empty_result(self, found: SearchResult) -> Result:
        remedies = ["Widen or leave out date_range."] if self.when else []
        remedies += ["Leave out article_types."] if self.types else []
        remedies.append("Use fewer or broader words, join synonyms with OR, drop quotation marks and [field tags].")
        lines = [f"🔬 PUBMED: no articles for {self}", *self.notes(found), " ".join(remedies)]
        return Result("\n".join(lines), data={"total": 0, "translation": found.translation, "articles": []})

    def result(self, found: SearchResult, pmids: Sequence[str], page: Page) -> Result:
        """Build the result. Runs in a thread, because articles may have thousands of authors."""
        records, missing = _read_records(page, pmids)
        if not records:
            raise unreadable()
        places = {pmid: number for number, pmid in enumerate(pmids, self.first + 1)}
        span = f"{self.first + 1}-{self.first + len(pmids)}" if self.first else f"{len(pmids)}"
        head = [f"🔬 PUBMED: {span} of {found.total:,} articles for {self}", *self.notes(found), *missing]
        text, ends = "\n".join(head), list[int]()
        for article in records:
            text += f"\n\n{format_summary(article, places[article.pmid])}"
            ends.append(len(text))
        following = self.first + len(pmids)
        if following < min(found.total, _MAX_FIRST + 1):
            text += f"\n\nFor more articles, use offset={following}. To read one whole, use pmid={records[0].pmid}."

        def more(shown: int) -> str:
            done = sum(end <= shown for end in ends)
            if done == len(records):
                return f"call again with offset={following}"
            if not done:  # the same offset would return the same text
                others = f", or offset={self.first + 1} for the others" if self.first + 1 < found.total else ""
                return f"call with pmid={records[0].pmid} to read the first one whole{others}"
            return f"call again with offset={places[records[done].pmid] - 1}"

        data = {"total": found.total, "query": self.term, "translation": found.translation}
        data |= {"remarks": list(found.remarks), "dates": str(self.when) if self.when else None}
        data |= {"articles": [asdict(article) for article in records]}
        return Result(text, _cite(records), data, more)


def _show_articles(pmids: Sequence[str], page: Page, offset: int) -> Result:
    records, missing = _read_records(page, pmids)
    if not records:
        raise Refused(f"PubMed has no article with PMID {', '.join(pmids)}", NO_ARTICLE_ADVICE)
    head = "\n".join([f"🔬 PUBMED: {', '.join(f'PMID {article.pmid}' for article in records)}", *missing])
    body = "\n\n".join(map(format_article, records))[:TEXT_LENGTH]
    if offset >= len(body):
        raise Refused(f"the offset is {offset:,}, but the text has {len(body):,} characters", "use a smaller offset")

    def more(shown: int) -> str:
        return f"call again with pmid={','.join(pmids)} and offset={offset + max(0, shown - len(head) - 2)}"

    data = {"articles": [asdict(article) for article in records]}
    return Result(f"{head}\n\n{body[offset:]}", _cite(records), data, more)


def _read_records(page: Page, pmids: Sequence[str]) -> tuple[list[Article], list[str]]:
    """Return the articles with these PMIDs in order, and a note about those that PubMed did not return."""
    found, is_whole = read_articles(page.body)
    known = {article.pmid: article for article in found}
    if not known and not is_whole:
        raise unreadable()
    lost = [pmid for pmid in pmids if pmid not in known]
    notes = [f"Note: PubMed did not return PMID {', '.join(lost)}"] if lost else []
    return [known[pmid] for pmid in pmids if pmid in known], notes


def _cite(records: Sequence[Article]) -> list[Citation]:
    marks = {True: "RETRACTED: ", False: ""}
    return [Citation(f"PMID:{each.pmid}", marks[each.retracted] + each.plain_title, each.url) for each in records]
