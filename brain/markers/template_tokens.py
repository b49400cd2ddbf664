"""Control tokens of chat templates, by family, and the selection for one model.

A tokenizer turns a control token into one number wherever it appears, so untrusted text with such a token can end a
message and start another one in a different role. `neutralize` removes the effect from every text that neither the
operator nor the model wrote.

Sources: templates and vocabulary code of llama.cpp (`src/llama-chat.cpp`, `models/templates`), vLLM
(`examples/*.jinja`) and Ollama (`template/`), and the tokenizers of the models that they serve.

`<|name|>`, `<|name>`, `<name|>` and `[|name|]` are not listed. They are control tokens in many families and look like
nothing else, so they always count. This covers ChatML and Qwen, Llama 3 and 4, Phi, Command R, Granite, GLM, Kimi,
Gemma 4, GPT-OSS, EXAONE, Hunyuan and DeepSeek, whose bars are full-width.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "sentencepiece": ("<s>", "</s>", "<unk>", "<pad>"),
    "llama 2": ("[INST]", "[/INST]", "<SYS>", "</SYS>", "<s>", "</s>"),
    "code llama": ("<EOT>", "<step>", "<s>", "</s>"),
    "mistral": (
        *("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[MODEL_SETTINGS]", "[/MODEL_SETTINGS]"),
        *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_CONTENT]"),
        *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[THINK]", "[/THINK]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]"),
        *("[IMG]", "[IMG_BREAK]", "[IMG_END]", "[AUDIO]", "[BEGIN_AUDIO]", "[TRANSCRIBE]", "[control_#]"),
        *("<s>", "</s>"),
    ),
    "gemma": (
        *("<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<pad>", "<unk>", "<unused#>"),
        *("<start_of_image>", "<end_of_image>", "<image_soft_token>", "<start_of_audio>", "<end_of_audio>"),
        *("<start_function_call>", "<end_function_call>", "<start_function_response>", "<end_function_response>"),
        *("<start_function_declaration>", "<end_function_declaration>", "<escape>"),
    ),
    "command r": ("<BOS_TOKEN>", "<EOS_TOKEN>", "<EOP_TOKEN>", "<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>"),
    "chatglm": (
        *("[gMASK]", "[sMASK]", "[MASK]", "<sop>", "<eop>", "<eot>"),
        *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    "baichuan": ("<reserved_#>", "<s>", "</s>"),
    "internlm": ("<eoh>", "<eoa>", "<eosys>", "<eop>", "<TOKENS_UNUSED_#>", "[UNUSED_TOKEN_#]", "<s>", "</s>"),
    "minicpm": ("<用户>", "<AI>", "<s>", "</s>"),
    "minimax": (
        *("]~b]", "]~!b[", "[e~[", "<minimax:tool_call>", "</minimax:tool_call>"),
        *("<beginning_of_sentence>", "<end_of_sentence>"),
    ),
    "telechat": ("<_start>", "<_end>", "<_system>", "<_user>", "<_bot>", "<_pad>"),
    "seed": (
        *("<seed:bos>", "<seed:eos>", "<seed:pad>", "<seed:think>", "</seed:think>"),
        *("<seed:tool_call>", "</seed:tool_call>", "<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
    ),
    "nemotron": (
        *("<extra_id_#>", "<SPECIAL_#>"),
        *("<TOOLCALL>", "</TOOLCALL>", "<AVAILABLE_TOOLS>", "</AVAILABLE_TOOLS>"),
        *("<TOOL_RESPONSE>", "</TOOL_RESPONSE>"),
    ),
    "ling": ("<role>", "</role>"),
    "smolvlm": ("<end_of_utterance>", "<end_of_text>", "<fake_token_around_image>"),
    "pangu": ("[unused#]",),
    "yandex": ("[SEP]", "[CLS]", "[BOS]", "[EOS]", "[PAD]", "[UNK]", "<s>", "</s>"),
    "muse": ("<atem:function_calls>", "</atem:function_calls>", "<tool_output>", "</tool_output>"),
    "falcon": (">>QUESTION<<", ">>ANSWER<<", ">>INTRODUCTION<<", ">>SUMMARY<<", ">>COMMENT<<", ">>TITLE<<"),
    "tools": ("<tools>", "</tools>", "<tool_response>", "</tool_response>", "<tool_calls>", "</tool_calls>"),
    "thinking": (
        *("<think>", "</think>", "<thinking>", "</thinking>", "<thought>", "</thought>", "<reasoning>"),
        *("</reasoning>", "◁think▷", "◁/think▷", "<think_fast>", "</think_fast>"),
    ),
    "code completion": (
        *("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<repo_name>", "<file_sep>", "<jupyter_start>"),
        *("<filename>", "<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<empty_output>"),
    ),
    "llama.cpp media": ("<__media__>", "<__image__>"),
}
"""Tokens other than `<|…|>`. For `<<SYS>>`, only the inner part. `#` means a number.

