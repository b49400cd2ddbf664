"""Why model servers end an answer, in their own words."""

import re
from collections.abc import Mapping
from typing import Literal

Ending = Literal["stop", "length", "content_filter", "broken_call", "failure"]

_WORDS: Mapping[Ending, str] = {
    # OpenAI, Azure, vLLM, SGLang, llama.cpp (`eos`, `word`), Ollama (`load`), Anthropic, Cohere, TGI, then calls
    "stop": """
        stop end end_turn stop_sequence eos eos_token word complete completed done finished load unload
        tool_calls tool_call tool_use function_call
    """,
    # OpenAI, Mistral (`model_length`), llama.cpp (`limit`), GLM, Gemini, watsonx, Cohere, vLLM (`repetition`)
    "length": """
        length max_tokens max_output_tokens max_length model_length limit token_limit time_limit error_limit
        model_context_window_exceeded context_length_exceeded repetition
    """,
    # OpenAI, Azure, Mistral, OpenRouter, GLM (`sensitive`), Anthropic, Bedrock, Cohere, then Gemini
    "content_filter": """
        content_filter content_filtered sensitive refusal guardrail_intervened guardrails error_toxic
        safety recitation language blocklist prohibited_content spii image_safety image_prohibited_content
    """,
    # Gemini, then Bedrock: the model wrote a call that the server cannot read
    "broken_call": """
        function_call_filter malformed_function_call unexpected_tool_call too_many_tool_calls malformed_response
        malformed_tool_use
    """,
    # OpenRouter, Mistral, vLLM, SGLang (`abort`), DeepSeek, GLM (`network_error`), Kimi, watsonx, Cohere, gateways,
    # Bedrock (`malformed_model_output`)
    "failure": """
        error network_error server_error internal_error insufficient_system_resource abort aborted cancelled canceled
        user_cancel interrupted interruption timeout failed failure overloaded engine_overloaded
        engine_overloaded_error rate_limit rate_limit_exceeded resource_exhausted unavailable service_unavailable
        malformed_model_output
    """,
}
_ENDINGS = {word.replace("_", ""): ending for ending, words in _WORDS.items() for word in words.split()}


def find_ending(reason: str) -> Ending | None:
    """Return what a reason means in any spelling, such as `MAX_TOKENS` or `content_filter: SAFETY`; None if unknown."""
    if (usual := _ENDINGS.get(reason)) is not None:
        return usual
    words = re.sub(r"[^a-z:]", "", reason.lower()[:200]).removeprefix("finishreason")
    first, _, second = words.partition(":")
    return _ENDINGS.get(second) or _ENDINGS.get(first)
