"""Assisted calls, in whole turns with a model server."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

import httpx
import pytest
from brain_servers import brain_served
from limits import WAIT_SECONDS
from model_servers import FALLBACK, LlamaCppServer, OpenAIServer, Pass, Wait, in_thread, models
from turn_helpers import ask_for, done, failed, registry_of, short

from brain import AssistContext, Refused, specialist
from brain.assist.assistance import CallingState
from brain.assist.router import find_router
from brain.concurrency import NoThread
from brain.events import Event, Limits, SpecialistResult, SpecialistStart
from brain.messages import Attachment, Exchange, History, Text
from brain.runtime.assistant import read_state
from brain.runtime.client_tasks import is_for_client
from brain.runtime.commands import SteerTurn
from brain.runtime.engine import Engine
from brain.runtime.run import Run
from brain.settings import read
from brain.store import turns
from brain.turn_request import Sampling, Tool

HIGH_WATER = "High water in York is at 14:32 and reaches 5.1 m."
PROSE = "High water is at 14:32."
ASKED = "when is high water in York"
QUOTED = f"From tides:\n\n{HIGH_WATER}"
CALLED = [
    {"start": "c1", "name": "tides", "params": {"harbour": "York"}, "by": "assist"},
    {"result": "c1", "text": HIGH_WATER},
]
MARKER = 'SPECIALIST_REQUEST[tides:{"harbour":"York"}]'
SYSTEM = "Answer the question in one or two sentences, only with what the information says."
NOW = datetime(2026, 11, 23, 10, tzinfo=ZoneInfo("Europe/Berlin"))
CLOCK = "Monday 2026-11-23 10:00, Europe/Berlin."
pytestmark = pytest.mark.anyio
LARGE = models("m", owned_by="vllm")
SMALL = models("m", owned_by="vllm", meta={"n_params": 135_000_000})


def find_harbour(message: str, context: AssistContext) -> dict[str, Any] | None:
    text = f"{message} {context.previous}"
    return next(({"harbour": name} for name in ("York", "Atlantis", "Tyre", "Dry") if name in text), None)


def refuse(message: str, context: Any) -> None:
    raise Refused("Write to the harbour master.")


def find_nothing(message: str, context: Any) -> dict[str, Any]:
    return {}


TIDES = ("when is high water in Hull", "tide times for Leith", "low tide at Dover today")
GARAGES = ("is there a free space in the garage", "free parking spaces", "how full is the garage")
UNCHANGED = "I changed nothing. Write to the harbour master."
BERTHS = ("book a berth for my boat", "reserve a mooring for tonight", "I need a berth for my yacht")
LAMPS = ("switch the lamp on", "lamp off please", "turn the lamp in the hall off")
LETTERS = ("show the letter from the bank", "read me the letter", "what is in the letter from the school")


@specialist(read_only=True, private=True, examples=TIDES, assist=find_harbour)
async def tides(harbour: str) -> str:
    """Times of high water."""
    if harbour == "Atlantis":
        raise Refused("No such harbour: Atlantis", advice="Ask for another one.")
    if harbour == "Tyre":
        await asyncio.Event().wait()
    if harbour == "Dry":
        return "No results for Dry."
    return HIGH_WATER


@specialist(read_only=True, examples=GARAGES)
async def garage(level: Literal["north", "south"]) -> str:
    """Free parking spaces."""
    return f"The {level} level has 17 free spaces."


@specialist(read_only=True, examples=BERTHS, assist=refuse)
async def berths() -> str:
    """Berths for boats."""
    return "never"


@specialist(examples=LAMPS, assist=find_nothing)
async def lamp() -> str:
    """Switches the lamp."""
    return "never"


@specialist(read_only=True, approval=lambda params: True, examples=LETTERS, assist=find_nothing)
async def letters() -> str:
    """Letters."""
    return "never"


@specialist(read_only=True, sends=True, examples=("when was Goethe born", "birthday of Mozart", "was Bach born in May"))
async def births(name: str) -> str:
    """Birthdays of famous people."""
    return f"{name} was born in 1749."


WAIT = threading.Event()


def block(message: str, context: AssistContext) -> None:
    WAIT.wait()


@specialist(read_only=True, examples=("any mail in box 7", "mail for box 12", "is box 3 empty"), assist=block)
async def boxes(number: int) -> str:
    """Mail in the boxes."""
    return "never"


ALL = (tides, garage, berths, lamp, letters, births, boxes)


class Chat:
    """An engine whose models are rows of servers."""

    def __init__(self, engine: Engine, server: OpenAIServer) -> None:
        self.engine = engine
        self.server = server

    async def begin(self, message: str = ASKED, conversation_id: str = "c", **options: Any) -> Run:
        return await self.engine.begin(ask_for(message, conversation_id=conversation_id, **options), "native")

    async def read(self, run: Run) -> list[Event]:
        """The events of a turn, after what it teaches is stored."""
        events = await read_events(run)
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "assist"))
        return events

    async def say(self, message: str = ASKED, **options: Any) -> list[Any]:
        return short(await self.read(await self.begin(message, **options)))

    async def ask(self, *messages: str) -> list[str]:
        """Who called a specialist in each turn."""
        found = []
        for n, message in enumerate(messages):
            events = await self.read(await self.begin(message, f"c{n}"))
            found.append("".join(event.by for event in events if isinstance(event, SpecialistStart)))
        return found

    @property
    def prompts(self) -> list[list[str]]:
        return [[message["content"] for message in body["messages"]] for body in self.server.generated]


async def read_events(run: Run) -> list[Event]:
    return [event async for batch in run.events() for event in batch]


async def wait_for_router(engine: Engine) -> None:
    """Wait for the router, which the first turn of a model does not do, and for threads that earlier tests left."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            with suppress(NoThread):
                await find_router(tuple(engine.registry.usable()))
                return
            await asyncio.sleep(0)


