"""Wing: the Vercel AI SDK's protocol. What its clients ask (`request`), and what they get (`answer`)."""

from brain.wire.ai_sdk.answer import Encoder, refusal
from brain.wire.ai_sdk.body import SdkVersion
from brain.wire.ai_sdk.request import Decision, Wanted, parse

__all__ = ["Decision", "Encoder", "SdkVersion", "Wanted", "parse", "refusal"]