A family counts for a model if the template, or its first or last token, has a token that SentencePiece lacks.
"""

HEADINGS = (
    *("### Instruction", "### Input", "### Response", "### System", "### User", "### Assistant", "### Human"),
    *("USER:", "ASSISTANT:", "SYSTEM:", "User:", "Assistant:", "System:", "Human:", "Bot:", "Question:", "Answer:"),
    *("GPT4 Correct User:", "GPT4 Correct Assistant:", "Source:", "Destination:", "Пользователь:", "Ассистент:"),
)
"""Starts of lines that open a message in the templates of Alpaca, Vicuna and similar models.

To tokenizers and other families they are prose: a document may have the heading "Response". So a heading counts only
for models whose template contains it.
"""

REASONING: Mapping[str, str] = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
}
"""Tags around reasoning."""

_TURNS: Sequence[tuple[Sequence[str], Sequence[str]]] = (
    (
        ("<|im_start|>",),
        ("<|im_end|>", "<|endoftext|>", "<|endofprompt|>", "<|endofturn|>", "<|stop|>", "<end_of_utterance>"),
    ),
    (("<|im_user|>", "<|im_assistant|>"), ("<|im_end|>",)),
    (("<|start_header_id|>",), ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")),
    (("<|header_start|>",), ("<|eot|>", "<|eom|>", "<|end_of_text|>")),
    (("<|start_of_role|>",), ("<|end_of_text|>",)),
    (("<|user|>", "<|assistant|>", "<|system|>"), ("<|end|>", "<|endoftext|>", "<|observation|>")),
    (("<start_of_turn>",), ("<end_of_turn>", "<eos>")),
    (("<|turn>",), ("<turn|>", "<eos>")),
    (("[INST]",), ("</s>", "[/INST]")),
    (("<｜User｜>", "<｜Assistant｜>"), ("<｜end▁of▁sentence｜>",)),
    (("<|START_OF_TURN_TOKEN|>",), ("<|END_OF_TURN_TOKEN|>", "<|END_RESPONSE|>")),
    (("[|user|]", "[|assistant|]"), ("[|endofturn|]",)),
    (("<|start|>", "<|channel|>"), ("<|return|>", "<|call|>")),
    (("~b]",), ("[e~[",)),  # `]~b]`: no text that ends with a bracket is held back
    (("<|assistant_start|>",), ("<|assistant_end|>",)),
    (("<seed:bos>",), ("<seed:eos>",)),
    (("<|begin|>",), ("<|flush|>", "<|calls|>", "<|end|>")),
    (("<｜hy_User｜>", "<｜hy_Assistant｜>"), ("<｜hy_place▁holder▁no▁2｜>",)),
    (("<|role_start|>",), ("<|turn_end|>",)),
    (("<|role_sep|>",), ("<|message_sep|>",)),
    (("<|userprompt|>", "<|response|>"), ("<|endofresponse|>",)),
    (("<beginning_of_sentence>",), ("<end_of_sentence>",)),
    (("<SPECIAL_11>",), ("<SPECIAL_12>",)),
    (("<_user>", "<_bot>"), ("<_end>",)),
    (("[UNUSED_TOKEN_146]",), ("[UNUSED_TOKEN_145]",)),
    (("<|begin_of_sentence|>",), ("<|end_of_sentence|>",)),
    (("<|startoftext|>",), ("<|eos|>",)),
    (("<role>HUMAN</role>", "<role>ASSISTANT</role>"), ("<|role_end|>",)),
)
"""Tokens that start and end a message, by template."""
_OWN_ENDS = ("<|end_of_turn|>", "<|separator|>", "<|EOT|>", "</longcat_s>", "[unused10]")
"""Ends in the templates of OpenChat, Grok 2, DeepSeek Coder, LongCat and Pangu, which have no token for a start.