@asynccontextmanager
async def chat_with(server: OpenAIServer, *others: OpenAIServer, **settings: str) -> AsyncIterator[Chat]:
    rows: dict[str, dict[str, Any]] = {"m": {"is": "openai:m", "url": server.url}}
    if "row" in settings:
        rows["m"]["assist"] = settings.pop("row")
    for n, other in enumerate(others):
        rows[f"other{n}"] = {"is": "openai:m", "url": other.url}
        rows["m"]["fallback"] = [*rows["m"].get("fallback", []), f"other{n}"]
    values = {"MODELS": json.dumps(rows), "MODEL": "m", "STORE": "memory:", "ASSIST": "always", **settings}
    engine = Engine(read({f"BRAIN_{key}": value for key, value in values.items()}), registry_of(*ALL))
    await engine.open()
    await wait_for_router(engine)
    try:
        yield Chat(engine, server)
    finally:
        await engine.close()


@asynccontextmanager
async def chat(*passes: Pass, answers: Any = SMALL, **settings: str) -> AsyncIterator[Chat]:
    async with (
        OpenAIServer(*passes, answers=answers) as server,
        chat_with(server, **settings) as one,
    ):
        yield one


async def test_the_model_reads_the_result_before_the_question() -> None:
    async with chat(*[Pass([PROSE])] * 4) as one:
        assert await one.say() == [*CALLED, PROSE, done(PROSE, 1)]
        await one.say(f"Hello! {'x' * 999}", now=NOW)
        await one.say("Hello! What day is today?", now=NOW)
        await one.say(now=NOW)
        first, second, third, fourth = one.prompts
        assert first == [SYSTEM, f"Information:\n{HIGH_WATER}\n\nQuestion: {ASKED}"] == fourth
        assert second[1:] == [ASKED, PROSE, f"Hello! {'x' * 999}"]
        assert third[1:3] == [ASKED, PROSE]
        assert len(third[3]) <= 300
        assert third[-1] == f"Information:\n{CLOCK}\n\nQuestion: Hello! What day is today?"
        assert "SPECIALIST" not in json.dumps(one.server.generated)


