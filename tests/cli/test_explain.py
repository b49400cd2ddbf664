"""`brain explain`: the requests, calls and decisions of a stored answer."""

import json

import pytest
from store_helpers import NOON

from brain.events import Usage
from brain.messages import Annotation, Call, Exchange, PassRecord, RoundRecord, Steer, Text, to_answer_id
from brain.prompts.blocks import error_block, result_block
from brain.store.store import Store
from cli.command import Brain

TURN = "t0123456789abcdef"
PASSES = (
    PassRecord(
        1, 2, None, 700, 1000, 20, 800, False, "complete", "model_unreachable", "small", is_prefill_refused=True
    ),
    PassRecord(2, 700, 900, 1900, 1200, 50, None, False, "complete", model="big"),
)
FOUND = Call("wiki", params={"q": "tea"}, id="c1", turn_pass=1, block=result_block("wiki", "Tea."), began_ms=5, ms=40)
LOST = Call("web", id="c2", turn_pass=2, code="declined", block=error_block("web", "no"), began_ms=950, ms=1)
ANSWER = Exchange(
    "Hi",
    [FOUND, Steer("In short", 1), LOST, Text("Tea.", 2)],
    message="Hi",
    answer_id=to_answer_id(TURN),
    outcome="call_limit",
    model="big",
    annotations=(Annotation("big continues.", 1, 0, "fallback", turn_pass=1),),
    passes=PASSES,
    usage=Usage(2200, 70, 800, False),
    total_ms=1900,
)


FAILED = Exchange(
    "Hi",
    [Steer("In\nshort", 1)],
    answer_id="mfailed",
    outcome="model_failed",
    passes=tuple(
        PassRecord(n, n, None, n + 1, 9, 0, None, False, None, "model_failed", f"model{n}", round=1, status=500 + n)
        for n in (1, 2, 3)
    ),
    rounds=(RoundRecord(1, 2, "actor", "model1", "Ask\nagain"),),
)


async def fill(store: Store) -> None:
    """Answers of Ada."""
    for one in (ANSWER, FAILED, Exchange("Old", [Text("Old.", 1)], answer_id="mold", outcome="complete")):
        history = await store.write_question("ada", one.answer_id, Exchange("Hi", question_id="q", started=NOON), ())
        one.question_id, one.started, one.ended = "q", NOON, NOON
        await store.end(history, one)


def test_a_stored_answer_is_a_timeline_with_costs(brain: Brain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIN_MODEL", "small")
    prices = {"small": {"input": 10, "output": 100, "reused": 1}, "big": {"input": 20, "output": 0}}
    monkeypatch.setenv("BRAIN_MODELS", json.dumps({n: {"is": "builtin", "price": p} for n, p in prices.items()}))
    brain.use(fill)
    code, out, _ = brain("explain", TURN, "--user", "ada")
    assert code == 0
    starts = ["Request 1 to small", "wiki {", "  Tea.\n", "big continues.", "In short", "Request 2 to big", "web"]
    starts += ["(call_limit)", "In total", "wiki × 1, web × 1\n"]
    places = [out.index(start) for start in starts]
    assert places == sorted(places)
    assert ["0.0048" in line for line in out.splitlines() if "Request" in line] == [True, False]
    report = json.loads(brain("explain", to_answer_id(TURN), "--user", "ada", "--json")[1])
    assert (report["turn_id"], report["stop_reason"], report["cost"]) == (TURN, "call_limit", 0.0288)
    assert [one["cost"] for one in report["passes"]] == [0.0048, 0.024]
    assert [one["is_prefill_refused"] for one in report["passes"]] == [True, False]
    assert [(one["code"], one["turn_pass"]) for one in report["notices"]] == [("fallback", 1), ("steered", 1)]
    calls = [(one["name"], one["outcome"], one.get("result"), one["began_ms"], one["ms"]) for one in report["calls"]]
    assert calls == [("wiki", "ok", "Tea.", 5, 40), ("web", "declined", None, 950, 1)]
    assert report["calls_by_name"] == {"wiki": 1, "web": 1}


def test_each_failure_has_one_line_and_its_status(brain: Brain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIN_MODEL", "model1")
    monkeypatch.setenv("BRAIN_MODELS", '{"model1": {"is": "builtin", "price": {"input": 10, "output": 10}}}')
    brain.use(fill)
    lines = brain("explain", "tfailed", "--user", "ada")[1].splitlines()
    assert [n for n, line in enumerate(lines) if "HTTP status" in line] == [4, 7, 9]
    assert [line.strip() for line in lines if "In short" in line or "Ask" in line] == [
        "Ask again",
        "You added: In short",
    ]
    assert lines[-1].endswith(", cost 0.0001, no price for model2, model3")


def test_the_newest_answer_and_those_of_older_versions(brain: Brain) -> None:
    brain.use(fill)
    assert "mold" in brain("explain", "last", "--user", "ada")[1]
    assert json.loads(brain("explain", "told", "--user", "ada", "--json")[1])["passes"] == []
    assert [brain("explain", *words)[0] for words in (("last",), ("tnone", "--user", "ada"))] == [1, 1]
