"""Metrics: the counts of a turn, what a scraper reads, and several processes that share metrics."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from brain_servers import Process, brain_served, post, script, streaming
from ended_turns import a_call, a_pass, an_exchange
from limits import WAIT_SECONDS
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as plain_families
from turn_helpers import Player, echo

from brain import Registry
from brain.telemetry.metrics import Metrics

ROOT = Path(__file__).parent.parent.parent
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS_ACCEPTS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def metrics_of(*reports: Any) -> Metrics:
    metrics = Metrics({"weather", "ocr"})
    for report in reports:
        metrics.count_start()
        metrics.record(report)
    return metrics


def samples(metrics: Metrics) -> Mapping[str, float]:
    """All samples but the buckets and those of the process, as they are written."""
    return read(metrics.expose("")[0].decode())


def read(text: str) -> Mapping[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if line and line[0] != "#"]
    return {name: float(value) for name, _, value in lines if "_bucket{" not in name and not name.startswith("proc")}


def test_the_counts_of_a_turn() -> None:
    calls = [
        a_call("weather", ms=40),
        a_call("weather", ms=1, cached=True),
        a_call("ocr", "timeout", ms=5000),
        a_call("ocr", "invalid_params", ms=0),
        a_call("nothing", "unknown", ms=0),
        a_call("?", "malformed", ms=0),
        a_call("weather", "forged", ms=0),
        a_call("tool", "ok", by="client"),
    ]
    assert samples(metrics_of(an_exchange([a_pass(), a_pass(2, reused_tokens=90)], calls))) == {
        'brain_turns_total{outcome="complete",wire="native"}': 1,
        "brain_turns_running": 0,
        "brain_streams_open": 0,
        "brain_connections_open": 0,
        "brain_loop_lag_seconds": 0,
        "brain_store_bytes_total": 0,
        'brain_refused_total{reason="address"}': 0,
        'brain_refused_total{reason="connections"}': 0,
        'brain_refused_total{reason="overload"}': 0,
        'brain_passes_total{model="ollama:llama3"}': 2,
        'brain_calls_total{outcome="ok",specialist="weather"}': 2,
        'brain_calls_total{outcome="timeout",specialist="ocr"}': 1,
        'brain_calls_total{outcome="invalid_params",specialist="ocr"}': 1,
        'brain_calls_total{outcome="unknown",specialist="?"}': 1,
        'brain_calls_total{outcome="malformed",specialist="?"}': 1,
        'brain_calls_total{outcome="forged",specialist="weather"}': 1,
        'brain_call_seconds_count{specialist="weather"}': 1,
        'brain_call_seconds_sum{specialist="weather"}': 0.04,
        'brain_call_seconds_count{specialist="ocr"}': 1,
        'brain_call_seconds_sum{specialist="ocr"}': 5,
        'brain_tokens_total{kind="prompt",model="ollama:llama3"}': 200,
        'brain_tokens_total{kind="completion",model="ollama:llama3"}': 40,
        'brain_tokens_total{kind="reused",model="ollama:llama3"}': 90,
        "brain_first_token_seconds_count": 1,
        "brain_first_token_seconds_sum": 0.12,
        "brain_turn_seconds_count": 1,
        "brain_turn_seconds_sum": 1,
    }


def test_the_counts_of_tasks() -> None:
    metrics = Metrics(())
    for profile, outcome, seconds in (("standard", "succeeded", 2), ("standard", "failed", 3), ("expert", "failed", 4)):
        metrics.record_task(profile, outcome, seconds)
    metrics.set_task_states({"waiting": 3, "unreadable": 1})
    assert {name: value for name, value in samples(metrics).items() if "brain_task" in name} == {
        'brain_tasks_total{outcome="succeeded",profile="standard"}': 1,
        'brain_tasks_total{outcome="failed",profile="standard"}': 1,
        'brain_tasks_total{outcome="failed",profile="expert"}': 1,
        'brain_task_seconds_count{profile="standard"}': 2,
        'brain_task_seconds_sum{profile="standard"}': 5,
        'brain_task_seconds_count{profile="expert"}': 1,
        'brain_task_seconds_sum{profile="expert"}': 4,
        'brain_tasks{state="pending"}': 0,
        'brain_tasks{state="running"}': 0,
        'brain_tasks{state="waiting"}': 3,
        'brain_tasks{state="succeeded"}': 0,
        'brain_tasks{state="failed"}': 0,
        'brain_tasks{state="canceled"}': 0,
        'brain_tasks{state="unreadable"}': 1,
    }
    families = {family.name: family.type for family in open_families(metrics.expose(OPEN)[0].decode())}
    assert (families["brain_tasks"], families["brain_tasks_total"]) == ("gauge", "unknown")


def test_the_counts_of_turns_that_failed() -> None:
    found = samples(
        metrics_of(
            an_exchange([a_pass(), a_pass(2, error="model_failed")], outcome="model_failed", first_token_ms=None),
            an_exchange([a_pass(error="internal")], outcome="internal", first_token_ms=None),
        )
    )
    assert found['brain_turns_total{outcome="model_failed",wire="native"}'] == 1
    assert found['brain_turns_total{outcome="internal",wire="native"}'] == 1
    assert {name: value for name, value in found.items() if "upstream" in name} == {
        'brain_upstream_errors_total{code="model_failed",model="ollama:llama3"}': 1
    }
    assert found["brain_first_token_seconds_count"] == 0


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", PLAIN),
        ("text/plain; version=0.0.4", PLAIN),
        (PROMETHEUS_ACCEPTS, OPEN),
        ("application/openmetrics-text; version=<x>; escaping=\xff", OPEN),
    ],
)
def test_the_format_is_negotiated(accept: str, content_type: str) -> None:
    text, found = metrics_of(an_exchange(calls=[a_call()])).expose(accept)
    assert found == content_type
    parse = open_families if content_type == OPEN else plain_families
    assert {"brain_turns", "brain_calls", "brain_call_seconds"} <= {family.name for family in parse(text.decode())}
    assert text.endswith(b"# EOF\n") == (content_type == OPEN)


def test_the_documentation_has_every_metric() -> None:
    exchange = an_exchange([a_pass(error="model_failed")], [a_call()])
    rows = []
    metrics = metrics_of(exchange)
    metrics.count_block("weather")
    metrics.set_model_states({"ollama:llama3": "closed"})
    metrics.record_task("standard", "succeeded", 2)
    metrics.set_task_states({})
    for family in plain_families(metrics.expose("")[0].decode()):
        if family.name.startswith("brain_"):
            labels = [label for label in family.samples[0].labels if label != "le"]
            name = f"{family.name}_total" if family.type == "counter" else family.name
            shown = f"{name}{{{','.join(labels)}}}" if labels else name
            rows.append(f"| `{shown}` | {family.type} | {family.documentation} |")
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    table = page.partition("<!-- metrics -->\n")[2].partition("\n<!-- /metrics -->")[0]
    assert table == "\n".join(["| metric | kind | what |", "|---|---|---|", *rows])


# A server


def scrape(url: str, **headers: str) -> Mapping[str, float]:
    answer = httpx.get(f"{url}/metrics", headers=headers, trust_env=False, timeout=WAIT_SECONDS)
    assert (answer.status_code, answer.headers["content-type"]) == (200, PLAIN)
    return read(answer.text)


def test_a_server_counts_turns_and_streams() -> None:
    registry = Registry()
    registry.add(echo)
    with brain_served(registry, KEYS="a-key-of-some-length:ann") as server:
        key = {"authorization": "Bearer a-key-of-some-length"}
        server.play(Player(["SPECIALIST_REQUEST[echo]"], ["Fine."], name="builtin"))
        post(server.url, json={"message": "hi"}, headers=key)
        server.play(Player(["a", asyncio.Event()], name="builtin"))
        with streaming(server.url, until="token", json={"message": "hi"}, headers=key):
            found = scrape(server.url, **key)
            assert (found["brain_turns_running"], found["brain_streams_open"]) == (1, 1)
        assert server.left() == []
        found = scrape(server.url, **key)
        assert httpx.get(f"{server.url}/metrics", trust_env=False, timeout=WAIT_SECONDS).status_code == 401
    assert (found["brain_turns_running"], found["brain_streams_open"]) == (0, 0)
    assert found['brain_turns_total{outcome="complete",wire="native"}'] == 1
    assert found['brain_turns_total{outcome="cancelled",wire="native"}'] == 1
    assert found['brain_calls_total{outcome="ok",specialist="echo"}'] == 1
    assert found['brain_passes_total{model="builtin"}'] == 3


# Several processes

COUNT = """
import os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from brain.telemetry.metrics import Metrics, share
share(Path({folder!r}))
metrics = Metrics(())
from turn_helpers import echo
from ended_turns import an_exchange
for command in sys.stdin:
    if command == "turn\\n":
        metrics.count_start()
        metrics.record(an_exchange())
    elif command == "begin\\n":
        metrics.count_start()
        metrics.count_streams(3)
    print(metrics.expose("")[0].decode().replace("\\n", "|"), flush=True)