@pytest.mark.parametrize(
    ("message", "passes", "expected"),
    [
        (ASKED, [Pass([f"{PROSE} {PROSE}"])], [*CALLED, PROSE, done(PROSE, 1)]),
        (ASKED, [Pass(["The moon is made ", "of cheese."])], [*CALLED, QUOTED, done(QUOTED, 1)]),
        (ASKED, [Pass([])], [*CALLED, QUOTED, done(QUOTED, 1)]),
        (ASKED, [Pass([PROSE], finish="length")], [*CALLED, PROSE, done(PROSE, 1)]),
        (
            "when is high water in Atlantis",
            [],
            [
                {"start": "c1", "name": "tides", "params": {"harbour": "Atlantis"}, "by": "assist"},
                {"error": "c1", "name": "tides", "code": "refused"},
                "tides failed: No such harbour: Atlantis.",
                done("tides failed: No such harbour: Atlantis.", 1, 0),
            ],
        ),
        (BERTHS[0], [], [{"notice": "assist"}, UNCHANGED, done(UNCHANGED, passes=0)]),
        # a result that says that nothing was found
        (
            "when is high water in Dry",
            [],
            [
                {"start": "c1", "name": "tides", "params": {"harbour": "Dry"}, "by": "assist"},
                {"result": "c1", "text": "No results for Dry."},
                "From tides:\n\nNo results for Dry.",
                done("From tides:\n\nNo results for Dry.", 1, 0),
            ],
        ),
        # a call of the model itself, which nobody told it about
        (
            "Hello!",
            [Pass([MARKER]), Pass([PROSE])],
            [
                {"start": "c1", "name": "tides", "params": {"harbour": "York"}},
                *CALLED[1:],
                PROSE,
                done(PROSE, 1, 2),
            ],
        ),
        # the `assist` function returns no parameters
        ("when is high water in Hull", [Pass(["I do not know."])], ["I do not know.", done("I do not know.")]),
        # parameters that the model writes
        (
            GARAGES[0],
            [Pass(['{"level": ', '"south"}']), Pass(["It has 17 spaces."])],
            [
                {"start": "c1", "name": "garage", "params": {"level": "south"}, "by": "assist"},
                {"result": "c1", "text": "The south level has 17 free spaces."},
                "It has 17 spaces.",
                done("It has 17 spaces.", 1, 2),
            ],
        ),
        *(
            (GARAGES[0], [wrong, Pass(["I do not know."])], ["I do not know.", done("I do not know.", passes=2)])
            for wrong in (
                Pass(['{"level": "east"}']),
                Pass(["[1, 2]"]),
                Pass([]),
                Pass(status=400, answer={"error": {"message": "response_format is not supported"}}),
            )
        ),
    ],
)
async def test_an_assisted_turn(message: str, passes: Sequence[Pass], expected: list[Any]) -> None:
    async with chat(*passes) as one:
        assert await one.say(message) == expected
        assert len(one.server.generated) == len(passes)
        if message == GARAGES[0]:
            schema = one.server.generated[0]["response_format"]["json_schema"]["schema"]
            assert (schema["required"], schema["properties"]["level"]["enum"]) == (["level"], ["north", "south"])


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("Hello!", {}),
        (LAMPS[0], {}),  # writes
        (LETTERS[0], {}),  # needs approval
        (ASKED, {"specialists": ["garage"]}),
        (ASKED, {"limits": Limits(calls=0)}),
        (ASKED, {"limits": Limits(calls_per_specialist=0)}),
        (ASKED, {"tools": (Tool("find"),)}),
        (ASKED, {"sampling": Sampling(format={"type": "object"})}),
        (ASKED, {"strategy": "reason"}),
        (ASKED, {"assist": "off"}),
    ],
)
async def test_no_assisted_call(message: str, options: dict[str, Any]) -> None:
    async with chat(*[Pass(["<deliverable>Well.</deliverable>"])] * 9) as one:
        events = await one.say(message, **options)
        assert events[-1]["done"] in ("complete", "deliverable")
        assert not [event for event in events if "start" in event or "error" in event]


