"""`memory`, what is kept of the user: what was said lately, earlier conversations, and facts they stated."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from brain import Context, Refused, Result, specialist

Operation = Literal["save_fact", "facts", "search", "short_memory", "long_memory", "update_fact", "store", "forget"]
Text = Annotated[str, Meta(max_length=2000)]
ItemId = Annotated[str, Meta(max_length=200)]
CHANGES = ("save_fact", "update_fact", "store", "forget")
MAX_FACTS = 50
MAX_FOUND = 5
MAX_TEXT_SHOWN = 600
"""Characters of one thing that was said or answered."""
_NO_MEMORY = "nothing is kept of this user here; go on without it"

_FORGET = re.compile(r"\W*(?:please\s+|bitte\s+)?(?:forget|delete|erase|remove|vergiss|lösche)\b(?!\s+nicht)", re.I)
_SAVE = re.compile(
    r"\W*(?:please\s+|bitte\s+|(?:can|could|would|will) you (?:please )?)?"
    r"(?:remember\b(?!\s+(?:what|when|who|where|how|me\b))|note\b|keep in mind|save\b|(?:do not|don['’]t|never) forget"
    r"|merke? dir|denke? daran|vergiss nicht|notiere?\b|call me\b|my name is\b|nenn mich\b|ich heiße\b)",
    re.I,
)
_RECENT = re.compile(
    r"\b(?:we|i)\b.{0,30}\b(?:talk|talking|talked|speak|spoke|discuss|discussed|say|said|ask|asked)\b"
    r"|\blast (?:time|conversation|chat)|\bworüber\b|\bhaben wir\b",
    re.I,
)
_ABOUT_ME = re.compile(r"\babout me\b|\büber mich\b|\bwho am i\b|\bwer bin ich\b", re.I)


def operation_of(params: Mapping[str, Any]) -> str:
    """What is to be done; where a call does not say, as its text begins."""
    operation = params.get("operation")
    text = params.get("text") or ""
    if operation or not isinstance(text, str) or not text:
        return str(operation or "facts")
    if _SAVE.match(text):
        return "save_fact"
    if _FORGET.match(text):
        return "forget"
    if _RECENT.search(text):
        return "short_memory"
    return "facts" if _ABOUT_ME.search(text) else "search"


def reads(params: Mapping[str, Any]) -> bool:
    """What only looks is never asked about."""
    return operation_of(params) not in CHANGES


def needs_approval(params: Mapping[str, Any]) -> bool:
    """What is lost is asked about; without a text nothing is."""
    return operation_of(params) == "forget" and bool(str(params.get("text") or "").strip())


async def preview(params: Mapping[str, Any], *, context: Context) -> Result | None:
    """Of what is to be forgotten, its own words; what is to be kept stands in the parameters."""
    if context.memory is None or not needs_approval(params):
        return None
    item_id, words = _forget_target(str(params.get("id") or "").strip(), str(params["text"]).strip())
    item = await context.memory.find_item(item_id, words)
    kind = "fact" if item.kind == "fact" else "memory of a conversation"
    return Result(f"Forget this {kind}, of {item.updated:%Y-%m-%d}:\n{item.text}", data=item)


@specialist(
    requires_user=True,
    approval=needs_approval,
    preview=preview,
    read_only=reads,
    outside=False,  # but for memories of conversations in which strangers' words stood
    timeout=10,
    tags=("memory", "user"),
    examples=(
        "remember that I am allergic to nuts",
        "remember my birthday is in June",
        "what do you know about me",
        "what do you remember about me",
        "who am I",
        "what did we talk about",
        "what did we discuss in our last conversation",
        "what did I tell you yesterday",
        "what did I say about my sister",
        "forget that I like tea",
        "note that I live in Oslo",
        "please note that I prefer metric units",
        "keep in mind that I do not eat meat",
        "do you remember my name",
        "call me Ada from now on",
        "merk dir, dass ich kein Fleisch esse",
        "was weißt du über mich",
        "worüber haben wir gesprochen",
    ),
)
async def memory(
    operation: Annotated[Operation | None, Meta(examples=["save_fact"])] = None,
    text: Annotated[
        Text | None,
        Meta(
            description="to store: the user's sentence, word for word; else words to find",
            examples=["I am allergic to penicillin"],
        ),
    ] = None,
    category: Annotated[
        Literal["personal", "preferences", "knowledge", "general"] | None,
        Meta(description="personal, preferences: recalled with each message"),
    ] = None,
    id: Annotated[ItemId | None, Meta(description="which to update or forget")] = None,
    n: Annotated[int, Meta(ge=1, le=50)] | None = None,
    immutable: bool = False,
    *,
    context: Context,
) -> Result:
    """What the user told you in earlier chats. save_fact only what they state themselves."""
    if context.memory is None:
        raise Refused(_NO_MEMORY)
    params = {"operation": operation, "text": text}
    call = _Call(
        context, (text or "").strip(), category, (id or "").strip(), n, immutable, is_guessed=operation is None
    )
    result: Result = await _OPERATIONS[operation_of(params)](call)
    return result


class _Call:
    """One call, with what its parameters say."""

    def __init__(
        self,
        context: Context,
        text: str,
        category: Any,
        item_id: str,
        n: int | None,
        immutable: bool,
        *,
        is_guessed: bool,
    ) -> None:
        assert context.memory is not None
        self.memory = context.memory
        self.approved = context.approved
        self.message = context.message.strip()
        self.text, self.category, self.item_id, self.n, self.immutable = text, category, item_id, n, immutable
        self.is_guessed = is_guessed

    def require_text(self, operation: str) -> str:
        """The text, without which this operation cannot be."""
        if self.text:
            return self.text
        raise Refused(f"{operation} needs text: the user's words of it")

    @property
    def words(self) -> str:
        """What to look for; a whole message that a stand-in passed on says nothing about what is in a fact."""
        return "" if self.is_guessed and self.text == self.message else self.text


async def _save_fact(call: _Call) -> Result:
    saved = await call.memory.save(call.require_text("save_fact"), call.category, mutable=not call.immutable)
    return _saved_result(saved)


async def _update_fact(call: _Call) -> Result:
    if not call.item_id or not call.text:
        raise Refused("update_fact needs id (of the fact, or words that it alone has) and text (its new wording)")
    return _saved_result(await call.memory.update(call.item_id, call.text, call.category))


async def _store(call: _Call) -> Result:
    item = await call.memory.store(call.require_text("store"))
    return Result(f"Stored memory {_line(item)}")


async def _forget(call: _Call) -> Result:
    item_id, words = _forget_target(call.item_id, call.require_text("forget"))
    item = await call.memory.forget(item_id, words, call.approved.data if call.approved else None)
    return Result(f"Forgotten: {_line(item)}")


def _forget_target(item_id: str, text: str) -> tuple[str, str]:
    """What is meant, and words that it must have, also beside an id: a model may mix up ids."""
    words = _FORGET.sub("", text, count=1)
    return item_id or words, words


async def _facts(call: _Call) -> Result:
    items = await call.memory.facts(call.words, call.category, call.n or MAX_FACTS)
    about = f" with {call.words[:80]!r}" if call.words else ""
    return _list_result(f"Facts that the user stated{about}", items, call, "No fact is known")


async def _search(call: _Call) -> Result:
    items = await call.memory.search(call.require_text("search"), call.n or MAX_FOUND)
    return _list_result("Facts and memories found", items, call, "Nothing that is kept fits")


async def _long_memory(call: _Call) -> Result:
    items = await call.memory.memories(call.words, call.n or MAX_FOUND)
    return _list_result("Memories of earlier conversations", items, call, "No memory of a conversation is kept yet")


async def _short_memory(call: _Call) -> Result:
    found = await call.memory.recent(call.n or MAX_FOUND)
    if not found:
        return Result("Nothing was said before.")
    lines = [
        f"- {turn.started:%Y-%m-%d %H:%M} UTC, user: {_shorten(turn.message)}\n"
        f"  answer: {_shorten(turn.answer) or '(none)'}"
        for turn in found
    ]
    text = "\n".join(["What was said last, newest first:", *lines])
    return Result(text, outside=any(one.untrusted for one in found))


_OPERATIONS: Mapping[str, Callable[[_Call], Any]] = {
    "save_fact": _save_fact,
    "update_fact": _update_fact,
    "store": _store,
    "forget": _forget,
    "facts": _facts,
    "search": _search,
    "long_memory": _long_memory,
    "short_memory": _short_memory,
}


def _saved_result(saved: Any) -> Result:
    """What became of a fact."""
    item = saved.item
    if saved.how == "known":
        lines = [f"Known already: {_line(item)}"]
    elif saved.how == "corrected" and item.former:
        former = item.former[-1]
        lines = [f"Corrected: {_line(item)}", f'It was "{former.text}" until {former.until:%Y-%m-%d}.']
    else:
        lines = [f"Saved {_line(item)}"]
    return Result("\n".join(lines), data=item, outside=item.untrusted)


def _list_result(head: str, items: Sequence[Any], call: _Call, none: str) -> Result:
    if not items:
        return Result(f"{none}{f' for {call.text[:80]!r}' if call.text else ''}.")
    lines = [f"- {_line(item)}{_previous_text(item)}" for item in items]
    return Result("\n".join([f"{head}:", *lines]), data=list(items), outside=any(item.untrusted for item in items))


def _line(item: Any) -> str:
    kind = "summary by a model" if item.is_summary else item.category or item.kind
    immutable = "" if item.mutable else ", immutable"
    return f"#{item.id} ({kind}, {item.updated:%Y-%m-%d}{immutable}): {item.text}"


def _previous_text(item: Any) -> str:
    return "".join(f' (was "{former.text}" until {former.until:%Y-%m-%d})' for former in item.former[-1:])


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_TEXT_SHOWN else f"{line[: MAX_TEXT_SHOWN - 1]}…"