"""


class Counter:
    """A process that counts together with others."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", COUNT.format(tests=str(ROOT / "tests"), folder=str(folder))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def run(self, command: str) -> str:
        """Run a command; return its metrics."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().replace("|", "\n")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def counters(tmp_path: Path) -> Iterator[list[Counter]]:
    made = [Counter(tmp_path), Counter(tmp_path)]
    yield made
    for one in made:
        one.kill()


def test_processes_of_a_folder_count_together(counters: list[Counter], tmp_path: Path) -> None:
    one, other = counters
    one.run("turn")
    one.run("begin")
    found = read(other.run("turn"))
    assert found['brain_turns_total{outcome="complete",wire="native"}'] == 2
    assert (found["brain_turns_running"], found["brain_streams_open"]) == (1, 3)
    assert read(one.run("")) == found
    pids = re.findall(r'^process_resident_memory_bytes{pid="([0-9]+)"} ', one.run(""), re.MULTILINE)
    assert set(pids) == {str(one.pid), str(other.pid)}
    (tmp_path / "counter_7.db").touch()  # a process that has just started
    (tmp_path / "7.lock").touch()
    files = {path.name for path in tmp_path.iterdir()}
    one.kill()
    found = read(other.run(""))
    assert found['brain_turns_total{outcome="complete",wire="native"}'] == 2
    assert (found["brain_turns_running"], found["brain_streams_open"]) == (0, 0)
    successor = Counter(tmp_path)
    counters.append(successor)
    found = read(successor.run("turn"))
    assert found['brain_turns_total{outcome="complete",wire="native"}'] == 3
    assert found["brain_turns_running"] == 0
    assert {path.name for path in tmp_path.iterdir()} == files


def test_no_count_falls_when_a_worker_is_killed(short_path: Path) -> None:
    arguments = ["serve", "--workers", "2", "--port", "0", "--model", script(short_path, ["Hello."])]
    with Process(*arguments, env={"TMPDIR": str(short_path)}) as brain:
        url = brain.url()
        for _ in range(10):
            post(url, json={"message": "hi"})
        total = 'brain_turns_total{outcome="complete",wire="native"}'
        assert {scrape(url)[total] for _ in range(10)} == {10}
        pids = re.findall(r'^process_start_time_seconds{pid="([0-9]+)"}', text_of(url), re.MULTILINE)
        assert len(pids) == 2
        assert str(brain.process.pid) not in pids
        os.kill(int(pids[0]), signal.SIGKILL)
        brain.said("replaces it")
        post(url, json={"message": "hi"})
        while len(set(re.findall(r'time_seconds{pid="([0-9]+)"}', text_of(url))) - {pids[0]}) < 2:
            assert brain.process.poll() is None
        assert {scrape(url)[total] for _ in range(10)} == {11}
        brain.process.terminate()
        code, _, _ = brain.end()
    assert code == 0
    assert list(short_path.glob("brain-*")) == []


def test_no_folder_is_left_when_the_first_process_is_killed(short_path: Path) -> None:
    arguments = ["serve", "--workers", "2", "--port", "0", "--model", "builtin"]
    with Process(*arguments, env={"TMPDIR": str(short_path)}) as brain:
        post(brain.url(), json={"message": "hi"})
        (folder,) = short_path.glob("brain-*")
        brain.process.kill()
        while folder.exists():
            pass


def text_of(url: str) -> str:
    return httpx.get(f"{url}/metrics", trust_env=False, timeout=WAIT_SECONDS).text
