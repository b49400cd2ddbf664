"""`knowledge`: passages from the user's folders and uploads, and from no other user's."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from embedding_server import PARAGRAPHS, QUESTIONS
from specialist_calls import answer, context, full_disk, last, outcome, refusal, refused, text_pdf

from brain import Citation, Context
from brain.plugins.context import Result
from specialists._knowledge import background
from specialists._knowledge.index import Chunk, Index, Unreachable, hold_lock, path_for
from specialists._knowledge.search import Scope, fetch, rank
from specialists._knowledge.worker import run_worker
from specialists.knowledge import KnowledgeSettings, health, knowledge

HANDBOOK = """# Handbook

## Leave

Employees get 30 days of vacation a year.

## Notice

The notice period is three months.
"""
NOTE = ("note.txt", b"The zebra is called Hilda.")
NOTHING, FIRST, UNREACHABLE, DAMAGED = "no documents", "first time", "opened or written", "damaged"
MISSING = "does not have the folder"
"""Parts of the reasons."""


def make_documents(folder: Path) -> KnowledgeSettings:
    """Settings with a folder of two documents."""
    (folder / "docs" / "sub").mkdir(parents=True)
    (folder / "docs" / "handbook.md").write_text(HANDBOOK)
    (folder / "docs" / "sub" / "prices.txt").write_text("The pump P-4711 costs 120 euro.")
    return KnowledgeSettings(folders=(str(folder / "docs"),), database=str(folder / "db"))


@pytest.fixture
def settings(tmp_path: Path) -> KnowledgeSettings:
    return make_documents(tmp_path)


@pytest.fixture
def docs(settings: KnowledgeSettings, tmp_path: Path) -> Path:
    return tmp_path / "docs"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeSettings:
    """Documents that no test changes."""
    folder = tmp_path_factory.mktemp("library")
    settings = make_documents(folder)
    (folder / "docs" / "junk.docx").write_bytes(b"junk")
    pages = text_pdf("Chapter 1 Start", "Nothing here.", "The maximum load is 300 kg.")
    (folder / "docs" / "manual.pdf").write_bytes(pages)
    rules = "\n".join(f"# Rule {n}\n\nThe walrus rule number {n}.\n" for n in range(12))
    (folder / "docs" / "rules.md").write_text(rules)
    return settings


def of(settings: KnowledgeSettings, user: str | None = "local", *files: tuple[str, bytes], chat: str = "c1") -> Context:
    """The context of a call."""
    return replace(context(*files, settings=settings, user=user), conversation_id=chat)


def ask(settings: KnowledgeSettings, query: str, user: str | None = "local", **params: object) -> str:
    return answer(knowledge, {"query": query, **params}, of(settings, user))


# answers


def test_passages_are_cited_with_headings_and_pages(library: KnowledgeSettings) -> None:
    found = outcome(knowledge, {"query": "how long is the notice period"}, of(library))
    assert isinstance(found, Result)
    assert found.text.endswith(":\n\n[1] handbook.md › Handbook › Notice\n\nThe notice period is three months.")
    assert found.citations == (Citation("handbook.md#notice", "handbook.md › Handbook › Notice"),)
    found = outcome(knowledge, {"query": "maximum load"}, of(library))
    assert isinstance(found, Result)
    assert found.citations == (Citation("manual.pdf#page=3", "manual.pdf › Chapter 1 Start, page 3"),)


def test_an_empty_result_lists_the_files(library: KnowledgeSettings, tmp_path: Path) -> None:
    text = ask(library, "gnu")
    assert "4 files: handbook.md, manual.pdf, rules.md, sub/prices.txt.\n" in text
    assert "Not read: junk.docx: " in text
    empty = KnowledgeSettings(database=str(tmp_path / "db"))
    assert NOTHING in refusal(knowledge, {"query": "x"}, of(empty))
    assert not (tmp_path / "db").exists(), "a search creates no file"


@pytest.mark.parametrize("query", ['"', "a AND", "NEAR(a b)", "title:x", "*", "(", "\0", "' OR 1=1", "🙂", "x" * 1000])
def test_a_query_has_no_syntax(library: KnowledgeSettings, query: str) -> None:
    assert ask(library, query)


@pytest.mark.parametrize(
    ("source", "first"),
    [
        *((source, "handbook.md › ") for source in ("handbook.md", "HANDBOOK", "handbook.md#page=3", "handb")),
        *((source, "sub/prices.txt") for source in ("sub", "sub/", "docs/sub", "sub/prices.txt", "prices")),
    ],
)
def test_a_file_or_a_folder_may_be_named(library: KnowledgeSettings, source: str, first: str) -> None:
    text = ask(library, "vacation pump", source=source)
    assert f"\n\n[1] {first}" in text
    assert ("prices" in text, "handbook" in text) == (first[0] == "s", first[0] == "h")
    assert "pump" in ask(library, "vacation pump", source=" ")


def test_a_missing_file_is_refused_with_similar_names(library: KnowledgeSettings) -> None:
    failure = refused(knowledge, {"query": "x", "source": "handbok.md"}, of(library))
    assert "'handbok.md'" in failure.reason
    assert failure.advice.endswith(": handbook.md")
    assert "junk.docx: is damaged" in refusal(knowledge, {"query": "x", "source": "junk.docx"}, of(library))


def test_many_passages_come_five_at_a_time(library: KnowledgeSettings) -> None:
    start = ask(library, "walrus")
    assert start.count("The walrus rule") == 5
    assert start.endswith("offset=5.")
    end = ask(library, "walrus", offset=10)
    assert ":\n\n[11] rules.md" in end
    assert (end.count("The walrus rule"), "offset" in end) == (2, False)
    assert ask(library, "walrus", offset=20).startswith("Nothing more in the user's documents matches")


def test_files_with_one_name_are_distinguished(settings: KnowledgeSettings, docs: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "handbook.md").write_text("The notice period was one month.")
    both = replace(settings, folders=(str(docs), str(tmp_path / "old")))
    found = outcome(knowledge, {"query": "notice period"}, of(both))
    assert isinstance(found, Result)
    assert {citation.id for citation in found.citations} == {"docs/handbook.md#notice", "old/handbook.md"}
    assert "[1] old/handbook.md" in ask(both, "notice", source="old")


# changes, and reading in the background


def test_changes_and_deletions_are_followed(settings: KnowledgeSettings, docs: Path) -> None:
    assert "three months" in ask(settings, "notice")
    path = path_for(settings.home, "local")
    with closing(Index(path)) as index:
        before = index.db.execute("SELECT id FROM chunk ORDER BY id").fetchall()
        os.utime(docs / "handbook.md", (1, 1))
        ask(settings, "notice")
        assert index.db.execute("SELECT id FROM chunk ORDER BY id").fetchall() == before, "it was only touched"
    (docs / "handbook.md").write_text("# Notice\n\nNotice is given by letter.")
    (docs / "new.md").write_text("A zebra crosses.")
    assert "by letter" in ask(settings, "notice")
    assert "three months" not in ask(settings, "notice months")
    assert "A zebra" in ask(settings, "zebra")
    shutil.rmtree(docs)
    assert MISSING in refusal(knowledge, {"query": "zebra"}, of(settings))
    assert NOTHING in refusal(knowledge, {"query": "zebra"}, of(replace(settings, folders=())))


def test_a_machine_without_a_folder_of_another_one_says_so(
    settings: KnowledgeSettings, docs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    both = replace(settings, folders=(str(docs), str(tmp_path / "other")))
    assert "three months" in ask(both, "notice")
    assert ask(both, "notice").endswith("the folder other.")
    assert ask(both, "xyzzy").endswith("the folder other.")
    assert f"BRAIN_SPECIALIST_KNOWLEDGE_FOLDERS: there is no folder {tmp_path / 'other'}" in caplog.text
    (tmp_path / "other").mkdir()
    assert "other" not in ask(both, "notice")
    empty = replace(settings, folders=(str(tmp_path / "none"),), database=str(tmp_path / "db2"))
    assert MISSING in refusal(knowledge, {"query": "notice"}, of(empty))


def test_a_call_does_not_wait_for_a_long_update(settings: KnowledgeSettings) -> None:
    late = replace(of(settings), deadline=0.0)
    with hold_lock(path_for(settings.home, "local")):  # like another process that updates the index
        assert FIRST in refusal(knowledge, {"query": "notice"}, late)
    ask(settings, "notice")

    async def ask_while_reading() -> str:
        path = path_for(settings.home, "local")
        background.background_tasks().read((path, ""), settings.make_job(path))
        found = await last(knowledge("notice", context=late, settings=settings))
        return str(found.text)

    text = asyncio.run(ask_while_reading())
    assert "three months" in text
    assert "still being read" in text


def test_an_update_continues_after_a_cancelled_call_and_ends_with_the_server(settings: KnowledgeSettings) -> None:
    path = path_for(settings.home, "local")

    async def cancel() -> None:
        call = asyncio.create_task(last(knowledge("notice", context=of(settings), settings=settings)))
        running = background.background_tasks().running
        while not running:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        await running[path, ""].task
        work = background.background_tasks().read((path, ""), settings.make_job(path))
        await background.stop_all()
        assert work.task.done()

    asyncio.run(cancel())
    with closing(Index(path)) as index:
        assert index.passages() == 3


def test_searches_work_during_a_write(settings: KnowledgeSettings) -> None:
    ask(settings, "notice")
    with closing(Index(path_for(settings.home, "local"))) as index, index.transaction():
        index.db.execute("DELETE FROM file")
        assert "three months" in ask(settings, "notice"), "as it was before"


# users, conversations and uploads


def test_nobody_sees_the_documents_of_another_user(settings: KnowledgeSettings, docs: Path) -> None:
    shared = replace(settings, folders=(f"ada={docs}", f"bob={docs / 'sub'}"))
    assert "three months" in ask(shared, "notice period", "ada")
    assert ask(shared, "notice period", "bob").startswith("Nothing")
    assert "P-4711" in ask(shared, "pump", "bob")
    for user in ("local", "eve", "", "ADA", None):
        assert NOTHING in refusal(knowledge, {"query": "notice"}, of(shared, user))


@pytest.mark.parametrize("user", ["../ada", "a/b", "ü", "x" * 500, "\0", "\ud800", "nobody", ""])
def test_every_user_name_has_its_own_file(tmp_path: Path, user: str) -> None:
    path = path_for(tmp_path, user)
    assert path.parent == tmp_path
    assert len(path.name) < 60
    assert path not in {path_for(tmp_path, other) for other in ("ada", "a-b", None, "b")}


def test_uploads_are_found_in_their_conversation_only(settings: KnowledgeSettings) -> None:
    assert "[1] note.txt\n\nThe zebra" in answer(knowledge, {"query": "zebra"}, of(settings, "local", NOTE))
    assert ask(settings, "zebra").startswith("Nothing"), "it is no longer attached"
    answer(knowledge, {"query": "zebra"}, of(settings, "local", NOTE))
    again = of(settings, "local", NOTE, chat="c3")
    assert "[1] note.txt" in answer(knowledge, {"query": "zebra"}, again), "the name of the other one does not show"
    assert answer(knowledge, {"query": "zebra"}, of(settings, chat="c2")).startswith("Nothing")


def test_uploads_with_one_name_and_unreadable_uploads(settings: KnowledgeSettings) -> None:
    files = [("a.pdf", text_pdf("first zebra")), ("a.pdf", text_pdf("second zebra")), ("p.png", b"\x89PNG\r\n\x1a\n")]
    call = of(settings, None, *files, ("locked.pdf", text_pdf("x", encrypted=True)))
    found = outcome(knowledge, {"query": "zebra"}, call)
    assert isinstance(found, Result)
    assert sorted(citation.id for citation in found.citations) == ["2 a.pdf#page=1", "a.pdf#page=1"]
    assert "\n\nNot read: locked.pdf: " in found.text
    assert "locked.pdf: " in refusal(knowledge, {"query": "x", "source": "locked.pdf"}, call)


def forget(settings: KnowledgeSettings, user: str, conversation: str | None) -> None:
    assert knowledge.forget is not None
    asyncio.run(knowledge.forget(user, conversation, settings=settings))  # type: ignore[arg-type]


def test_deleted_text_is_gone_from_the_file(settings: KnowledgeSettings) -> None:
    for user in ("local", "ada"):
        for chat in ("c1", "c2"):
            answer(knowledge, {"query": "zebra"}, of(settings, user, NOTE, chat=chat))
    path = path_for(settings.home, "local")
    forget(settings, "local", "c1")
    with closing(Index(path)) as index:
        assert [root.place for root in index.roots("conversation")] == ["c2"]
        index.db.execute("INSERT INTO passage (passage) VALUES ('integrity-check')")
    forget(settings, "local", "c2")
    assert b"Hilda" not in path.read_bytes()
    assert "three months" in ask(settings, "notice period")
    forget(settings, "local", None)
    rest = path.read_bytes()
    assert [word for word in (b"Hilda", b"hilda", b"zebra", b"months", b"handbook") if word in rest] == []
    with closing(Index(path)) as index:
        assert (index.roots(), index.passages(), index.get_note("reader")) == ([], 0, None)
    with closing(Index(path_for(settings.home, "ada"))) as index:
        assert [root.place for root in index.roots("conversation")] == ["c1", "c2"]


# what goes wrong


def kill_readers() -> None:
    """Kill the processes of this one that read files."""
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text().split():
            if b"_knowledge" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="it finds its child process in /proc")
@pytest.mark.parametrize(("seconds", "problem"), [(0.5, "too long"), (30, "crashes")])
def test_a_file_that_ends_its_reader_is_skipped(
    settings: KnowledgeSettings, docs: Path, seconds: float, problem: str
) -> None:
    (docs / "deep.html").write_bytes(b"<div>" * 40_000 + b"zebra")
    path = path_for(settings.home, "local")
    with closing(Index(path)) as index:
        background.sync_folders(index, [docs])

    async def read() -> dict[str, str]:
        found: dict[str, str] = {}
        is_killed = seconds < 1
        async for step in run_worker(msgspec.structs.replace(settings.make_job(path), file_seconds=seconds)):
            if not is_killed and step.what == "at" and step.name == "deep.html":
                is_killed = True
                kill_readers()
            if step.what == "read":
                found[step.name] = step.problem
        return found

    found = asyncio.run(read())
    assert problem in found.pop("deep.html")
    assert found == {"handbook.md": "", "sub/prices.txt": ""}


def test_a_damaged_or_unwritable_index_is_reported(settings: KnowledgeSettings, tmp_path: Path) -> None:
    assert health(settings=settings) is None
    missing = replace(settings, folders=(f"ada={tmp_path / 'gone'}",))
    assert str(tmp_path / "gone") in (health(settings=missing) or "")
    path = path_for(settings.home, "local")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database, " * 100)
    assert DAMAGED in refusal(knowledge, {"query": "x"}, of(settings))
    assert DAMAGED in (health(settings=settings) or "")
    shutil.rmtree(settings.home)
    settings.home.write_text("in its way")
    assert UNREACHABLE in refusal(knowledge, {"query": "notice"}, of(settings))


def test_a_full_disk_is_no_damage(settings: KnowledgeSettings) -> None:
    ask(settings, "notice")
    big = ("big.txt", b"The walrus sleeps. " * 9000)
    with full_disk():
        assert UNREACHABLE in refusal(knowledge, {"query": "walrus"}, of(settings, "local", big))
    with closing(Index(path_for(settings.home, "local"))) as index:
        with full_disk(), pytest.raises(Unreachable, match=r"full|I/O"), index.transaction():
            index.db.executemany("INSERT INTO note VALUES (?, zeroblob(9999))", [(str(n),) for n in range(99)])
        assert index.get_note("98") is None
    assert "three months" in ask(settings, "notice")


# ranking by keywords; for embeddings see test_knowledge_embeddings.py


@pytest.fixture(scope="module")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with closing(Index(tmp_path_factory.mktemp("handbook") / "a.db")) as index:
        root = index.add_root("folder", "x")
        for name, text in PARAGRAPHS.items():
            index.write(root, f"{name}.md", (1, 1, b""), [Chunk((), "", text)])
        index.count_common_words()
        yield index


def best(index: Index, query: str, most: int = 3) -> list[str]:
    found = fetch(index, rank(index, query, Scope([root.id for root in index.roots()]))[:most])
    return [one.file.removesuffix(".md") for one in found]


def test_words_find_two_thirds_among_the_first_three(handbook: Index) -> None:
    assert sum(place in best(handbook, question) for question, place in QUESTIONS.items()) >= 20


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("holiday vacation leave", "leave"),
        ("vacations", "leave"),
        ("requesting", "leave"),
        ("E-417", "laptop"),
        ("vegetar", "canteen"),
        ("KILOGRAM", "mail"),
    ],
)
def test_forms_beginnings_and_codes_of_words_are_found(handbook: Index, query: str, place: str) -> None:
    assert best(handbook, query)[0] == place


def test_languages_without_spaces_are_found_by_their_letters(tmp_path: Path) -> None:
    with closing(Index(tmp_path / "a.db")) as index:
        root = index.add_root("folder", "x")
        for name, text in {"a": "返品は三十日以内に可能です。", "b": "営業時間は九時からです。"}.items():
            index.write(root, name, (1, 1, b""), [Chunk((), "", text)])
        assert best(index, "返品は可能ですか")[0] == "a"
        assert best(index, "営業時間")[0] == "b"


def test_a_rare_word_outweighs_common_ones(tmp_path: Path) -> None:
    with closing(Index(tmp_path / "a.db")) as index:
        root = index.add_root("folder", "x")
        filler = [Chunk((), "", f"policy rule number{n} applies here always {'policy ' * 50}") for n in range(3000)]
        index.write(root, "a", (1, 1, b""), [*filler, Chunk((), "", "the zebra policy")])
        index.count_common_words()
        found = fetch(index, rank(index, "policy rule applies always for the zebra", Scope([root.id])))
        assert found[0].text == "the zebra policy"
