"""One role of a turn: the model that plays it, the models that take over, and the messages that they read."""

import logging
from collections.abc import Callable, Iterator, Sequence

from brain.errors import ModelError
from brain.events import Notice, Resume
from brain.markers.template_tokens import ControlTokens
from brain.messages import Exchange, History, Steer
from brain.models.circuit_breaker import is_server_failure
from brain.models.model import Model
from brain.prompts import blocks, templates
from brain.prompts.context_window import fit_to_context
from brain.prompts.transcript import NativePrompt, Transcript, neutralize_exchange
from brain.turn import notices

log = logging.getLogger("brain")


class Participant:
    """A role of a turn.

    Args:
        models: The chosen model, then those that take over when it fails. A model that keeps failing is skipped.
        system_prompt: Returns the system message for a context size.
        history: The conversation before the turn.
        tokens: Control tokens of all models of the turn.
        context_tokens: The context size that the history was selected for.
        native_prompt: Returns the system message and the tools for native calls; None if there are no tools.
        examples: Invented exchanges before the history, from which a small model learns what to write.
        resume: How to ask for the next pass; None as the model does.
        continue_text: Text after the results of a pass, in a message.

    Attributes:
        model: The model of the next pass.
        exchange: The exchange that the passes continue. All text of the participant is in it, with its tags.
        transcript: The messages of the next pass.
        max_block_bytes: Size limit of a result block.
        is_new: Whether the model has read nothing yet.
        skipped: Names of the models before the present one that turns skip for now.
    """

    def __init__(
        self,
        models: Sequence[Model],
        system_prompt: Callable[[int | None], str],
        history: History,
        exchange: Exchange,
        tokens: ControlTokens,
        context_tokens: int | None = None,
        *,
        native_prompt: Callable[[int | None], NativePrompt | None] = lambda context_tokens: None,
        examples: Sequence[Exchange] = (),
        resume: Resume | None = None,
        continue_text: str = templates.CONTINUE,
    ) -> None:
        self._examples = examples
        self.chosen = models[0]
        self.exchange = exchange
        self._successors = list(models)
        self.skipped: list[str] = []
        self._system_prompt = system_prompt
        self._native_prompt = native_prompt
        self._history = history
        self._tokens = tokens
        self._context_tokens = context_tokens
        self._resume = resume
        self._continue_text = continue_text
        self._use(self._take(models) or self._successors.pop(0))

    def tell(self, text: str) -> None:
        """Add a message for the participant after its text so far."""
        self.exchange.parts.append(Steer(text, 0))

    def fall_back(self, failure: ModelError) -> Iterator[Notice]:
        """Let the next model continue, if it may succeed where this one failed; otherwise raise the failure.

        Yields:
            What people should know, also before the failure.
        """
        failed = self.model
        candidates: Sequence[Model] = ()
        if is_server_failure(failure):
            failed.breaker.record_failure()
            candidates = self._successors
        elif failure.code == "model_context" and failed.context_tokens is not None:
            candidates = [model for model in self._successors if (model.context_tokens or 0) > failed.context_tokens]
        successor = self._take(candidates)
        yield from map(notices.skipped_fallback, self.skipped)
        if successor is None:
            raise failure
        log.warning("%s failed, %s continues: %s", failed.name, successor.name, failure)
        self._use(successor)
        yield notices.fallback(failed.name, successor.name)

    def _take(self, candidates: Sequence[Model]) -> Model | None:
        """Return the first of these models that turns may use now. Models before it are skipped, and not used again."""
        self.skipped = []
        found = None
        for model in candidates:
            if model.breaker.allow():
                found = model
                break
            self.skipped.append(model.name)
        if found is not None:
            self._successors = self._successors[self._successors.index(found) + 1 :]
        return found

    def _use(self, model: Model) -> None:
        self.model = model
        self.is_new = True
        self.max_block_bytes = blocks.max_block_bytes(model.context_tokens)
        history = self._history
        if model.context_tokens != self._context_tokens:
            history = fit_to_context(history, model.context_tokens)
        self.transcript = Transcript(
            self._system_prompt(model.context_tokens),
            [*self._examples, *(neutralize_exchange(exchange, self._tokens) for exchange in history.exchanges)],
            self.exchange,
            self._native_prompt(model.context_tokens),
            resume=self._resume,
            continue_text=self._continue_text,
        )
