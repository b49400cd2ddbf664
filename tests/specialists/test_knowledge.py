"""`knowledge`: answers from the user's folders and uploads, which it follows, and from nobody else's."""

import asyncio
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from handbook_questions import PARAGRAPHS, QUESTIONS
from specialist_calls import answer, context, full_disk, outcome, refusal, text_pdf

from brain import Citation, Context
from brain.plugins.executor import Answer, execute, prepare
from specialists._knowledge import uploads
from specialists._knowledge.index import Chunk, Damaged, Index, Unreachable, hold_lock, path_for
from specialists._knowledge.search import Scope, fetch, rank
from specialists._knowledge.worker import run_worker
from specialists.knowledge import (
    FIRST,
    NOTHING,
    UNREACHABLE,
    UNUSABLE,
    KnowledgeSettings,
    health,
    knowledge,
)

HANDBOOK = """# Handbook

## Leave

Employees get 30 days of vacation a year.

## Notice

The notice period is three months.
"""


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "handbook.md").write_text(HANDBOOK)
    (folder / "sub" / "prices.txt").write_text("The pump P-4711 costs 120 euro.")
    return folder


@pytest.fixture
def settings(tmp_path: Path, docs: Path) -> KnowledgeSettings:
    return KnowledgeSettings(folders=(str(docs),), database=str(tmp_path / "db"))


def of(settings: KnowledgeSettings, user: str | None = "local", *files: tuple[str, bytes], chat: str = "c1") -> Context:
    """A call's surroundings."""
    return replace(context(*files, settings=settings, user=user), conversation_id=chat)


def asked(settings: KnowledgeSettings, query: str, user: str | None = "local", **params: object) -> str:
    return answer(knowledge, {"query": query, **params}, of(settings, user))


def test_passages_have_their_headings_and_their_citation(settings: KnowledgeSettings) -> None:
    found = outcome(knowledge, {"query": "how long is the notice period"}, of(settings))
    assert isinstance(found, Answer)
    assert found.text == (
        "From the user's documents, the passages that fit best:\n\n"
        "[1] handbook.md › Handbook › Notice\n\nThe notice period is three months."
    )
    assert found.citations == (Citation("handbook.md#notice", "handbook.md › Handbook › Notice"),)


def test_the_page_of_a_pdf_is_cited(settings: KnowledgeSettings, docs: Path) -> None:
    (docs / "manual.pdf").write_bytes(text_pdf("Chapter 1 Start", "Nothing here.", "The maximum load is 300 kg."))
    found = outcome(knowledge, {"query": "maximum load"}, of(settings))
    assert isinstance(found, Answer)
    assert found.citations == (Citation("manual.pdf#page=3", "manual.pdf › Chapter 1 Start, page 3"),)


def test_a_call_does_not_wait_for_all_the_reading(settings: KnowledgeSettings) -> None:
    short = replace(of(settings), deadline=0.0)
    assert refusal(knowledge, {"query": "notice"}, short) == FIRST
    asked(settings, "notice")
    note = "\n\nDocuments are still being read; ask again in a minute for what is in the others."

    async def while_reading() -> str:
        path = path_for(settings.home, "local")
        uploads.background_tasks().read((path, ""), settings.job(path))
        call = replace(of(settings), deadline=0.0)
        async for item in knowledge("notice", context=call, settings=settings):
            found = item
        return found.text

    assert asyncio.run(while_reading()).endswith(f"three months.{note}")


def test_nothing_found_says_what_there_is(settings: KnowledgeSettings, docs: Path) -> None:
    (docs / "junk.docx").write_bytes(b"junk")
    assert asked(settings, "zebra") == (
        "Nothing in the user's documents matches 'zebra'. Try other words or synonyms, "
        "in the language of the documents.\nIndexed: 2 files: handbook.md, sub/prices.txt.\n"
        "Not read: junk.docx: damaged: not what its name says"
    )


def test_without_documents_it_says_how_to_get_some(tmp_path: Path) -> None:
    settings = KnowledgeSettings(database=str(tmp_path / "db"))
    assert refusal(knowledge, {"query": "x"}, of(settings)) == NOTHING
    assert not (tmp_path / "db").exists(), "asking leaves nothing behind"