@pytest.mark.parametrize(
    ("setting", "row", "request_", "is_assisted"),
    [
        ("always", None, None, True),
        ("off", None, None, False),
        ("off", "always", None, True),
        ("always", "off", None, False),
        ("off", "off", "always", True),
        ("always", "always", "off", False),
        ("auto", None, None, False),
    ],
)
async def test_the_request_wins_over_the_row_and_the_row_over_the_setting(
    setting: str, row: str | None, request_: Any, is_assisted: bool
) -> None:
    async with chat(Pass([PROSE]), answers=LARGE, ASSIST=setting, **({} if row is None else {"row": row})) as one:
        assert await one.say(assist=request_) == [*(CALLED if is_assisted else []), PROSE, done(PROSE, is_assisted)]


@pytest.mark.parametrize("size", [None, 135_000_000])
async def test_a_model_that_calls_sees_no_difference(size: int | None) -> None:
    seen = []
    answers = models("m", owned_by="llamacpp", **({} if size is None else {"meta": {"n_params": size}}))
    for mode in ("off", "auto"):
        passes = [Pass(["Let me see. ", MARKER]), Pass([PROSE])] * 5
        async with LlamaCppServer(*passes, answers=answers) as server, chat_with(server, ASSIST=mode) as one:
            events = [await one.say() for _ in range(5)]
            seen.append((events, server.generated))
    assert seen[0] == seen[1]
    assert len(seen[0][1]) == 10


async def test_a_large_assisted_model_reads_everything_but_the_instructions_for_calls() -> None:
    earlier = f"Hello! {'x' * 999}"
    async with chat(*[Pass([PROSE])] * 3, answers=LARGE, SYSTEM="Be kind.") as one:
        await one.say(earlier)
        assert await one.say() == [*CALLED, PROSE, done(PROSE, 1)]
        system, *rest = one.prompts[-1]
        assert system.endswith("Be kind.")
        assert "SPECIALIST" not in system
        assert rest == [earlier, PROSE, f"Information:\n{HIGH_WATER}\n\nQuestion: {ASKED}"]
        # it answers a question whose call failed
        assert (await one.say("when is high water in Atlantis"))[-2:] == [PROSE, done(PROSE, 1)]
        assert "tides failed: No such harbour: Atlantis." in one.prompts[-1][-1]


async def test_a_small_model_reads_a_file_of_an_earlier_message() -> None:
    file = Attachment(1, "shops.txt", "text/plain", b"The shop in Bonn closes at 18:30.")
    async with chat(*[Pass(["At 18:30."])] * 2) as one:
        await one.say("Hello!", attachments=(file,))
        await one.say("Fine.")
        assert one.prompts[-1][-1] == "Information:\nThe shop in Bonn closes at 18:30.\n\nQuestion: Fine."


async def test_a_follow_up_of_a_follow_up_keeps_the_subject() -> None:
    async with chat(*[Pass([PROSE])] * 3) as one:
        for message in (ASKED, "and on Friday?", "and on Saturday?"):
            assert (await one.say(message))[0] == CALLED[0]


async def test_what_memory_knows_about_the_user_is_not_looked_up_elsewhere() -> None:
    async with chat(*[Pass(["On 3 June 2015."])] * 2) as one:
        assert "start" in (await one.say("When was Goethe born?"))[0]
        await one.engine.memory.edits.write("ada", "My daughter Mia was born on 3 June 2015.", None, mutable=True)
        events = await one.say("When was my daughter born?", conversation_id="d")
        assert [event for event in events if isinstance(event, dict) and "start" in event] == []
        assert "Mia" in one.prompts[-1][-1]


async def test_a_function_that_blocks_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.assistant.PARAMS_SECONDS", 0.01)
    try:
        async with chat(Pass(["I do not know."])) as one:
            assert await one.say("any mail in box 4") == ["I do not know.", done("I do not know.")]
    finally:
        WAIT.set()


