"""Measure what Brain costs, next to other servers, in one run. Needs Linux and two cores.

The model server and the client share the first core. The measured server has the second core alone. Its cost is its
process CPU time, so other load on the machine has little effect.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import compare
import growth
import pieces
import where
import whole
from chart import draw
from load import Failed
from results import summarize
from tables import Table
from targets import HERE, KINDS, NGINX, Bench
from whole import Run, say

MEASURES: Mapping[str, Callable[[Run], Table | None]] = {
    "scanner": pieces.scanner,
    "decode": pieces.decode,
    "encode": pieces.encode,
    "turn": pieces.turn,
    "cpu": whole.cpu,
    "latency": whole.latency,
    "capacity": whole.capacity,
    "memory": whole.memory,
    "leaving": whole.leaving,
    "marker": whole.marker,
    "length": growth.length,
    "streams": growth.streams,
    "specialists": growth.specialists,
    "history": growth.history,
    "where": where.where,
}
PACKAGES = ["uvloop", "httptools", "msgspec", "starlette", "sse-starlette", "uvicorn", "httpx", "ollama", "openai"]

out = sys.stdout.write


def main() -> int:
    given = _parser().parse_args()
    if given.compare or given.record:
        return _compare(given)
    names = [name for name in KINDS if name in given.targets]
    skipped = {name: why for name in names if (why := KINDS[name].missing)}
    names = [name for name in names if name not in skipped]
    kept = json.loads(given.json.read_text("utf-8")) if given.json and given.json.exists() else {}
    tables = {name: Table(**table) for name, table in kept.items()}
    about = _about(names, skipped)
    out(f"    python tests/bench {' '.join(sys.argv[1:])}\n\n{about}\n\n")
    code = 0
    with Bench() as bench:
        run = Run(bench, names, 1 if given.quick else given.rounds, given.quick)
        for name in given.only:
            began = time.monotonic()
            try:
                table = MEASURES[name](run)
            except Failed as error:
                say(f"{name} failed: {error}")
                code = 1
                continue
            say(f"{name}: {time.monotonic() - began:.0f} s")
            if table is not None:
                out(f"{table}\n")
                kept_rows = tables[name].rows if name in tables else {}
                tables[name] = replace(table, rows=kept_rows | table.rows)
                sys.stdout.flush()
    if given.json:
        given.json.write_text(json.dumps({name: asdict(table) for name, table in tables.items()}, indent=1), "utf-8")
    if given.chart:
        draw(tables, given.chart)
    if given.page:
        results = summarize(tables)
        _write(given.page, {"about": about, **tables, **({} if results is None else {"results": results})})
    return code


def _compare(given: argparse.Namespace) -> int:
    """Compare ratios or record them. A machine that cannot measure them fails nothing."""
    if obstacle := compare.find_obstacle():
        out(f"The comparison with recorded ratios is skipped: {obstacle}.\n")
        return 0
    try:
        ratios = compare.measure(compare.QUICK_ROUNDS if given.quick else compare.ROUNDS)
    except Failed as error:
        out(f"The comparison with recorded ratios failed: {error}.\n")
        return 1
    out(f"{compare.report(ratios)}")
    if given.record:
        compare.record(ratios)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python tests/bench", description=__doc__.partition("\n\n")[0])

    def names(option: str, known: Sequence[str], what: str) -> None:
        helped = f"{what}: {', '.join(known)}"
        parser.add_argument(option, nargs="+", choices=known, default=list(known), metavar="NAME", help=helped)

    names("--only", list(MEASURES), "tables to measure")
    names("--targets", list(KINDS), "servers to measure")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds per table (default: 3)")
    parser.add_argument("--quick", action="store_true", help="one short round as a smoke test")
    text = "instead, compare the CPU time of turns and commands with that of other programs and with recorded ratios"
    parser.add_argument("--compare", action="store_true", help=text)
    parser.add_argument("--record", action="store_true", help="with --compare: add them to the recorded ones")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the figures to this file")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw CPU time and capacity (SVG, PNG)")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write the tables into this page, between their marks"
    )
    return parser


def _write(page: Path, parts: Mapping[str, Table | str]) -> None:
    """Replace the text between `<!-- NAME -->` and `<!-- /NAME -->` for each part that has these marks."""
    text = page.read_text("utf-8")
    for name, part in parts.items():
        before, mark, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        if mark and end:
            text = f"{before}{mark}{str(part).rstrip()}\n{end}{after}"
    page.write_text(text, "utf-8")


def _about(names: Sequence[str], skipped: Mapping[str, str]) -> str:
    """Return date, machine, versions, and the meaning of the names."""
    versions = {"Brain": f"{importlib.metadata.version('brain-sse')} at {_said('git', 'rev-parse', '--short', 'HEAD')}"}
    versions["Python"] = platform.python_version()
    versions |= {name: found for name in PACKAGES if (found := _version(name))}
    if NGINX:
        versions["nginx"] = _said(NGINX, "-v").rpartition("/")[2]
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {_processor()}, {os.cpu_count()} cores, Linux {platform.release()}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + ".",
        "",
        *(f"- {name}: {KINDS[name].what}" for name in names),
        *(f"- {name}: skipped, {why}" for name, why in skipped.items()),
    ]
    return "\n".join(lines)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _said(*command: str) -> str:
    try:
        run = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    except OSError:
        return "?"
    return (run.stdout + run.stderr).strip() or "?"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
