"""AG-UI. What its clients ask (`request`), and what they get (`answer`)."""

from brain.protocols.ag_ui.encoder import Encoder, failed, refusal
from brain.protocols.ag_ui.request import Resumed, Wanted, answers, parse, said_since

__all__ = ["Encoder", "Resumed", "Wanted", "answers", "failed", "parse", "refusal", "said_since"]