MISSED = [Pass(["I do not know."])] * 3
SAY = [ASKED, "when is low tide in York", "tide times for York"]


@pytest.mark.parametrize(
    "text", ["SPECIALIST_REQUEST[tides: harbour York", 'SPECIALIST_REQUEST[weather:{"city":"York"}]', "I do not know."]
)
async def test_a_small_model_is_assisted_after_one_answer_without_a_call(text: str) -> None:
    async with chat(*[Pass([text]), Pass(["I do not know."])] * 2, Pass([PROSE]), ASSIST="auto") as one:
        await one.say()
        assert (await one.say())[0] == CALLED[0]


async def test_processes_learn_from_each_other(store_setting: str) -> None:
    async with (
        OpenAIServer(*MISSED, Pass([PROSE]), answers=LARGE) as server,
        chat_with(server, ASSIST="auto", STORE=store_setting) as first,
        chat_with(server, ASSIST="auto", STORE=store_setting) as second,
    ):
        assert await first.ask(*SAY[:2]) == ["", ""]
        assert await second.ask(SAY[2]) == [""]
        assert await second.ask(ASKED) == ["assist"]


async def test_a_model_that_never_calls_is_assisted_and_probed(store_setting: str) -> None:
    asked = [Pass([MARKER]), Pass([PROSE])]
    server = OpenAIServer(
        *MISSED,
        *[Pass([PROSE])] * 19,
        *MISSED[:1],
        *[Pass([PROSE])] * 39,
        *asked,
        *asked,
        answers=LARGE,
    )
    async with server:
        async with chat_with(server, ASSIST="auto", STORE=store_setting) as one:
            assert await one.ask(*SAY) == ["", "", ""]
            assert await one.ask(*SAY) == ["assist"] * 3
        async with chat_with(server, ASSIST="auto", STORE=store_setting) as one:
            assert await one.ask(*[ASKED] * 16) == ["assist"] * 16
            # a probe: the model does not call, and Brain adds the result
            events = await one.say()
            assert events == ["I do not know.", *CALLED, f"\n\n{QUOTED}", done(f"I do not know.\n\n{QUOTED}", 1)]
            assert "SPECIALIST_REQUEST[" in one.prompts[-1][0]
            (exchange,) = (await one.engine.store.read(turns.history, "ada", "c", 1)).exchanges
            assert [type(part).__name__ for part in exchange.parts] == ["Text", "Call", "Text"]
            assert await one.ask(*[ASKED] * 40) == ["assist"] * 39 + ["model"]
            assert await one.ask(ASKED) == ["model"]


async def test_a_call_that_fails_and_an_answer_of_another_model_are_no_misses() -> None:
    asked = [Pass([MARKER.replace("York", "Atlantis")]), Pass(["I do not know."])]
    async with chat(*asked * 4, answers=LARGE, ASSIST="auto") as one:
        assert await one.ask(*["when is high water in Atlantis"] * 4) == ["model"] * 4
    broken = OpenAIServer(*[Pass(status=500, answer={})] * 9, answers=LARGE)
    other = OpenAIServer(*MISSED * 2, answers=LARGE)
    async with broken, other, chat_with(broken, other, ASSIST="auto") as one:
        assert await one.ask(*SAY, ASKED) == [""] * 4


async def test_steering_and_stopping() -> None:
    async with chat(Pass([PROSE]), Pass(["It is cold."])) as one:
        run = await one.begin()
        events: list[Event] = []
        async for batch in run.events():
            events += batch
            if any(isinstance(event, SpecialistResult) for event in batch):
                run.apply(SteerTurn("And the water?"))
        assert [event for event in short(events) if "steered" in event] == [{"steered": "And the water?"}]
        assert "And the water?" in json.dumps(one.prompts[-1])
        assert HIGH_WATER in json.dumps(one.prompts[-1])
        run = await one.begin("when is high water in Tyre")
        async for batch in run.events():
            if any(isinstance(event, SpecialistStart) for event in batch):
                run.stop("cancelled")
            events = [*batch]
        assert short(events)[-1]["done"] == "cancelled"