def test_a_query_is_words_and_nothing_else(settings: KnowledgeSettings) -> None:
    for query in ('"', "a AND", "NEAR(a b)", "title:x", "*", "-", "(", "\0", "' OR 1=1", "🙂", "x" * 1000):
        assert asked(settings, query)


# source and offset


def test_a_file_or_a_folder_may_be_named(settings: KnowledgeSettings) -> None:
    for source in ("handbook.md", "HANDBOOK", "handbook.md#page=3", "handb"):
        assert "[1] handbook.md › Handbook › Leave" in asked(settings, "vacation pump", source=source)
        assert "prices" not in asked(settings, "vacation pump", source=source)
    for source in ("", " "):
        assert "pump" in asked(settings, "vacation pump", source=source)
    for source in ("sub", "sub/", "docs/sub", "sub/prices.txt", "prices"):
        assert "[1] sub/prices.txt" in asked(settings, "vacation pump", source=source)
        assert "handbook" not in asked(settings, "vacation pump", source=source)


def test_a_file_that_is_not_there_is_refused_with_those_that_are(settings: KnowledgeSettings) -> None:
    reason = refusal(knowledge, {"query": "x", "source": "handbok.md"}, of(settings))
    assert reason == "no file or folder is called 'handbok.md'; nearest: handbook.md"


def test_many_passages_come_five_at_a_time(settings: KnowledgeSettings, docs: Path) -> None:
    (docs / "many.md").write_text("\n".join(f"# Rule {n}\n\nThe zebra rule number {n}.\n" for n in range(12)))
    first = asked(settings, "zebra")
    assert first.count("The zebra rule") == 5
    assert first.endswith("For 5 more, ask again with offset=5.")
    last = asked(settings, "zebra", offset=10)
    assert last.startswith("Further passages that fit:\n\n[11] many.md")
    assert last.count("The zebra rule") == 2
    assert "offset" not in last
    assert asked(settings, "zebra", offset=20).startswith("Nothing more in the user's documents matches 'zebra'.")


def test_files_of_one_name_are_told_apart(settings: KnowledgeSettings, docs: Path, tmp_path: Path) -> None:
    other = tmp_path / "old"
    other.mkdir()
    (other / "handbook.md").write_text("The notice period was one month.")
    both = replace(settings, folders=(str(docs), str(other)))
    found = outcome(knowledge, {"query": "notice period"}, of(both))
    assert isinstance(found, Answer)
    assert {citation.id for citation in found.citations} == {"docs/handbook.md#notice", "old/handbook.md"}
    assert "[1] old/handbook.md" in asked(both, "notice", source="old")


# changes


def test_changes_and_deletions_are_followed(settings: KnowledgeSettings, docs: Path) -> None:
    assert "three months" in asked(settings, "notice")
    (docs / "handbook.md").write_text("# Notice\n\nNotice is given by letter.")
    assert "by letter" in asked(settings, "notice")
    assert "three months" not in asked(settings, "notice months")
    (docs / "new.md").write_text("A zebra crosses.")
    assert "A zebra" in asked(settings, "zebra")
    (docs / "handbook.md").unlink()
    assert asked(settings, "notice").startswith("Nothing")
    shutil.rmtree(docs)
    assert refusal(knowledge, {"query": "zebra"}, of(settings)) == NOTHING


def test_a_file_that_was_only_touched_is_not_read_again(settings: KnowledgeSettings, docs: Path) -> None:
    asked(settings, "notice")
    with closing(Index(path_for(settings.home, "local"))) as index:
        before = index.db.execute("SELECT id FROM chunk ORDER BY id").fetchall()
        os.utime(docs / "handbook.md", (1, 1))
        asked(settings, "notice")
        assert index.db.execute("SELECT id FROM chunk ORDER BY id").fetchall() == before
        assert index.files(index.roots()[0])["handbook.md"].changed == 1_000_000_000


def test_a_folder_that_leaves_the_settings_is_not_searched_any_more(
    settings: KnowledgeSettings, tmp_path: Path
) -> None:
    asked(settings, "notice")
    assert "three months" not in refusal(knowledge, {"query": "notice"}, of(replace(settings, folders=())))


def test_questions_are_answered_while_documents_are_read(settings: KnowledgeSettings) -> None:
    asked(settings, "notice")
    path = path_for(settings.home, "local")
    with closing(Index(path)) as index, index.transaction():
        index.db.execute("DELETE FROM file")
        assert "three months" in asked(settings, "notice"), "as it was before"


