"""One role of a turn: the model that plays it, the models that take over, and the messages that they read."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from brain.errors import ModelError
from brain.events import Notice, Resume
from brain.messages import Exchange, History, Steer
from brain.models.circuit_breaker import is_server_failure
from brain.models.model import Model
from brain.prompts import blocks, templates
from brain.prompts.context_window import fit_to_context
from brain.prompts.system_prompt import SystemPrompt
from brain.prompts.transcript import Transcript, neutralize_exchange
from brain.turn import notices
from brain.turn.setup import TurnSetup

log = logging.getLogger("brain")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """What a participant reads.

    Attributes:
        instructions: Instructions of the strategy, after those of the operator.
        system: Returns the whole system message for a context size instead.
        offers: Whether the system message describes the specialists.
        history: What it reads instead of the whole history.
        examples: Invented exchanges before the history, from which a small model learns what to write.
        resume: How to ask for the next pass; None as the model does.
        continue_text: Text after the results of a pass, in a message.
    """

    instructions: str = ""
    system: Callable[[int | None], str] | None = None
    offers: bool = True
    history: History | None = None
    examples: Sequence[Exchange] = ()
    resume: Resume | None = None
    continue_text: str = templates.CONTINUE


DEFAULT_OPTIONS = PromptOptions()


class Participant:
    """A role of a turn.

    Args:
        models: The chosen model, then those that take over when it fails. A model that keeps failing is skipped.

    Attributes:
        model: The model of the next pass.
        exchange: The exchange that the passes continue. All text of the participant is in it, with its tags.
        transcript: The messages of the next pass.
        max_block_bytes: Size limit of a result block.
        is_new: Whether the model has read nothing yet.
        skipped: Names of the models before the present one that turns skip for now.
    """

    def __init__(
        self, setup: TurnSetup, models: Sequence[Model], exchange: Exchange, options: PromptOptions = DEFAULT_OPTIONS
    ) -> None:
        self.chosen = models[0]
        self.exchange = exchange
        self.skipped: list[str] = []
        self._setup = setup
        self._options = options
        self._successors = list(models)
        request, offers = setup.request, options.offers
        self._prompt = SystemPrompt(
            setup.usable if offers else (), request.limits, request.syntax, setup.operator, request.system,
            setup.tools if offers else {}, options.instructions, request.must_call if offers else False, setup.tokens,
        )  # fmt: skip
        self._use(self._take(models) or self._successors.pop(0))

    def add_message(self, text: str) -> None:
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
        setup, options, size = self._setup, self._options, model.context_tokens
        history = setup.history if options.history is None else options.history
        if size != setup.models[0].context_tokens:  # for which the history was selected
            history = fit_to_context(history, size)
        self.transcript = Transcript(
            self._prompt.text(size) if options.system is None else options.system(size),
            [*options.examples, *(neutralize_exchange(exchange, setup.tokens) for exchange in history.exchanges)],
            self.exchange,
            self._prompt.native(size) if options.system is None else None,
            resume=options.resume,
            continue_text=options.continue_text,
        )
