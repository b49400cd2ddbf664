"""Built in: asks ddgs in a process of its own, since it blocks, scrapes, and takes proxies from the environment.

A program that imports nothing of Brain. JSON comes in on stdin: query, most, since (d, w, m, y or null), seconds.
Out goes JSON: `hits`, each with title, url and snippet; or `trouble`, one of missing, late, empty, unreachable.
"""

import json
import sys
from typing import Any

from specialists._bounds import bounded


def answer(query: str, most: int, since: str | None, seconds: int) -> dict[str, Any]:
    """What ddgs found. Hosts are those of its search engines: the region, which is part of one, is fixed."""
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


if __name__ == "__main__":
    bounded(memory=4 << 30)  # its threads reserve much and use little
    json.dump(answer(**json.load(sys.stdin)), sys.stdout)