def test_writers_and_readers_at_once_see_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(Index(path)) as index:
        root = index.add_root("folder", "x")
    wrong: list[str] = []
    over = threading.Event()

    def write(name: str) -> None:
        with closing(Index(path)) as index:
            for n in range(40):
                index.write(root, name, (n, n, b""), [Chunk((), "", f"zebra {n} part {part}") for part in range(3)])

    def read() -> None:
        while not over.is_set():
            with closing(Index(path)) as index:
                found = fetch(index, rank(index, "zebra", Scope([root.id])))
            for name in {one.file for one in found}:
                versions = {one.text.split()[1] for one in found if one.file == name}
                wrong.extend(versions if len(versions) > 1 else ())

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(name,)) for name in ("a", "b")]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    for thread in readers:
        thread.join()
    assert wrong == []
    with closing(Index(path)) as index:
        assert index.passages() == 6
        index.db.execute("INSERT INTO passage (passage) VALUES ('integrity-check')")


# users and conversations


def test_nobody_sees_the_documents_of_another_user(settings: KnowledgeSettings, docs: Path) -> None:
    shared = replace(settings, folders=(f"ada={docs}", f"bob={docs / 'sub'}"))
    assert "three months" in asked(shared, "notice period", "ada")
    assert asked(shared, "notice period", "bob").startswith("Nothing")
    assert "P-4711" in asked(shared, "pump", "bob")
    for user in ("local", "eve", "", "ADA", None):
        assert refusal(knowledge, {"query": "notice"}, of(shared, user)) == NOTHING


@pytest.mark.parametrize("user", ["../ada", "a/b", "ü", "x" * 500, "\0", "\ud800", "nobody", ""])
def test_any_name_of_a_user_makes_a_file_of_its_own(tmp_path: Path, user: str) -> None:
    path = path_for(tmp_path, user)
    assert path.parent == tmp_path
    assert len(path.name) < 60
    assert path not in {path_for(tmp_path, other) for other in ("ada", "a-b", None, "b")}


def test_uploads_are_found_in_their_conversation_only(settings: KnowledgeSettings) -> None:
    note = ("note.txt", b"The zebra is called Hilda.")
    assert "[1] note.txt\n\nThe zebra" in answer(knowledge, {"query": "zebra"}, of(settings, "local", note))
    assert asked(settings, "zebra").startswith("Nothing"), "it is no longer attached"
    answer(knowledge, {"query": "zebra"}, of(settings, "local", note))
    again = of(settings, "local", note, chat="c3")
    assert "[1] note.txt" in answer(knowledge, {"query": "zebra"}, again), "the name of the other one does not show"
    other = of(settings, "local", chat="c2")
    assert answer(knowledge, {"query": "zebra"}, other).startswith("Nothing")
    assert "three months" in answer(knowledge, {"query": "notice"}, other)


def forgets(settings: KnowledgeSettings, user: str, conversation: str | None) -> None:
    assert knowledge.forget is not None
    asyncio.run(knowledge.forget(user, conversation, settings=settings))  # type: ignore[arg-type]


def test_the_uploads_of_a_conversation_are_forgotten_and_nothing_else(settings: KnowledgeSettings) -> None:
    note = ("note.txt", b"The zebra is called Hilda.")
    for user in ("local", "ada"):
        for chat in ("c1", "c2"):
            answer(knowledge, {"query": "zebra"}, of(settings, user, note, chat=chat))
    path = path_for(settings.home, "local")
    forgets(settings, "local", "c1")
    with closing(Index(path)) as index:
        assert [root.place for root in index.roots("conversation")] == ["c2"]
        index.db.execute("INSERT INTO passage (passage) VALUES ('integrity-check')")
    assert "three months" in asked(settings, "notice period")
    forgets(settings, "local", "c2")
    assert b"Hilda" not in path.read_bytes()
    with closing(Index(path_for(settings.home, "ada"))) as index:
        assert [root.place for root in index.roots("conversation")] == ["c1", "c2"]


