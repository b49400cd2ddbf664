"""`memory` stores and recalls facts, conversation summaries and recent messages."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from brain import AssistContext, Context, Refused, Result, specialist
from specialists._kit.examples import read_examples
from specialists._kit.requests import compile_requests
from specialists._kit.text import word_set

Operation = Literal["save_fact", "facts", "search", "short_memory", "long_memory", "update_fact", "store", "forget"]
Text = Annotated[str, Meta(max_length=2000)]
ItemId = Annotated[str, Meta(max_length=200)]
CHANGES = ("save_fact", "update_fact", "store", "forget")
MAX_FACTS = 50
MAX_FOUND = 5
MAX_TEXT_SHOWN = 600
"""Maximum characters of a message or an answer."""

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
_CHANGES = compile_requests(
    "remember(?:_that|_(?:my|i)\\b(?![^.!?]{1,80}\\?)|:) note(?!s|_(?:in|from)) keep_in_mind memori[sz]e save store "
    "(?:do_not|don['’]t|never)_forget forget delete erase remove update correct call_me my_name_is from_now_on "
    "merke?_(?:dir|euch) denke?_daran vergiss notiere? speichere? lösche? nenn_mich ich_heiße behalte "
    "souviens-toi_(?:que|de) rappelle-toi_(?:que|de) retiens note[rz]? mémorise[rz]? enregistre[rz]? oublie[rz]? "
    "n['’]oublie[rz]?_pas supprime[rz]? efface[rz]? appelle-moi je_m['’]appelle "
    "recuerda_(?:que|mi) acuérdate_(?:de_)?que apunta anota guarda memoriza olvida no_olvides borra elimina llámame "
    "me_llamo",
    "merken vergessen speichern notieren löschen",
)
_CONTINUES = re.compile(r"\W*(?:and|und|et|y)\b", re.I)
_READS_ONLY = (
    "With this model, Brain only reads your memory. Change it under Memory on the chat page or with brain memory, or "
    "choose a larger model."
)
_MEMORY_WORDS = word_set(
    "remember recall forgot forget told tell talk talked talking speak spoke discuss discussed say said saying "
    "mention mentioned explain explained ask asked chat chats conversation conversations session previous previously "
    "earlier before last time times once believe think thought summarise summarize outcome conclusion settled agreed "
    "memory stored called named learned learnt recently erinnerst erinnere erinnern erzählt gesagt gesprochen gefragt "
    "geredet worüber neulich letztes mal heißt heißen merkst weißt vorhin rappelles rappelle souviens dit parlé "
    "raconté discuté appelle déjà fois dernière sais savez acuerdas recuerdas dije dicho conté contado hablamos "
    "hablado llama sabes última vez conversación remind"
)
"""Words of a question that do not name its subject."""
MAX_WORDS = 6
_ABOUT_ME = re.compile(
    r"\babout me\b|\bwho am i\b|\büber mich\b|\bwer bin ich\b|\b(?:de|sur) moi\b|\bqui suis-je\b"
    r"|\b(?:de|sobre) mí\b|\bquién soy\b",
    re.I,
)


def choose_operation(params: Mapping[str, Any]) -> str:
    """Return the operation of a call, by its text if it names none."""
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


def make_params(message: str, context: AssistContext) -> Mapping[str, str]:
    """Return the parameters of an assisted call.

    Raises:
        Refused: The message asks to store or delete something.
    """
    continues = _CONTINUES.match(message) and _CHANGES.search(context.previous)
    if continues or _CHANGES.search(message):
        raise Refused(_READS_ONLY)
    if _ABOUT_ME.search(message):
        return {"operation": "facts"}
    words = [word for word in context.find_subject(message, _MEMORY_WORDS) if context.find_days(word) is None]
    if words:
        return {"operation": "search", "text": " ".join(words[:MAX_WORDS])}
    return {"operation": "short_memory" if _RECENT.search(message) else "facts"}


def is_read_only(params: Mapping[str, Any]) -> bool:
    """Whether a call only reads."""
    return choose_operation(params) not in CHANGES


def needs_approval(params: Mapping[str, Any]) -> bool:
    """Whether a call deletes something. Without text it fails, so it needs no approval."""
    return choose_operation(params) == "forget" and bool(str(params.get("text") or "").strip())


async def preview(params: Mapping[str, Any], *, context: Context) -> Result | None:
    """Return the item that a call deletes, for the person who approves it.

    Raises:
        Refused: nothing is saved from a private conversation.
    """
    if context.private and choose_operation(params) in ("save_fact", "update_fact", "store"):
        advice = "tell the user that they can add it to their memory themselves"
        raise Refused("this conversation is private, so nothing from it is saved", advice)
    if context.memory is None or not needs_approval(params):
        return None
    item_id, words = _find_target(str(params.get("id") or "").strip(), str(params["text"]).strip())
    item = await context.memory.find_item(item_id, words)
    kind = "fact" if item.kind == "fact" else "conversation summary" if item.is_summary else "memory"
    return Result(f"Delete this {kind} of {item.updated:%Y-%m-%d}:\n{item.text}", data=item)


@specialist(
    requires_user=True,
    approval=needs_approval,
    preview=preview,
    read_only=is_read_only,
    outside=False,  # except for summaries of conversations with untrusted content
    timeout=10,
    assist=make_params,
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
        *read_examples("memory"),
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
    user_memory = context.memory
    if user_memory is None:
        raise Refused("memory is not available for this user", "continue without it")
    text, item_id = (text or "").strip(), (id or "").strip()
    chosen = choose_operation({"operation": operation, "text": text})
    if chosen in ("save_fact", "store", "forget", "search") and not text:
        raise Refused(f"{chosen} needs text", "give the user's words as text")
    for_text = f" for '{text[:80]}'" if text else ""
    match chosen:
        case "save_fact":
            return _show_saved(await user_memory.save(text, category, mutable=not immutable))
        case "update_fact":
            if not item_id or not text:
                advice = "give the id of the fact, or words that only this fact has, and its new text"
                raise Refused("update_fact needs id and text", advice)
            return _show_saved(await user_memory.update(item_id, text, category))
        case "store":
            return Result(f"Saved memory {_format_item(await user_memory.store(text))}")
        case "forget":
            approved = context.approved.data if context.approved else None
            return Result(f"Deleted {_format_item(await user_memory.forget(*_find_target(item_id, text), approved))}")
        case "search":
            items = await user_memory.search(text, n or MAX_FOUND)
            return _show_items("Facts and conversation summaries", items, f"No facts or summaries found{for_text}.")
        case "long_memory" | "facts":
            is_whole_message = operation is None and text == context.message.strip()
            words = "" if is_whole_message else text
            if chosen == "long_memory":
                items = await user_memory.memories(words, n or MAX_FOUND)
                return _show_items("Conversation summaries", items, f"No conversation summaries found{for_text}.")
            items = await user_memory.facts(words, category, n or MAX_FACTS)
            about = f" about '{words[:80]}'" if words else ""
            return _show_items(f"Facts stated by the user{about}", items, f"No facts found{for_text}.")
    interactions = await user_memory.recent(n or MAX_FOUND)
    if not interactions:
        return Result("There are no earlier messages.", private=False)
    lines = ["Latest messages and answers, newest first:"]
    for turn in interactions:
        lines.append(f"- {turn.started:%Y-%m-%d %H:%M} UTC, user: {_shorten(turn.message)}")
        lines.append(f"  answer: {_shorten(turn.answer) or '(none)'}")
    return Result("\n".join(lines), outside=any(turn.untrusted for turn in interactions))


def _find_target(item_id: str, text: str) -> tuple[str, str]:
    """Return the id, and words that the item must contain, because a model may confuse ids."""
    words = _FORGET.sub("", text, count=1)
    return item_id or words, words


def _show_saved(saved: Any) -> Result:
    item = saved.item
    text = f"Saved {_format_item(item)}"
    if saved.how == "known":
        text = f"Already saved: {_format_item(item)}"
    elif saved.how == "corrected" and item.former:
        former = item.former[-1]
        text = f'Corrected: {_format_item(item)}\nIt was "{former.text}" until {former.until:%Y-%m-%d}.'
    return Result(text, data=item, outside=item.untrusted)


def _show_items(head: str, items: Sequence[Any], empty: str) -> Result:
    if not items:
        return Result(empty, private=False)
    lines = [f"{head}:"]
    for item in items:
        before = "".join(f' (was "{former.text}" until {former.until:%Y-%m-%d})' for former in item.former[-1:])
        lines.append(f"- {_format_item(item)}{before}")
    return Result("\n".join(lines), data=list(items), outside=any(item.untrusted for item in items))


def _format_item(item: Any) -> str:
    kind = "summary by a model" if item.is_summary else item.category or item.kind
    count = f", in {item.count} conversations" if item.count > 1 else ""
    protected = "" if item.mutable else ", protected"
    return f"#{item.id} ({kind}, {item.updated:%Y-%m-%d}{count}{protected}): {item.text}"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_TEXT_SHOWN else f"{line[: MAX_TEXT_SHOWN - 1]}…"
