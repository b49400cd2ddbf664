"""`memory`, what is kept of the user: what was said lately, earlier conversations, and facts they stated."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from brain import Context, Refused, Result, specialist

Operation = Literal["save_fact", "facts", "search", "short_memory", "long_memory", "update_fact", "store", "forget"]
Text = Annotated[str, Meta(max_length=2000)]
Which = Annotated[str, Meta(max_length=200)]
CHANGES = ("save_fact", "update_fact", "store", "forget")
FACTS_SHOWN = 50
FOUND_SHOWN = 5
SAID_SHOWN = 600
"""Characters of one thing that was said or answered."""
_NOTHING_KEPT = "nothing is kept of this user here; go on without it"

_FORGET = re.compile(r"\W*(?:please\s+|bitte\s+)?(?:forget|delete|erase|remove|vergiss|lösche)\b(?!\s+nicht)", re.I)
_KEEP = re.compile(
    r"\W*(?:please\s+|bitte\s+|(?:can|could|would|will) you (?:please )?)?"
    r"(?:remember\b(?!\s+(?:what|when|who|where|how|me\b))|note\b|keep in mind|save\b|(?:do not|don['’]t|never) forget"
    r"|merke? dir|denke? daran|vergiss nicht|notiere?\b|call me\b|my name is\b|nenn mich\b|ich heiße\b)",
    re.I,
)
_LATELY = re.compile(
    r"\b(?:we|i)\b.{0,30}\b(?:talk|talking|talked|speak|spoke|discuss|discussed|say|said|ask|asked)\b"
    r"|\blast (?:time|conversation|chat)|\bworüber\b|\bhaben wir\b",
    re.I,
)
_ABOUT_ME = re.compile(r"\babout me\b|\büber mich\b|\bwho am i\b|\bwer bin ich\b", re.I)


def operation_of(params: Mapping[str, Any]) -> str:
    """What is to be done; where a call does not say, as its text begins."""
    said = params.get("operation")
    text = params.get("text") or ""
    if said or not isinstance(text, str) or not text:
        return str(said or "facts")
    if _KEEP.match(text):
        return "save_fact"
    if _FORGET.match(text):
        return "forget"
    if _LATELY.search(text):
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
    which, words = _to_forget(str(params.get("id") or "").strip(), str(params["text"]).strip())
    item = await context.memory.find_item(which, words)
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
    id: Annotated[Which | None, Meta(description="which to update or forget")] = None,
    n: Annotated[int, Meta(ge=1, le=50)] | None = None,
    immutable: bool = False,
    *,
    context: Context,
) -> Result:
    """What the user told you in earlier chats. save_fact only what they state themselves."""
    if context.memory is None:
        raise Refused(_NOTHING_KEPT)
    params = {"operation": operation, "text": text}
    call = _Call(context, (text or "").strip(), category, (id or "").strip(), n, immutable, guessed=operation is None)
    result: Result = await _OPERATIONS[operation_of(params)](call)
    return result


class _Call:
    """One call, with what its parameters say."""

    def __init__(
        self,
        context: Context,
        text: str,
        category: Any,
        which: str,
        n: int | None,
        immutable: bool,
        *,
        guessed: bool,
    ) -> None:
        assert context.memory is not None
        self.memory = context.memory
        self.approved = context.approved
        self.message = context.message.strip()
        self.text, self.category, self.which, self.n, self.immutable = text, category, which, n, immutable
        self.guessed = guessed

    def wanted(self, operation: str) -> str:
        """The text, without which this operation cannot be."""
        if self.text:
            return self.text
        raise Refused(f"{operation} needs text: the user's words of it")

    @property
    def words(self) -> str:
        """What to look for; a whole message that a stand-in passed on says nothing about what is in a fact."""
        return "" if self.guessed and self.text == self.message else self.text


async def _save_fact(call: _Call) -> Result:
    saved = await call.memory.save(call.wanted("save_fact"), call.category, mutable=not call.immutable)
    return _told(saved)


async def _update_fact(call: _Call) -> Result:
    if not call.which or not call.text:
        raise Refused("update_fact needs id (of the fact, or words that it alone has) and text (its new wording)")
    return _told(await call.memory.update(call.which, call.text, call.category))


async def _store(call: _Call) -> Result:
    item = await call.memory.store(call.wanted("store"))
    return Result(f"Stored memory {_line(item)}")


async def _forget(call: _Call) -> Result:
    which, words = _to_forget(call.which, call.wanted("forget"))
    item = await call.memory.forget(which, words, call.approved.data if call.approved else None)
    return Result(f"Forgotten: {_line(item)}")


def _to_forget(which: str, text: str) -> tuple[str, str]:
    """What is meant, and words that it must have, also beside an id: a model may mix up ids."""
    words = _FORGET.sub("", text, count=1)
    return which or words, words


async def _facts(call: _Call) -> Result:
    items = await call.memory.facts(call.words, call.category, call.n or FACTS_SHOWN)
    about = f" with {call.words[:80]!r}" if call.words else ""
    return _listed(f"Facts that the user stated{about}", items, call, "No fact is known")


async def _search(call: _Call) -> Result:
    items = await call.memory.search(call.wanted("search"), call.n or FOUND_SHOWN)
    return _listed("Facts and memories found", items, call, "Nothing that is kept fits")


async def _long_memory(call: _Call) -> Result:
    items = await call.memory.memories(call.words, call.n or FOUND_SHOWN)
    return _listed("Memories of earlier conversations", items, call, "No memory of a conversation is kept yet")


async def _short_memory(call: _Call) -> Result:
    found = await call.memory.recent(call.n or FOUND_SHOWN)
    if not found:
        return Result("Nothing was said before.")
    lines = [
        f"- {one.started:%Y-%m-%d %H:%M} UTC, user: {_short(one.message)}\n  answer: {_short(one.answer) or '(none)'}"
        for one in found
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


def _told(saved: Any) -> Result:
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


def _listed(head: str, items: Sequence[Any], call: _Call, none: str) -> Result:
    if not items:
        return Result(f"{none}{f' for {call.text[:80]!r}' if call.text else ''}.")
    lines = [f"- {_line(item)}{_former(item)}" for item in items]
    return Result("\n".join([f"{head}:", *lines]), data=list(items), outside=any(item.untrusted for item in items))


def _line(item: Any) -> str:
    kind = "summary by a model" if item.is_summary else item.category or item.kind
    fixed = "" if item.mutable else ", immutable"
    return f"#{item.id} ({kind}, {item.updated:%Y-%m-%d}{fixed}): {item.text}"


def _former(item: Any) -> str:
    return "".join(f' (was "{former.text}" until {former.until:%Y-%m-%d})' for former in item.former[-1:])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SAID_SHOWN else f"{line[: SAID_SHOWN - 1]}…"