def test_all_of_a_user_is_forgotten_also_in_the_file(settings: KnowledgeSettings) -> None:
    note = ("note.txt", b"The zebra is called Hilda.")
    for user in ("local", "ada"):
        answer(knowledge, {"query": "zebra"}, of(settings, user, note))
    path = path_for(settings.home, "local")
    forgets(settings, "local", None)
    rest = path.read_bytes()
    assert [word for word in (b"Hilda", b"hilda", b"zebra", b"months", b"handbook") if word in rest] == []
    with closing(Index(path)) as index:
        assert (index.roots(), index.passages(), index.get_note("reader")) == ([], 0, None)
    assert "three months" in asked(settings, "notice period"), "the folders of the settings are read again"
    assert "Hilda" in answer(knowledge, {"query": "zebra"}, of(settings, "ada", note))


def test_uploads_of_one_name_and_of_all_kinds(settings: KnowledgeSettings) -> None:
    files = [("a.pdf", text_pdf("first zebra")), ("a.pdf", text_pdf("second zebra")), ("p.png", b"\x89PNG\r\n\x1a\n")]
    found = outcome(knowledge, {"query": "zebra"}, of(settings, None, *files))
    assert isinstance(found, Answer)
    assert sorted(citation.id for citation in found.citations) == ["2 a.pdf#page=1", "a.pdf#page=1"]


def test_an_upload_that_cannot_be_read_is_said_to_be_so(settings: KnowledgeSettings) -> None:
    locked = ("locked.pdf", text_pdf("x", encrypted=True))
    why = "'locked.pdf' is encrypted; ask the user for a copy without a password"
    call = of(settings, "local", locked)
    assert answer(knowledge, {"query": "notice"}, call).endswith(f"three months.\n\nNot read: locked.pdf: {why}")
    assert refusal(knowledge, {"query": "notice", "source": "locked.pdf"}, call) == f"Not read: locked.pdf: {why}"


def test_files_that_could_not_be_read_are_tried_again_when_more_is_allowed(
    settings: KnowledgeSettings, docs: Path
) -> None:
    (docs / "large.txt").write_text("zebra " * 200_000)
    assert "large.txt: larger than 1 MB" in asked(replace(settings, file_mb=1), "zebra")
    assert "[1] large.txt" in asked(replace(settings, file_mb=2), "zebra")


# what goes wrong


def reading(settings: KnowledgeSettings, docs: Path, *, kill: bool) -> dict[str, str]:
    """What is wrong with each file of a folder that has one with which its reader takes too long, or is killed."""
    (docs / "deep.html").write_bytes(b"<div>" * 40_000 + b"zebra")
    path = path_for(settings.home, "local")
    with closing(Index(path)) as index:
        uploads.sync_folders(index, [docs])

    job = msgspec.structs.replace(settings.job(path), file_seconds=30 if kill else 0.5)

    async def read() -> dict[str, str]:
        found: dict[str, str] = {}
        killed = not kill
        async for step in run_worker(job):
            if not killed and step.what == "at" and step.name == "deep.html":
                killed = True
                _kill_children()
            if step.what == "read":
                found[step.name] = step.trouble
        return found

    return asyncio.run(read())


def _kill_children() -> None:
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text().split():
            os.kill(int(child), signal.SIGKILL)


def test_a_file_that_takes_too_long_is_left_out(settings: KnowledgeSettings, docs: Path) -> None:
    found = reading(settings, docs, kill=False)
    assert found == {"deep.html": "it takes too long to be read", "handbook.md": "", "sub/prices.txt": ""}
    assert "three months" in asked(settings, "notice")


@pytest.mark.skipif(sys.platform != "linux", reason="it looks up its child process as Linux tells it")
def test_a_file_that_kills_its_reader_is_left_out(settings: KnowledgeSettings, docs: Path) -> None:
    found = reading(settings, docs, kill=True)
    assert found == {"deep.html": "it breaks the program that reads it", "handbook.md": "", "sub/prices.txt": ""}


def test_what_another_process_reads_is_said_to_be_being_read(settings: KnowledgeSettings) -> None:
    with hold_lock(path_for(settings.home, "local")):
        call = replace(of(settings), deadline=0.0)
        assert refusal(knowledge, {"query": "notice"}, call) == FIRST
    assert "three months" in asked(settings, "notice")


def test_a_damaged_index_is_said_to_be_one(settings: KnowledgeSettings) -> None:
    path = path_for(settings.home, "local")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database, " * 100)
    assert refusal(knowledge, {"query": "x"}, of(settings)) == UNUSABLE
    assert "its index cannot be opened" in (health(settings=settings) or "")
    with pytest.raises(Damaged):
        Index(path)


