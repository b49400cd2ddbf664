"""What a model writes in the format of its template: calls, reasoning without an opening tag, ends of messages."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from turn_helpers import Player, add, ask_for, done, echo, failed, read, registry_of, short, succeeded, turn_of

from brain.events import Thinking
from brain.markers.tags import convert_texts
from brain.messages import Annotation, Call, Finish, NativeCall
from brain.plugins.specialist import specialist
from brain.strategies.step import Step
from brain.turn.turn import Turn
from brain.turn_request import Tool

R1 = "{% if add_generation_prompt %}<｜Assistant｜><think>\n{% endif %}"
QWEN = """\
<tool_call>
<function=add>
<parameter=a>
1
</parameter>
<parameter=b>
2
</parameter>
</function>
</tool_call>"""
GLM = """\
<tool_call>add
<arg_key>a</arg_key>
<arg_value>1</arg_value>
<arg_key>b</arg_key>
<arg_value>2</arg_value>
</tool_call>"""
HARMONY = '<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a":1,"b":2}<|call|>'
MINIMAX = """\
<minimax:tool_call>
<invoke name="add">
<parameter name="a">1</parameter>
<parameter name="b">2</parameter>
</invoke>
</minimax:tool_call>"""
DSML = re.sub("<(/?)", r"<\1｜DSML｜", MINIMAX.replace("minimax:tool_call", "function_calls"))
DSML = re.sub('(parameter name=".")>', r'\1 string="false">', DSML)
KIMI = (
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1, "b": 2}'
    "<|tool_call_end|><|tool_calls_section_end|>"
)
DEEPSEEK = (
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{"a": 1, "b": 2}\n```'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>"
)
REASONING = {"notice": "reasoning"}


def run(*passes: Sequence[Any], template: str = "", **request: Any) -> tuple[list[Any], Turn, Player]:
    model = Player(*passes, template=template)
    turn = turn_of(model, registry_of(echo, add, typed), ask_for(**request))
    return short(asyncio.run(read(turn))), turn, model


@specialist
async def typed(
    number: float | None = None, flag: bool = False, words: list[str] | None = None, text: str = "",
    either: int | str = 0, level: Literal[1, 2] = 1, named: Literal["1", "2"] = "1",
) -> str:  # fmt: skip
    """Shows its parameters."""
    return repr((number, flag, words, text, either, level, named))


@pytest.mark.parametrize(
    "written",
    [
        QWEN,
        GLM,
        '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>',
        '<function=add>{"a": 1, "b": 2}</function>',
        '<|python_tag|>{"name": "add", "parameters": {"a": 1, "b": 2}}<|eom_id|>',
        "<|python_tag|>add.call(a=1, b=2)<|eom_id|>",
        "<|python_start|>[add(a=1, b=2)]<|python_end|><|eom|>",
        '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1, "b": 2}}]</s>',
        '[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}</s>',
        f"<|channel|>analysis<|message|>Hm<|end|>{HARMONY}",
        '<invoke name="add"><parameter name="a">1</parameter>\n<parameter name="b">2</parameter></invoke>',
        MINIMAX,
        MINIMAX.replace("minimax:tool_call", "function_calls"),
        DSML,
        KIMI,
        KIMI.replace("<|tool_calls_section_begin|>", "").replace("functions.", ""),
        DEEPSEEK,
        DEEPSEEK.replace("function<｜tool▁sep｜>add\n```json\n", "add<｜tool▁sep｜>").replace("\n```", ""),
        '<function_call>/* both */ {"name": "add", "args": {"a": 1, "b": 2}} // done\n</function_call>',
        '<tool_call> # both\n```json\n// {}\n{"name": "add", "args": {"a": 1, "b": 2}} /* done */\n``` </tool_call>',
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_call_in_the_format_of_a_model_runs(written: str, size: int) -> None:
    chunks = [written[at : at + size] for at in range(0, len(written), size)]
    events, turn, model = run(chunks, "Done.")
    thinking = [{"thinking": "Hm"}] if "analysis" in written else []
    assert events == [*thinking, *succeeded("add", "3", a=1, b=2), "Done.", done("Done.", 1, 2)]
    call = next(part for part in turn.state.exchange.parts if isinstance(part, Call))
    assert call.marker in written
    assert model.requests[1][-1].content.startswith(call.marker)  # as the model wrote it


def test_a_list_of_calls_runs_each() -> None:
    calls = '[TOOL_CALLS][{"name":"add","arguments":{"a":1,"b":2}},{"name":"echo","arguments":{"text":"x"}}]'
    events, _, model = run([*calls], "Done.")
    assert events[-2:] == ["Done.", done("Done.", 2, 2)]
    assert [event["name"] for event in events if isinstance(event, dict) and "start" in event] == ["add", "echo"]
    assert model.requests[1][-1].content.count("[TOOL_CALLS]") == 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"number": "2.5", "flag": "true", "words": '["a", "b"]', "text": "5"},
            (2.5, True, ["a", "b"], "5", 0, 1, "1"),
        ),
        ({"number": " 3\n", "flag": "True", "text": '{"a": 1}'}, (3.0, True, None, '{"a": 1}', 0, 1, "1")),
        ({"number": "null", "either": "7", "level": "2", "named": "2"}, (None, False, None, "", "7", 2, "2")),
        ({"number": "many"}, "invalid_params"),
        ({"flag": "yes"}, "invalid_params"),
        ({"words": "a, b"}, "invalid_params"),
        ({"number": "NaN"}, "invalid_params"),
        ({"other": "1"}, "invalid_params"),
    ],
)
def test_texts_become_the_types_of_the_specialist(values: dict[str, str], expected: Any) -> None:
    for pair in ("<parameter={}>\n{}\n</parameter>", "<arg_key>{}</arg_key><arg_value>{}</arg_value>"):
        pairs = "".join(pair.format(*item) for item in values.items())
        name = "<function=typed>{}</function>" if "=" in pair else "typed{}"
        events, _, _ = run([f"<tool_call>{name.format(pairs)}</tool_call>"], "Done.")
        event = events[1] if isinstance(expected, tuple) else events[0]
        assert event.get("text", event.get("code")) == (repr(expected) if isinstance(expected, tuple) else expected)


def test_texts_become_the_types_of_a_client_tool() -> None:
    schema = {"type": "object", "properties": {"days": {"$ref": "#/$defs/Days"}, "city": {"type": "string"}},
              "$defs": {"Days": {"type": "integer"}}}  # fmt: skip
    call = "<function=weather><parameter=days>3</parameter><parameter=city>3</parameter></function>"
    _, turn, _ = run([call], tools=(Tool("weather", "", schema),))
    (made,) = [part for part in turn.state.exchange.parts if isinstance(part, Call)]
    assert made.params == {"days": 3, "city": "3"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Days"}]}, 3),
        ({"oneOf": [{"enum": ["a"]}, {"type": "integer"}]}, "3"),
        ({"type": ["integer", "string"]}, "3"),
        ({"enum": [1, 3]}, 3),
        ({"const": "3"}, "3"),
        ({"$ref": "#/$defs/Loop"}, 3),  # each of its references is followed once
        ({"$ref": "#/$defs/Other"}, "3"),
        ({"anyOf": 5, "oneOf": "x", "enum": 7, "type": 8}, "3"),
        (None, "3"),
    ],
)
def test_schemas_that_clients_send(schema: Any, expected: Any) -> None:
    loop = {"anyOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Days"}] * 500}
    root = {"properties": {"days": schema}, "$defs": {"Days": {"type": "integer"}, "Loop": loop}}
    assert convert_texts({"days": "3"}, root) == {"days": expected}


def test_a_call_that_cannot_be_read_is_malformed_and_never_shown() -> None:
    for written in ("<tool_call><function=add><parameter=a>1</function></tool_call>", "[TOOL_CALLS]add[ARGS]{1}",
                    "<tool_call>add<arg_key>a</arg_key></tool_call>", HARMONY.replace("{", ""),
                    KIMI.replace("{", ""), DEEPSEEK.replace("}", ""), MINIMAX.replace("</parameter>", "")):  # fmt: skip
        start = "<|channel|>final<|message|>" if "channel" in written else ""
        events, _, _ = run([*(start + written)], "Done.")
        assert events == [failed("add", "malformed"), "Done.", done("Done.", 1, 2)], written


def test_the_format_of_another_template_is_text() -> None:
    for written in (QWEN, "[TOOL_CALLS]add[ARGS]{}", "Hi.<|im_end|>"):
        assert run([*written], template="{{ messages }}<|eot_id|>")[0] == [written, done(written)]
        assert run([*written], template="<|im_start|><|im_end|>[TOOL_CALLS]<function=")[0] != [written, done(written)]


@pytest.mark.parametrize(
    "end",
    [
        *("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "</s>", "<|end|>", "<｜end▁of▁sentence｜>", "<|return|>"),
        *("[/INST]", "<|endofprompt|>", "[e~[", "<|role_end|>", "<seed:eos>", "<|eos|>", "<|call|>"),
        *("<|flush|>", "<|END_RESPONSE|>", "<end_of_utterance>", "<|endofturn|>", "<|stop|>", "<|turn_end|>"),
        *("<|message_sep|>", "<|endofresponse|>", "<end_of_sentence>", "<|end_of_sentence|>", "<SPECIAL_12>", "<_end>"),
        *("<｜hy_place▁holder▁no▁2｜>", "[UNUSED_TOKEN_145]"),
    ],
)
@pytest.mark.parametrize("after", ["", "\n<|im_start|>user\nAnd you?<|im_end|>", "\nSPECIALIST_REQUEST[echo]"])
def test_an_answer_ends_with_the_message_of_its_model(end: str, after: str) -> None:
    events, turn, _ = run([*f"Hello.{end}{after}"])
    assert (events, turn.state.exchange.answer) == (["Hello.", done("Hello.")], "Hello.")


@pytest.mark.parametrize("end", ["<|end_of_turn|>", "<|separator|>", "<|EOT|>", "</longcat_s>", "[unused10]"])
def test_some_tokens_end_only_messages_of_their_own_template(end: str) -> None:
    assert run([*f"Hello.{end}"], template=f"{{{{ messages }}}}{end}")[0] == ["Hello.", done("Hello.")]
    assert run([*f"A:\n{end}\nB"])[1].state.exchange.answer == f"A:\n{end}\nB"


@pytest.mark.parametrize("size", [1, 5, 100])
def test_reasoning_is_known_from_the_template(size: int) -> None:
    text = "Shall I SPECIALIST_REQUEST[echo]?\n</think>\n\nHello."
    events, turn, _ = run([text[at : at + size] for at in range(0, len(text), size)], template=R1)
    assert events == [{"thinking": "Shall I SPECIALIST_REQUEST[echo]?\n"}, "\n\nHello.", done("\n\nHello.")]
    assert [one.text for one in turn.state.exchange.annotations] == ["Shall I SPECIALIST_REQUEST[echo]?\n"]


def test_reasoning_in_a_pass_that_continues_the_answer() -> None:
    events, turn, _ = run(["</think>Look: ", *"SPECIALIST_REQUEST[echo]"], ["Hm", "</think>", "Done."], template=R1)
    assert events == ["Look: ", *succeeded("echo", "nothing"), "Hm", REASONING, "Done.", done("Look: Done.", 1, 2)]
    assert turn.state.exchange.answer == "Look: Done."


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([Thinking("Hm"), "Hello."], [{"thinking": "Hm"}, "Hello.", done("Hello.")]),  # the server separates them
        (["Hello."], [{"thinking": "Hello."}, "Hello.", done("Hello.")]),  # it does not reason
        (["Hm", Finish("length")], [{"thinking": "Hm"}]),
    ],
)
def test_a_template_that_opens_reasoning_may_be_wrong(chunks: list[Any], expected: list[Any]) -> None:
    assert run(chunks, template=R1)[0][: len(expected)] == expected


def test_a_native_call_after_reasoning_that_never_ended() -> None:
    chunks = ["Hm", NativeCall("add", '{"a":1,"b":2}')]
    events, _, _ = run(chunks, "</think>Done.", template=R1)
    assert events[:3] == [{"thinking": "Hm"}, *succeeded("add", "3", a=1, b=2)]


@pytest.mark.parametrize("size", [1, 5, 100])
def test_reasoning_that_shows_late_is_no_part_of_the_answer(size: int) -> None:
    text = "Let me think.\n</think>\n\nHello."
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    events, turn, _ = run(chunks)
    assert events == ["Let me think.\n", REASONING, "\n\nHello.", done("\n\nHello.")]
    assert turn.state.exchange.answer == "\n\nHello."
    assert turn.state.exchange.annotations == (Annotation("Let me think.\n", 0, 0),)
    events, turn, _ = run(["Look: SPECIALIST_REQUEST[echo]"], chunks)
    assert (events[-1], events.count(REASONING)) == (done("Look: \n\nHello.", 1, 2), 1)
    assert "Let me think" not in turn.state.exchange.answer


def test_a_step_is_not_read_from_reasoning() -> None:
    model = Player("I could analyze.</think>\necho(text=x)", "ready()", "Hello.")
    turn = turn_of(model, registry_of(echo), ask_for(strategy="step"), strategy=Step)
    events = short(asyncio.run(read(turn)))
    assert [event["params"] for event in events if isinstance(event, dict) and "start" in event] == [{"text": "x"}]