So nothing tells an answer about such a template. They count only for a model whose template has them.
"""
ANSWER_HEADERS = (
    *("<|im_start|>assistant", "<|start_header_id|>assistant<|end_header_id|>", "<start_of_turn>model"),
    *("<|header_start|>assistant<|header_end|>", "<|assistant|>", "<｜Assistant｜>", "<|START_RESPONSE|>", "[/INST]"),
)
"""What some models write before an answer, although the prompt ends with it."""
_REASONING_SWITCH = re.compile(r"enable_thinking|thinking_budget|IsThinkSet|\.Think\b")
"""What templates call the choice whether to reason."""
_STRIKETHROUGH = "<s>"
"""A token of SentencePiece that is also HTML. Its closing tag is then no end."""


_BRACKETED = re.compile(r"<[^\s<>'\"{}=,|]{1,64}>|\[/?[A-Z][A-Z_]+\]")


@dataclass(frozen=True, slots=True)
class ControlTokens:
    """The control tokens of one model.

    Attributes:
        names: Tokens for comparison, folded to ASCII and in lower case.
        headings: Starts of lines that its template reads as a role.
    """

    names: frozenset[str]
    headings: tuple[str, ...] = ()


def _names(families: tuple[str, ...]) -> frozenset[str]:
    return frozenset(token.casefold() for family in families for token in FAMILIES[family])


ALL_TOKENS = ControlTokens(_names(tuple(FAMILIES)))
"""Tokens of all families, for a model whose server does not report its template."""


def find_message_tokens(template: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the tokens before which an answer ends, those before which it may end, and those after which none counts.

    A model does not continue after the end of its own message, or after the start of another one. Only what follows
    can tell for tokens that the template does not have. If the server reports no template, these are the tokens of all
    templates. A start then rather means an answer about templates.
    """
    starts, ends = (frozenset(chain.from_iterable(tokens)) for tokens in zip(*_TURNS, strict=True))
    if not template.strip():
        return frozenset(), ends, starts | {_STRIKETHROUGH, *REASONING}
    family = {token for turn in _TURNS if any(start in template for start in turn[0]) for token in chain(*turn)}
    own = frozenset(token for token in family.union(ends, _OWN_ENDS) if token in template)
    return own, frozenset(family - own), frozenset((_STRIKETHROUGH,) if "</s>" in family | own else ())


def find_open_reasoning(template: str) -> str:
    """Return the tag that ends the reasoning if the prompt always ends inside of it, so that no opening tag comes."""
    end = template[max(0, template.rfind("add_generation_prompt")) :]
    if _REASONING_SWITCH.search(template):
        return ""
    return next((closer for opener, closer in REASONING.items() if end.rfind(opener) > end.rfind(closer)), "")


@lru_cache(maxsize=64)
def find_control_tokens(*templates: str) -> ControlTokens:
    """Return the control tokens of some models.

    Args:
        templates: Chat template of each, with the first and last token of a text, as far as its server reports them.
    """
    if not all(template.strip() for template in templates):
        return ALL_TOKENS
    template = "\n".join(templates)
    folded = template.casefold()
    shared = frozenset(FAMILIES["sentencepiece"])
    families = tuple(
        name
        for name, tokens in FAMILIES.items()
        if any(
            token.casefold().partition("#")[0] in folded
            for token in tokens
            if name == "sentencepiece" or token not in shared
        )
    )
    own = frozenset(token.casefold() for token in _BRACKETED.findall(template))  # also of families that are not listed
    return ControlTokens(_names(families) | own, tuple(heading for heading in HEADINGS if heading in template))