def test_an_index_that_cannot_be_made_is_said_to_be_so(settings: KnowledgeSettings) -> None:
    settings.home.write_text("in its way")
    assert refusal(knowledge, {"query": "notice"}, of(settings)) == UNREACHABLE


def test_a_full_disk_is_no_damage(tmp_path: Path, settings: KnowledgeSettings) -> None:
    asked(settings, "notice")
    with full_disk():
        told = refusal(
            knowledge, {"query": "walrus"}, of(settings, "local", ("big.txt", b"The walrus sleeps. " * 9000))
        )
    assert told == UNREACHABLE
    with closing(Index(path_for(settings.home, "local"))) as index:
        with full_disk(), pytest.raises(Unreachable, match=r"full|I/O"), index.transaction():
            index.db.executemany("INSERT INTO note VALUES (?, zeroblob(9999))", [(str(n),) for n in range(99)])
        assert index.get_note("98") is None
    assert "three months" in asked(settings, "notice")


def test_health(settings: KnowledgeSettings, tmp_path: Path) -> None:
    assert health(settings=settings) is None
    missing = replace(settings, folders=(f"ada={tmp_path / 'gone'}",))
    assert "gone of the setting `folders` is not there" in (health(settings=missing) or "")


def test_a_call_that_is_cancelled_leaves_the_reading_to_go_on(settings: KnowledgeSettings) -> None:
    async def cancel() -> None:
        arguments = prepare(knowledge, {"query": "notice"})
        provided = {KnowledgeSettings: settings, Context: of(settings)}
        call = asyncio.create_task(execute(knowledge, arguments, provided, lambda progress: None, timeout=20))  # type: ignore[arg-type]
        while not uploads.background_tasks().works:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        (work,) = uploads.background_tasks().works.values()
        await asyncio.wait_for(work.task, 10)

    asyncio.run(cancel())
    with closing(Index(path_for(settings.home, "local"))) as index:
        assert index.passages() == 3


def test_the_end_of_the_server_ends_the_reading(settings: KnowledgeSettings) -> None:
    async def stop() -> None:
        path = path_for(settings.home, "local")
        work = uploads.background_tasks().read((path, ""), settings.job(path))
        await uploads.stop_all()
        assert work.task.done()

    asyncio.run(stop())


# ranking


@pytest.fixture(scope="module")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with closing(Index(tmp_path_factory.mktemp("handbook") / "a.db")) as index:
        root = index.add_root("folder", "x")
        for name, text in PARAGRAPHS.items():
            index.write(root, f"{name}.md", (1, 1, b""), [Chunk((), "", text)])
        index.count_common_words()
        yield index


def first(index: Index, query: str, most: int = 3) -> list[str]:
    found = fetch(index, rank(index, query, Scope([root.id for root in index.roots()]))[:most])
    return [one.file.removesuffix(".md") for one in found]


def test_words_find_two_thirds_among_the_first_three(handbook: Index) -> None:
    assert sum(place in first(handbook, question) for question, place in QUESTIONS.items()) >= 20


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
    assert first(handbook, query)[0] == place


def test_languages_without_spaces_are_found_by_their_letters(tmp_path: Path) -> None:
    with closing(Index(tmp_path / "a.db")) as index:
        root = index.add_root("folder", "x")
        for name, text in {"a": "返品は三十日以内に可能です。", "b": "営業時間は九時からです。"}.items():
            index.write(root, name, (1, 1, b""), [Chunk((), "", text)])
        assert first(index, "返品は可能ですか")[0] == "a"
        assert first(index, "営業時間")[0] == "b"


def test_a_rare_word_outweighs_common_ones(tmp_path: Path) -> None:
    with closing(Index(tmp_path / "a.db")) as index:
        root = index.add_root("folder", "x")
        filler = [Chunk((), "", f"policy rule number{n} applies here always {'policy ' * 50}") for n in range(3000)]
        index.write(root, "a", (1, 1, b""), [*filler, Chunk((), "", "the zebra policy")])
        index.count_common_words()
        assert first(index, "policy rule applies always for the zebra")[0] == "a"
        found = fetch(index, rank(index, "policy rule applies always for the zebra", Scope([root.id])))
        assert found[0].text == "the zebra policy"
