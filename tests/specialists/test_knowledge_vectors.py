"""`knowledge` with a server of embeddings: vectors go before words, are made once, and nothing waits for them."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from embedding_server import Embedding, embedding
from handbook_questions import PARAGRAPHS, QUESTIONS
from specialist_calls import context

from brain import Context, Refused
from brain.messages import EmbeddingCheck
from brain.models.openai import OpenAI
from brain.plugins.executor import Answer, execute, prepare
from brain.settings import ModelRow
from specialists._knowledge import uploads, vectors
from specialists._knowledge.index import Chunk, Index, Root, path_for
from specialists._knowledge.search import Scope, fetch, rank
from specialists.knowledge import KnowledgeSettings, knowledge


@pytest.fixture
def server() -> Iterator[Embedding]:
    with embedding() as state:
        yield state


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with closing(Index(tmp_path / "a.db")) as open_database:
        root = open_database.add_root("folder", "x")
        for name, text in PARAGRAPHS.items():
            open_database.write(root, f"{name}.md", (1, 1, b""), [Chunk((), "", text)])
        open_database.count_common_words()
        yield open_database


def root(index: Index) -> Root:
    return index.roots()[0]


def with_model(server: Embedding, work: Any) -> Any:
    """What comes of work with a model of this server."""

    async def done() -> Any:
        model = OpenAI(ModelRow(name="openai:toy", kind="openai", model="toy", url=server.url))
        try:
            return await work(model)
        finally:
            await model.aclose()

    return asyncio.run(done())


def complete(index: Index, server: Embedding) -> list[tuple[int, int]]:
    async def work(model: OpenAI) -> list[tuple[int, int]]:
        return [step async for step in vectors.complete_vectors(index.path, model)]

    found: list[tuple[int, int]] = with_model(server, work)
    return found


def first(index: Index, server: Embedding, *questions: str, most: int = 1) -> list[list[str]]:
    """For each question, the files of the first passages."""

    async def work(model: OpenAI) -> list[vectors.QueryVector | None]:
        return [await vectors.embed_query(index.path, model, question) for question in questions]

    scope = Scope([root(index).id])
    found = []
    for question, asked in zip(questions, with_model(server, work), strict=True):
        chunks = rank(index, question, scope, vectors.matrix(index), asked)
        found.append([one.file.removesuffix(".md") for one in fetch(index, chunks[:most])])
    return found


def hits(index: Index, server: Embedding, most: int) -> int:
    found = first(index, server, *QUESTIONS, most=most)
    return sum(place in files for place, files in zip(QUESTIONS.values(), found, strict=True))


def test_vectors_find_what_is_said_in_other_words(index: Index, server: Embedding) -> None:
    assert complete(index, server) == [(20, 20)]
    assert index.get_note("trusted") == 1
    assert hits(index, server, 1) >= 26
    assert hits(index, server, 3) >= 28


def test_codes_are_found_whatever_the_vectors_say(index: Index, server: Embedding) -> None:
    index.write(root(index), "disk.md", (1, 1, b""), [Chunk((), "", "A disk of a laptop or computer has memory.")])
    complete(index, server)
    assert first(index, server, "computer disk memory", "computer disk memory E-417") == [["disk"], ["laptop"]]
    assert first(index, server, 'computer disk memory "replaced after four years"') == [["laptop"]]


def test_vectors_without_meaning_do_less_harm_than_words_do_good(index: Index, server: Embedding) -> None:
    server.random = True
    complete(index, server)
    assert index.get_note("trusted") == 0
    assert hits(index, server, 1) >= 17


def test_passages_without_a_vector_yet_are_found_by_their_words(index: Index, server: Embedding) -> None:
    complete(index, server)
    index.write(root(index), "new.md", (1, 1, b""), [Chunk((), "", "The zebra crossing is closed.")])
    assert first(index, server, "zebra crossing") == [["new"]]


def test_a_source_limits_vectors_too(index: Index, server: Embedding) -> None:
    complete(index, server)
    only = [number for number, _, name in index.names([root(index)]) if name == "leave.md"]
    asked = vectors.QueryVector(server.vector("lunch in the canteen"), trusted=True)
    for scope in (Scope([root(index).id], only), Scope([root(index).id], [])):
        found = fetch(index, rank(index, "lunch", scope, vectors.matrix(index), asked))
        assert {one.file for one in found} <= {"leave.md"}
    assert rank(index, "lunch", Scope([root(index).id + 1]), vectors.matrix(index), asked) == []


# making them


def test_only_what_is_new_gets_a_vector(index: Index, server: Embedding) -> None:
    complete(index, server)
    server.asked.clear()
    assert complete(index, server) == []
    index.write(root(index), "two.md", (1, 1, b""), [Chunk((), "", "one"), Chunk((), "", "two")])
    complete(index, server)
    index.write(root(index), "two.md", (2, 2, b""), [Chunk((), "", "zero"), Chunk((), "", "two")])
    complete(index, server)
    made = [text for texts in server.asked for text in texts if text.startswith("two.md")]
    assert made == ["two.md\none", "two.md\ntwo", "two.md\nzero"]


def test_an_interruption_loses_nothing(index: Index, server: Embedding) -> None:
    chunks = [Chunk((), "", f"passage number {n}") for n in range(80)]
    index.write(root(index), "many.md", (1, 1, b""), chunks)

    async def begin(model: OpenAI) -> None:
        async for _ in vectors.complete_vectors(index.path, model):
            return

    with_model(server, begin)
    assert vectors.count_missing(index) == 100 - vectors.BATCH
    assert complete(index, server) == [(32, 68), (64, 68), (68, 68)]


def test_another_model_makes_all_of_them_again(index: Index, server: Embedding) -> None:
    complete(index, server)
    before = vectors.matrix(index)
    server.model = "other"
    assert first(index, server, "how much time off do I have") == [[]], "vectors of two models are not compared"
    assert complete(index, server) == [(20, 20)]
    after = vectors.matrix(index)
    assert before is not None
    assert after is not None
    assert len(after.chunks) == 20
    assert (after.rows != before.rows).any()
    assert first(index, server, "how much time off do I have") == [["leave"]]


def test_a_text_that_is_too_long_for_the_model_is_cut(index: Index, server: Embedding) -> None:
    long = Chunk((), "", "vacation " + "word " * 220)
    index.write(root(index), "long.md", (1, 1, b""), [long, Chunk((), "", "short")])
    server.longest = 450
    complete(index, server)
    assert vectors.count_missing(index) == 0
    assert index.count(root(index)).vectors == 22


def test_a_text_that_the_server_never_takes_is_left_without(index: Index, server: Embedding) -> None:
    index.write(root(index), "long.md", (1, 1, b""), [Chunk((), "", "word " * 220)])
    server.longest = 150
    complete(index, server)
    assert vectors.count_missing(index) == 0
    assert index.count(root(index)).vectors == 20


def test_a_server_without_embeddings_is_said_to_have_none(index: Index, server: Embedding) -> None:
    server.broken = True
    with pytest.raises(Refused, match="the model server has no embeddings"):
        complete(index, server)
    assert index.get_note("probe") is None


def test_a_server_that_stops_ends_the_work(index: Index, server: Embedding) -> None:
    index.write(root(index), "many.md", (1, 1, b""), [Chunk((), "", f"passage number {n}") for n in range(200)])

    async def work(model: OpenAI) -> None:
        async for _ in vectors.complete_vectors(index.path, model):
            server.broken = True

    with pytest.raises(Refused, match="the model server stopped making vectors"):
        with_model(server, work)
    assert index.count(root(index)).vectors == vectors.BATCH
    server.broken = False
    complete(index, server)
    assert index.count(root(index)).vectors == 220


@pytest.mark.parametrize("answer", [[[1.0], [1.0, 2.0]], [[float("nan")]] * 2, [], [[1.0]], [[], []]])
def test_nonsense_from_a_server_is_no_vector(index: Index, answer: list[list[float]]) -> None:
    class Nonsense:
        async def embed(self, texts: Any) -> list[list[float]]:
            return answer

        async def check_embeddings(self) -> EmbeddingCheck:
            raise Refused("no embeddings")

    async def work() -> None:
        async for _ in vectors.complete_vectors(index.path, Nonsense()):
            pass

    with pytest.raises(Refused):
        asyncio.run(work())


# the matrix


def test_removed_passages_do_not_come_back(index: Index, server: Embedding) -> None:
    complete(index, server)
    assert first(index, server, "how much time off do I have") == [["leave"]]
    index.remove(index.files(root(index))["leave.md"])
    assert first(index, server, "how much time off do I have", most=3)[0].count("leave") == 0
    matrix = vectors.matrix(index)
    assert matrix is not None
    assert len(matrix.chunks) == 20, "it is read again only when half of it is of no use"


def test_the_matrix_is_kept_and_grows(index: Index, server: Embedding) -> None:
    complete(index, server)
    before = vectors.matrix(index)
    assert vectors.matrix(index) is before
    index.write(root(index), "new.md", (1, 1, b""), [Chunk((), "", "new")])
    complete(index, server)
    after = vectors.matrix(index)
    assert before is not None
    assert after is not None
    assert len(after.chunks) == len(before.chunks) + 1


# a whole call


def test_a_call_starts_the_vectors_and_a_later_one_uses_them(tmp_path: Path, server: Embedding) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, text in PARAGRAPHS.items():
        (docs / f"{name}.md").write_text(text)
    settings = KnowledgeSettings(folders=(str(docs),), database=str(tmp_path / "db"))

    async def work(model: OpenAI) -> tuple[str, str]:
        provided = {
            KnowledgeSettings: settings,
            Context: replace(context(settings=settings, user="local"), model=model),
        }

        async def ask() -> str:
            arguments = prepare(knowledge, {"query": "how much time off do I have"})
            outcome = await execute(knowledge, arguments, provided, lambda progress: None, timeout=20)  # type: ignore[arg-type]
            assert isinstance(outcome, Answer)
            return outcome.text

        words = await ask()
        making = uploads.background_tasks().works.get((path_for(settings.home, "local"), uploads.VECTORS))
        if making is not None:
            await making.task
        both = await ask()
        server.broken = True
        assert (await ask()).startswith("Nothing")
        return words, both

    words, both = with_model(server, work)
    assert words.startswith("Nothing in the user's documents matches")
    assert "[1] leave.md" in both


def test_models_on_offer_do_not_take_turns_at_the_vectors(index: Index, server: Embedding) -> None:
    async def made(model: OpenAI, *, matched: bool) -> bool:
        uploads.background_tasks().vectors_from.clear()
        uploads.start_vectors(index.path, model, matched=matched)
        work = uploads.background_tasks().works.get((index.path, uploads.VECTORS))
        if work is not None:
            await work.task
        return work is not None

    async def work(model: OpenAI) -> list[tuple[bool, bool]]:
        found = []
        for name, matched in (("toy", False), ("other", False), ("other", True), ("toy", False)):
            server.model = name
            begun = await made(model, matched=matched)
            found.append((begun, await vectors.embed_query(index.path, model, "x") is not None))
        return found

    assert with_model(server, work) == [(True, True), (True, True), (True, True), (False, False)]


def test_a_model_that_never_makes_a_vector_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The canteen is closed.")
    settings = KnowledgeSettings(folders=(str(tmp_path / "docs"),), database=str(tmp_path / "db"))

    class Stuck:
        sees_images = False

        async def describe(self, image: bytes, question: str) -> str:
            return ""

        async def embed(self, texts: Any) -> list[list[float]]:
            if not is_stuck:
                return [[1.0, 2.0] for _ in texts]
            await asyncio.Event().wait()
            raise AssertionError

        async def check_embeddings(self) -> EmbeddingCheck:
            return EmbeddingCheck("stuck", 2, 0, 1.0, 1.0)

    async def ask() -> str:
        provided = {
            KnowledgeSettings: settings,
            Context: replace(context(settings=settings, user="local"), model=Stuck()),
        }
        arguments = prepare(knowledge, {"query": "canteen"})
        outcome = await execute(knowledge, arguments, provided, lambda progress: None, timeout=20)  # type: ignore[arg-type]
        making = uploads.background_tasks().works.get((path_for(settings.home, "local"), uploads.VECTORS))
        if making is not None and not is_stuck:
            await making.task
        assert isinstance(outcome, Answer)
        return outcome.text

    is_stuck = False
    assert "[1] a.md" in asyncio.run(ask())
    is_stuck = True
    assert "[1] a.md" in asyncio.run(ask())
