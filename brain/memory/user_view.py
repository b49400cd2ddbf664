"""The memory of one user in one conversation, as a specialist has it. Only what the user said can be kept."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from brain.errors import BadRequest, Refused
from brain.memory.background import aside
from brain.memory.cache import Recent
from brain.memory.items import ALL, FACTS, MEMORIES, Items
from brain.memory.saying import objection, plain
from brain.memory.statements import category_of, judged, of_one_subject
from brain.memory.terms import Wanted, content, union
from brain.memory.texts import FACT_LENGTH, MEMORY_LENGTH, one_line
from brain.messages import Category, Interaction, Item, Kind
from brain.plugins.context import Saved

NAMED_MOST = 5
"""So many of those that could be meant are named."""
FOUND_MOST = 50
"""So many are looked through for those of one category."""
_CHANGED = (
    "what is kept was changed after the user approved this: look at it again, then ask again if it is still right"
)
_NO_FACT = "give the fact as text, in one sentence and the user's own words"


class UserMemory:
    """What is kept of one user.

    Args:
        message_id: of the question that is answered, if it is kept.
        said: their own words in this conversation, newest last.
    """

    def __init__(
        self,
        items: Items,
        newest: Recent,
        user: str,
        conversation_id: str,
        message_id: str | None,
        said: Callable[[], Sequence[str]],
    ) -> None:
        self._items, self._newest = items, newest
        self._user, self._conversation_id, self._message_id, self._said = user, conversation_id, message_id, said

    async def recent(self, most: int = 5) -> Sequence[Interaction]:
        return (await self._newest.of(self._user))[: max(0, most)]

    async def memories(self, words: str = "", most: int = 5) -> Sequence[Item]:
        if words.strip():
            return await self._items.found(self._user, words, MEMORIES, most)
        return await self._items.shelf.items(self._user, kind="memory", limit=most)

    async def facts(self, words: str = "", category: Category | None = None, most: int = 50) -> Sequence[Item]:
        if not words.strip():
            return await self._items.shelf.items(self._user, kind="fact", category=category, limit=most)
        found = await self._items.found(self._user, words, FACTS, FOUND_MOST)
        return [item for item in found if category in (None, item.category)][:most]

    async def search(self, words: str, most: int = 5) -> Sequence[Item]:
        return await self._items.found(self._user, words, ALL, most)

    async def save(self, text: str, category: Category | None = None, *, mutable: bool = True) -> Saved:
        text = await self._checked(text, FACT_LENGTH)
        async with self._items.writing(self._user):
            known, near = await self._items.alike(self._user, text)
            verdict = await aside(judged, text, known, near)
            if verdict.same is not None:
                return Saved(await self._confirm(verdict.same, category, mutable=mutable), "known")
            if verdict.corrects is not None:
                return Saved(await self._correct(verdict.corrects, text, category, mutable=mutable), "corrected")
            item = await self._new("fact", text, category or category_of(text), mutable=mutable)
            item = replace(item, against=tuple(other.id for other in verdict.against))
            await self._put(item)
            return Saved(item, "new", verdict.against)

    async def update(self, which: str, text: str, category: Category | None = None) -> Saved:
        text = await self._checked(text, FACT_LENGTH)
        async with self._items.writing(self._user):
            item = await self._one(which, FACTS)
            if item.mutable and not await aside(of_one_subject, text, item.text):
                remedy = f"save this as a fact of its own, or forget #{item.id} first"
                raise Refused(f"{_told(item)} says something else; {remedy}")
            return Saved(await self._correct(item, text, category), "corrected")

    async def keep(self, text: str) -> Item:
        text = await self._checked(text, MEMORY_LENGTH, together=True)
        async with self._items.writing(self._user):
            item = await self._new("memory", text, None)
            await self._put(item)
            return item

    async def meant(self, which: str, words: str = "") -> Item:
        item = await self._one(which, ALL)
        if not _with_all([item], Wanted(content(words))):
            raise Refused(f"{_told(item)} does not say that; give its own words, or the id of what says it")
        if not item.mutable:
            raise Refused(f"{_told(item)} is immutable; only the user can remove it, by hand")
        return item

    async def forget(self, which: str, words: str = "", approved: Item | None = None) -> Item:
        async with self._items.writing(self._user):
            item = await self.meant(which, words)
            if approved is not None and (item.id, item.text) != (approved.id, approved.text):
                raise Refused(_CHANGED)
            await self._items.erase(self._user, item.id)
            return item

    async def _checked(self, text: str, most: int, *, together: bool = False) -> str:
        """A text as it is kept, if the user said it."""
        line = one_line(plain(text))
        if not line:
            raise Refused(_NO_FACT)
        if len(line) > most:
            raise Refused(f"a text has at most {most} characters; say it in fewer of the user's words")
        problem = await aside(objection, line, list(self._said()), together=together)
        if problem:
            raise Refused(problem)
        return line

    async def _new(self, kind: Kind, text: str, category: Category | None, *, mutable: bool = True) -> Item:
        now, item_id = self._items.now(), await self._items.new_id(self._user)
        return Item(item_id, kind, text, now, now, category, mutable, self._conversation_id, self._message_id)

    async def _confirm(self, item: Item, category: Category | None, *, mutable: bool) -> Item:
        """It was said again; what was immutable stays so."""
        category = category if item.mutable and category else item.category
        item = replace(item, updated=self._items.now(), category=category, mutable=item.mutable and mutable)
        await self._put(item)
        return item

    async def _correct(self, item: Item, text: str, category: Category | None, *, mutable: bool = True) -> Item:
        if not item.mutable:
            raise Refused(f"{_told(item)} is immutable; only the user can change it, by hand: tell them so")
        item = self._items.said_anew(item, text, self._conversation_id, self._message_id)
        item = replace(item, category=category or item.category, mutable=mutable)
        await self._put(item)
        return item

    async def _put(self, item: Item) -> None:
        try:
            await self._items.put(self._user, item)
        except BadRequest as problem:  # the user keeps too much
            raise Refused(problem.message) from None

    async def _one(self, which: str, kinds: Sequence[Kind]) -> Item:
        """The item of this id, or the only one that has these words."""
        which = which.strip()
        item = await self._items.shelf.item(self._user, which.removeprefix("#").lower()) if which else None
        if item is not None and item.kind in kinds:
            return item
        wanted = content(which)
        if not wanted:
            raise Refused("say which by its id, such as #k7m2, or by words that it alone has")
        found = await self._items.with_words(self._user, which, kinds)
        found = await aside(_with_all, found, Wanted(wanted))
        if len(found) == 1:
            return found[0]
        if not found:
            raise Refused(f"nothing is kept with the words {which[:80]!r}; look for it with search or facts first")
        raise Refused(f"which? {'; '.join(map(_told, found[:NAMED_MOST]))}")


def _with_all(items: Sequence[Item], wanted: Wanted) -> list[Item]:
    """Those that have all of these words."""
    there = ((item, union(map(wanted.of, content(item.text[:MEMORY_LENGTH])))) for item in items)
    return [item for item, found in there if not wanted.lacking(found)]


def _told(item: Item) -> str:
    return f'#{item.id} of {item.updated:%Y-%m-%d}, "{item.text[:120]}",'