@pytest.mark.parametrize(("message", "result"), [(ASKED, CALLED[1]), ("when is high water in Tyre", None)])
async def test_the_result_is_the_answer_when_the_time_is_over(message: str, result: Any) -> None:
    async with chat(Pass([Wait(3600)])) as one:
        run = await one.begin(message)
        events: list[Event] = []
        async for batch in run.events():
            events += batch
            if any(isinstance(event, SpecialistStart if result is None else SpecialistResult) for event in batch):
                run.stop("deadline")
        found = short(events)
    assert found[1] == (result or failed("tides", "deadline"))
    assert (found[-1]["done"], found[-1]["text"]) == ("deadline", "".join(found[2:-1]))
    assert result is None or found[2] == QUOTED


async def test_another_model_takes_over_with_the_result() -> None:
    broken = Pass(status=500, answer={"error": {"message": "broken"}})
    async with (
        OpenAIServer(*[broken] * 9, answers=SMALL) as first,
        OpenAIServer(Pass([PROSE]), answers=SMALL) as second,
        chat_with(first, second) as one,
    ):
        events = await one.say()
        assert [*events[:2], *events[-2:]] == [*CALLED, PROSE, done(PROSE, 1, 2)]
        assert HIGH_WATER in json.dumps(second.generated)


async def test_a_base_model_continues_plain_text_from_the_first_message_on() -> None:
    passes = [Pass([f" {PROSE}"]), Pass([" Hello."])]
    async with LlamaCppServer(*passes, template=FALLBACK) as server, chat_with(server, ASSIST="auto") as one:
        assert await one.say() == [*CALLED, PROSE, done(PROSE, 1)]
        assert await one.say("Hello!") == ["Hello.", done("Hello.")]
        assert [body["prompt"] for body in server.generated] == [
            f"Information:\n{HIGH_WATER}\n\nQuestion: {ASKED}\nAnswer:",
            f"Question: {ASKED}\nAnswer: {PROSE}\n\nQuestion: Hello!\nAnswer:",
        ]


@pytest.mark.parametrize("shown", ["hidden", "block"])
@pytest.mark.parametrize("text", [PROSE, "The moon is made of cheese."])
def test_the_openai_api_shows_the_result_if_the_prose_was_dropped(shown: str, text: str) -> None:
    with in_thread(OpenAIServer(*[Pass([text])] * 2, answers=SMALL)) as server:
        rows = json.dumps({"m": {"is": "openai:m", "url": server.url}})
        values = {"MODELS": rows, "MODEL": "m", "STORE": "memory:", "ASSIST": "always", "SHOW_RESULTS": shown}
        with brain_served(registry_of(*ALL), **values) as brain:
            body = {"model": "m", "messages": [{"role": "user", "content": ASKED}]}
            url = f"{brain.url}/v1/chat/completions"
            whole = httpx.post(url, json=body, timeout=WAIT_SECONDS).json()["choices"][0]["message"]["content"]
            streamed = httpx.post(url, json={**body, "stream": True}, timeout=WAIT_SECONDS).text
    pieces = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    joined = "".join(one["choices"][0]["delta"].get("content") or "" for one in pieces if one["choices"])
    assert joined == whole
    assert whole.endswith(PROSE if text == PROSE else QUOTED)
    assert (whole.count(HIGH_WATER), whole.count("14:32")) == {
        ("hidden", True): (0, 1), ("block", True): (1, 2), ("hidden", False): (1, 1), ("block", False): (2, 2),
    }[shown, text == PROSE]  # fmt: skip


ASK = "Do you want this: when was Bach born?"
BORN = [
    {"start": "c1", "name": "births", "params": {"name": "Bach"}, "by": "assist"},
    {"result": "c1", "text": "Bach was born in 1749."},
]


