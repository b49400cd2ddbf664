"""The questions of `python tests/bench/recall.py` are of the kinds that they are said to be."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

BENCH = Path(__file__).parent.parent / "bench"
SETS: dict[str, dict[str, Any]] = {
    language: json.loads((BENCH / f"recall-{language}.json").read_text("utf-8"))
    for language in ("english", "english-second", "german")
}
STEM = 5
STOP = {
    "english": "a about after again against all am an and any are as ask at be before by can could did do does done "
    "for from had has have how i if in into is it its know left like long many me much must my new not of off on "
    "one or our out over should so some something take tell than that the their them they this to up us user "
    "was we were what when where which while who why will with would you your",
    "german": "als am an auf aus bei bin das dem den der die ein eine einen für habe hat hatte ich ihm im in ist kann "
    "keine keinen mag man mein meine mich mir mit nach soll und unsere von war was wenn wer wie wir wird wurde wurden "
    "welche welchen welcher welches zu zum zur es",
}

STOP["english-second"] = STOP["english"]

languages = pytest.mark.parametrize("language", SETS)


def words(language: str, text: str) -> set[str]:
    """Content words, each as its beginning."""
    found = re.findall(r"\w+", text.casefold())
    return {word[:STEM] for word in found if len(word) > 1 and word not in STOP[language].split()}


def shared(language: str, question: dict[str, Any]) -> set[str]:
    given = SETS[language]
    texts = {item["id"]: item["text"] for item in [*given["facts"], *given["memories"]]}
    answers = " ".join(texts[answer] for answer in question["answers"])
    return words(language, question["ask"]) & words(language, answers)


def of_kind(language: str, kind: str) -> list[dict[str, Any]]:
    return [question for question in SETS[language]["questions"] if question["kind"] == kind]


@languages
def test_every_item_has_an_id_of_its_own(language: str) -> None:
    ids = [item["id"] for item in [*SETS[language]["facts"], *SETS[language]["memories"]]]
    assert len(ids) == len(set(ids))


@languages
def test_questions_by_words_share_some_with_their_answer(language: str) -> None:
    assert [question["ask"] for question in of_kind(language, "words") if not shared(language, question)] == []


@languages
def test_paraphrases_share_no_word_with_their_answer(language: str) -> None:
    found = {question["ask"]: shared(language, question) for question in of_kind(language, "paraphrase")}
    assert {ask: both for ask, both in found.items() if both} == {}


@languages
def test_questions_that_nothing_answers_name_no_answer(language: str) -> None:
    for question in SETS[language]["questions"]:
        assert bool(question["answers"]) == (question["kind"] != "nothing"), question["ask"]


def test_the_measuring_runs() -> None:
    command = [sys.executable, str(BENCH / "recall.py"), "--only", "german", "--others", "0"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    first, _, told, times = run.stdout.split("### ")[1:]
    assert re.search(r"\| German: search, words +\| 100 +\|", first)
    assert "German: 7 words, 6 paraphrase, 2 dates, 1 several, 4 nothing." in first
    assert "| nothing |" in told
    assert "| German: recall, words |" in times


def test_a_server_without_vectors_is_said_to_have_none() -> None:
    command = [
        sys.executable,
        str(BENCH / "recall.py"),
        "--model",
        "openai:none",
        "--model-url",
        "http://127.0.0.1:9/v1",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("openai:none has no vectors")


def cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@pytest.mark.wordnet
@pytest.mark.skipif(not Path("/usr/share/wordnet").is_dir(), reason="Debian's package wordnet-base is not installed")
def test_the_vectors_of_a_dictionary_are_measured() -> None:
    pytest.importorskip("numpy")
    with subprocess.Popen(
        [sys.executable, str(BENCH / "wordnet.py"), "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            texts = ["My doctor is on leave.", "The physicians are away.", "The doctrine holds.", "Bergen", "Bergen?"]
            answer = httpx.post(f"{url}/embeddings", json={"model": "wordnet", "input": texts}).json()
            doctor, physicians, doctrine, bergen, again = [one["embedding"] for one in answer["data"]]
            assert cosine(doctor, physicians) > 0.5 > 0.2 > cosine(doctor, doctrine)
            assert cosine(bergen, again) == pytest.approx(1, abs=1e-3)
            command = [sys.executable, str(BENCH / "recall.py"), "--only", "german", "--others", "0", "--unexamined"]
            command += ["--model", "openai:wordnet", "--model-url", url]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            server.kill()
    assert run.returncode == 0, run.stderr
    assert re.search(r"The memory's exam: openai:wordnet answers \d of 8 questions\.", run.stdout)
    assert re.search(r"\| German: recall, meaning and words +\| 100 +\|", run.stdout)
