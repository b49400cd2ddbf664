"""Search with ddgs in a child process, because ddgs blocks, scrapes, and reads proxies from the environment."""

from typing import Any

from specialists._kit.child import Report


def answer(words: Any, _: bytes, __: Report) -> tuple[dict[str, Any], bytes]:
    """Return the results of one search.

    Args:
        words: `query`, `max_results`, `since` (d, w, m, y or None) and `seconds`.

    Returns:
        `hits`, each with title, url and snippet; or `problem`: missing, late, empty or unreachable.
    """
    try:
        from ddgs import DDGS
        from ddgs.exceptions import DDGSException, TimeoutException
    except ImportError:
        return {"problem": "missing"}, b""
    max_results, engines = words["max_results"], DDGS(timeout=words["seconds"])
    try:  # the region becomes part of a host name, so it is fixed
        found = engines.text(words["query"], region="us-en", timelimit=words["since"], max_results=max_results)
    except TimeoutException:
        return {"problem": "late"}, b""
    except DDGSException as error:
        return {"problem": "empty" if "No results" in str(error) else "unreachable"}, b""
    hits = [
        {"title": str(one.get("title")), "url": str(one.get("href")), "snippet": str(one.get("body"))[:2000]}
        for one in found[:max_results]
    ]
    return {"hits": hits}, b""