@pytest.mark.parametrize("answers", [SMALL, LARGE], ids=["small", "large"])
async def test_a_call_that_is_not_certain_waits_for_a_yes(answers: Any) -> None:
    async with chat(*[Pass(["Born in 1749."])] * 6, answers=answers) as one:
        unclear = "when was Bach or Telemann born"
        assert await one.say(unclear) == [ASK, done(ASK, passes=0)]
        assert await one.say("Yes, please!") == [*BORN, "Born in 1749.", done("Born in 1749.", 1)]
        assert one.prompts[-1][-1] == f"Information:\nBach was born in 1749.\n\nQuestion: {unclear}"
        # nothing was asked in the answer before
        assert "start" not in str(await one.say("yes"))
        # the user declines, or an answer does not ask this
        assert await one.say(unclear, conversation_id="d") == [ASK, done(ASK, passes=0)]
        assert "start" not in str(await one.say("no", conversation_id="d"))
        assert "start" not in str(await one.say("yes", conversation_id="d"))
        with_history = History("e", [Exchange(unclear, [Text("Yes or no?", 1)], message=unclear)])
        run = await one.engine.begin(ask_for("yes"), "openai", history=with_history)
        assert "start" not in str(short(await one.read(run)))


async def test_a_model_that_may_call_by_itself_is_not_asked_for_it() -> None:
    async with chat(Pass(["I do not know."]), answers=LARGE, ASSIST="auto") as one:
        events = await one.say("when was Bach or Telemann born")
        assert events == ["I do not know.", done("I do not know.")]


HISTORY = f"### Chat History:\n<chat_history>\nUSER: {ASKED}\nASSISTANT: {PROSE}\n</chat_history>"
CLIENT_TASKS = [
    *(
        f"### Task:\n{instruction}\n### Guidelines:\n- Be brief.\n{HISTORY}"
        for instruction in (
            "Generate a concise, 3-5 word title with an emoji summarizing the chat history.",
            "Erfinde einen Titel.",  # a template that the operator of the client changed
        )
    ),
    f"Your task is to reflect the speaker's likely facial expression.\n\nMessage: ```{ASKED}```",
    f'You have been provided with a set of responses from various models to the latest user query: "{ASKED}"',
    "Provide a concise, 5-word-or-less title for the conversation, using title case conventions. Only return the "
    f"title itself.\n\nConversation:\nUser: {ASKED}",
    "Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A concise title in the "
    f"detected language (5 words or less, no punctuation or quotation)\n\nUser: {ASKED}",
    "Please generate a concise title (max 40 characters) for a conversation that starts with:\n"
    f"User: {ASKED}\nAssistant: {PROSE}\n\nTitle:",
]


@pytest.mark.parametrize("mode", ["always", "auto"])
async def test_a_client_task_gets_no_specialists_no_memory_and_no_notes(mode: str) -> None:
    async with chat(*[Pass(["Tides"])] * (len(CLIENT_TASKS) + 2), answers=SMALL, ASSIST=mode) as one:
        await one.engine.memory.edits.write("ada", "I moor my boat in York.", None, mutable=True)
        for n, text in enumerate(CLIENT_TASKS):
            events = await one.say(text, conversation_id=f"t{n}", user="ada", memory=True, now=NOW)
            assert events == ["Tides", done("Tides")], text
            assert one.prompts[-1][-1] == text
            assert "SPECIALIST_REQUEST" not in str(one.prompts[-1])
        system = "Available Tools: []\n\nYour task is to choose and return the correct tool(s) from the list."
        assert await one.say(ASKED, conversation_id="u", system=system) == ["Tides", done("Tides")]
        (entry,) = one.engine.models
        assert await read_state(one.engine.store, entry) == CallingState()


@pytest.mark.parametrize(
    "message",
    [
        f"### Task:\nRespond to the user query using the provided context.\n<user_query>{ASKED}</user_query>",
        f"{ASKED}? Generate a concise, 3-5 word title, too.",
    ],
)
async def test_what_a_person_asks_is_no_client_task(message: str) -> None:
    assert not is_for_client(ask_for(message))
