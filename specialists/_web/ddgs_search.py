"""Asks ddgs in a child process, since it blocks, scrapes, and takes proxies from the environment."""

from typing import Any

from specialists._kit.child import Report


def answer(words: Any, _: bytes, __: Report) -> tuple[dict[str, Any], bytes]:
    """What ddgs found for query, most, since (d, w, m, y or None) and seconds.

    Returns:
        `hits`, each with title, url and snippet; or `trouble`, one of missing, late, empty, unreachable.
    """
    return _found(**words), b""


def _found(query: str, most: int, since: str | None, seconds: int) -> dict[str, Any]:
    """Hosts are those of its search engines: the region, which is part of one, is fixed."""
    try:
        from ddgs import DDGS
        from ddgs.exceptions import DDGSException, TimeoutException
    except ImportError:
        return {"trouble": "missing"}
    try:
        found = DDGS(timeout=seconds).text(query, region="us-en", timelimit=since, max_results=most)
    except TimeoutException:
        return {"trouble": "late"}
    except DDGSException as error:
        return {"trouble": "empty" if "No results" in str(error) else "unreachable"}
    return {
        "hits": [
            {"title": str(one.get("title")), "url": str(one.get("href")), "snippet": str(one.get("body"))[:2000]}
            for one in found[:most]
        ]
    }
