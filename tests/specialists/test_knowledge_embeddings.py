"""`knowledge` with an embedding server: embeddings rank before keywords, are made once, and nothing waits for them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from embedding_server import PARAGRAPHS, QUESTIONS, Embedding, embedding
from specialist_calls import context, last

from brain import Refused
from brain.messages import EmbeddingCheck
from brain.models.openai import OpenAI
from brain.settings import ModelRow
from specialists._knowledge import background, embeddings
from specialists._knowledge.index import Chunk, Index, path_for
from specialists._knowledge.search import Scope, fetch, rank
from specialists.knowledge import KnowledgeSettings, knowledge

T = TypeVar("T")
QUESTION = "how much time off do I have"


@pytest.fixture
def server() -> Iterator[Embedding]:
    with embedding() as state:
        yield state


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with closing(Index(tmp_path / "a.db")) as index:
        index.add_root("folder", "x")
        for name, text in PARAGRAPHS.items():
            write(index, name, text)
        index.count_common_words()
        yield index


def write(index: Index, name: str, *texts: str) -> None:
    index.write(index.roots()[0], f"{name}.md", (1, 1, b""), [Chunk((), "", text) for text in texts])


def with_model(server: Embedding, work: Callable[[OpenAI], Awaitable[T]]) -> T:
    """The result of work with a model of this server."""

    async def main() -> T:
        model = OpenAI(ModelRow(name="openai:toy", kind="openai", model="toy", url=server.url))
        try:
            return await work(model)
        finally:
            await model.aclose()

    return asyncio.run(main())


def complete(index: Index, server: Embedding) -> list[tuple[int, int]]:
    async def work(model: OpenAI) -> list[tuple[int, int]]:
        return [step async for step in embeddings.embed_missing(index.path, model)]

    return with_model(server, work)


def best(index: Index, server: Embedding, *questions: str, most: int = 1) -> list[list[str]]:
    """For each question, the files of the first passages."""

    async def work(model: OpenAI) -> list[embeddings.QueryEmbedding | None]:
        return [await embeddings.embed_query(index.path, model, question) for question in questions]

    found = []
    for question, vector in zip(questions, with_model(server, work), strict=True):
        chunks = rank(index, question, Scope([index.roots()[0].id]), embeddings.load_matrix(index), vector)
        found.append([one.file.removesuffix(".md") for one in fetch(index, chunks[:most])])
    return found


def count_hits(index: Index, server: Embedding, most: int) -> int:
    found = best(index, server, *QUESTIONS, most=most)
    return sum(place in files for place, files in zip(QUESTIONS.values(), found, strict=True))


def vector_count(index: Index) -> int:
    return index.count(index.roots()[0]).embeddings


def rows(index: Index) -> int:
    matrix = embeddings.load_matrix(index)
    return 0 if matrix is None else len(matrix.chunks)


# ranking


def test_embeddings_find_paraphrases(index: Index, server: Embedding) -> None:
    write(index, "disk", "A disk of a laptop or computer has memory.")
    assert complete(index, server) == [(21, 21)]
    assert index.get_note("trusted") == 1
    assert count_hits(index, server, 1) >= 26
    assert count_hits(index, server, 3) >= 28
    questions = ("computer disk memory", "computer disk memory E-417", 'disk memory "replaced after four years"')
    assert best(index, server, *questions) == [["disk"], ["laptop"], ["laptop"]], "codes and quotes are exact"


def test_embeddings_without_meaning_do_little_harm(index: Index, server: Embedding) -> None:
    server.is_random = True
    complete(index, server)
    assert index.get_note("trusted") == 0
    assert count_hits(index, server, 1) >= 17


def test_a_source_limits_embeddings_too(index: Index, server: Embedding) -> None:
    complete(index, server)
    (root,) = index.roots()
    file = [number for number, _, name in index.names([root]) if name == "leave.md"]
    vector = embeddings.QueryEmbedding(server.vector("lunch in the canteen"), is_trusted=True)
    for scope in (Scope([root.id], file), Scope([root.id], []), Scope([root.id + 1])):
        found = fetch(index, rank(index, "lunch", scope, embeddings.load_matrix(index), vector))
        assert {one.file for one in found} <= {"leave.md"}


def test_passages_come_and_go(index: Index, server: Embedding) -> None:
    complete(index, server)
    assert best(index, server, QUESTION) == [["leave"]]
    write(index, "new", "The zebra crossing is closed.")
    assert best(index, server, "zebra crossing") == [["new"]], "by keywords, before it has an embedding"
    complete(index, server)
    assert rows(index) == 21
    index.remove(index.files(index.roots()[0])["leave.md"])
    assert "leave" not in best(index, server, QUESTION, most=3)[0]


# making embeddings


def test_only_new_passages_are_embedded(index: Index, server: Embedding) -> None:
    complete(index, server)
    server.requests.clear()
    assert complete(index, server) == []
    write(index, "two", "one", "two")
    complete(index, server)
    write(index, "two", "zero", "two")
    complete(index, server)
    embedded = [text for texts in server.requests for text in texts if text.startswith("two.md")]
    assert embedded == ["two.md\none", "two.md\ntwo", "two.md\nzero"]


def test_uploads_of_private_conversations_are_not_embedded(index: Index, server: Embedding) -> None:
    for name in ("open", "private"):
        root = index.add_root("conversation", name)
        index.write(root, f"{name}.md", (1, 1, b""), [Chunk((), "", f"The {name} budget is 7.")])
    embeddings.mark_private(index, "private")
    assert complete(index, server) == [(21, 21)]
    found = {root.place: index.count(root).embeddings for root in index.roots("conversation")}
    assert found == {"open": 1, "private": 0}


def test_an_interruption_loses_nothing(index: Index, server: Embedding) -> None:
    write(index, "many", *(f"passage number {n}" for n in range(80)))

    async def begin(model: OpenAI) -> None:
        async for _ in embeddings.embed_missing(index.path, model):
            return

    async def break_off(model: OpenAI) -> None:
        async for _ in embeddings.embed_missing(index.path, model):
            server.is_broken = True

    with_model(server, begin)
    assert vector_count(index) == embeddings.BATCH
    with pytest.raises(Refused):
        with_model(server, break_off)
    server.is_broken = False
    assert complete(index, server) == [(32, 36), (36, 36)]


def test_another_model_makes_all_of_them_again(index: Index, server: Embedding) -> None:
    complete(index, server)
    server.model = "other"
    assert best(index, server, QUESTION) == [[]], "embeddings of two models are not compared"
    assert complete(index, server) == [(20, 20)]
    assert (rows(index), best(index, server, QUESTION)) == (20, [["leave"]])


@pytest.mark.parametrize(("longest", "count"), [(450, 22), (150, 21)])
def test_a_text_that_is_too_long_for_the_model_is_cut_or_skipped(
    index: Index, server: Embedding, longest: int, count: int
) -> None:
    write(index, "long", "vacation " + "word " * 220, "short")
    server.longest = longest
    complete(index, server)
    assert embeddings.count_missing(index) == 0
    assert vector_count(index) == count


def test_a_server_without_embeddings_stores_nothing(index: Index) -> None:
    class Nonsense:
        async def embed(self, texts: Any, purpose: str | None = None) -> list[list[float]]:
            raise Refused("no embeddings")

        async def check_embeddings(self) -> embeddings.EmbeddingCheck:
            raise Refused("no embeddings")

    async def work() -> None:
        async for _ in embeddings.embed_missing(index.path, Nonsense()):
            pass

    with pytest.raises(Refused):
        asyncio.run(work())
    assert index.get_note("probe") is None


# calls


class Stuck:
    """A model that never returns an embedding."""

    sees_images = False

    async def describe(self, image: bytes, question: str) -> str:
        return ""

    async def embed(self, texts: Any, purpose: str | None = None) -> list[list[float]]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def check_embeddings(self) -> EmbeddingCheck:
        raise AssertionError


def test_a_call_starts_the_embedding_and_a_later_one_uses_it(
    tmp_path: Path, server: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    for name, text in PARAGRAPHS.items():
        (tmp_path / "docs" / f"{name}.md").write_text(text)
    settings = KnowledgeSettings(folders=(str(tmp_path / "docs"),), database=str(tmp_path / "db"))

    async def ask(model: OpenAI | Stuck, query: str = QUESTION) -> str:
        call = replace(context(settings=settings, user="local"), model=model)
        found = await last(knowledge(query, context=call, settings=settings))
        making = background.background_tasks().running.get((path_for(settings.home, "local"), background.EMBEDDINGS))
        if making is not None and model is not stuck:
            await making.task
        return str(found.text)

    async def work(model: OpenAI) -> list[str]:
        texts = [await ask(model), await ask(model)]
        server.is_broken = True
        texts.append(await ask(model))
        monkeypatch.setattr("specialists.knowledge.EMBEDDING_SECONDS", 0.05)
        texts.append(await ask(stuck, "lunch in the canteen"))
        await background.stop_all()
        return texts

    stuck = Stuck()
    by_words, by_both, by_words_again, without_waiting = with_model(server, work)
    assert by_words.startswith("Nothing in the user's documents matches")
    assert "[1] leave.md" in by_both
    assert by_words_again.startswith("Nothing")
    assert "[1] canteen.md" in without_waiting


def test_two_models_do_not_keep_replacing_embeddings(index: Index, server: Embedding) -> None:
    async def work(model: OpenAI) -> list[tuple[bool, bool]]:
        found = []
        for name, matched in (("toy", False), ("other", False), ("other", True), ("toy", False)):
            server.model = name
            background.background_tasks().embed_from.clear()
            background.start_embedding(index.path, model, matched=matched)
            making = background.background_tasks().running.get((index.path, background.EMBEDDINGS))
            if making is not None:
                await making.task
            found.append((making is not None, await embeddings.embed_query(index.path, model, "x") is not None))
        return found

    assert with_model(server, work) == [(True, True), (True, True), (True, True), (False, False)]
