"""AG-UI. What its clients ask (`request`), and what they get (`answer`)."""

from brain.protocols.ag_ui.encoder import Encoder, failed, refusal
from brain.protocols.ag_ui.request import RequestOptions, Resumed, answers, parse, said_since

__all__ = ["Encoder", "RequestOptions", "Resumed", "answers", "failed", "parse", "refusal", "said_since"]
