"""Wing: keeps conversations in this process's memory, as long as there is room."""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from sys import getsizeof

from brain.ask import Attachment
from brain.errors import BadRequest
from brain.events import Citation
from brain.messages import Called, Exchange, Part

MIB = 1024 * 1024
CONVERSATIONS_MOST = 1000
CONVERSATION_BYTES_MOST = 64 * MIB
USER_BYTES_MOST = 256 * MIB
BYTES_MOST = 512 * MIB

_PIECE_BYTES = 80
"""About what an object takes besides its texts."""


@dataclass(slots=True)
class Record:
    """One conversation; `busy` while a turn of it runs. The store counted `counted` bytes for it."""

    user: str | None
    id: str
    exchanges: list[Exchange] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    busy: bool = False
    counted: int = 0

    @property
    def size(self) -> int:
        """How many bytes its texts and files take."""
        return sum(map(_of_exchange, self.exchanges)) + _files(self.attachments)

    def check_room(self, exchange: Exchange, attachments: Iterable[Attachment]) -> None:
        """Whether there is room for one more exchange, as it begins.

        Raises:
            BadRequest: `too_large`, when there is none.
        """
        files = _files(attachments)
        if self.size + _of_exchange(exchange) + files > CONVERSATION_BYTES_MOST:
            sentence = f"A conversation may hold {CONVERSATION_BYTES_MOST // MIB} MiB with its files; begin a new one."
            raise BadRequest(sentence, "attachments" if files else "conversation_id", code="too_large", status=413)


class MemoryStore:
    """Conversations by user and id. The longest unused ones make room, those of a user with too much of it first."""

    def __init__(self) -> None:
        self._records: OrderedDict[tuple[str | None, str], Record] = OrderedDict()
        self._bytes: Counter[str | None] = Counter()

    def __len__(self) -> int:
        return len(self._records)

    def take(self, user: str | None, conversation_id: str) -> Record:
        """The conversation, for one turn; a new one when there is none.

        Raises:
            BadRequest: `busy`, while another turn of it runs.
        """
        key = (user, conversation_id)
        record = self._records.setdefault(key, Record(user, conversation_id))
        if record.busy:
            message = "A turn of this conversation is running; wait for its end, or stop it."
            raise BadRequest(message, "conversation_id", code="busy", status=409)
        record.busy = True
        self._records.move_to_end(key)
        return record

    def give_back(self, record: Record) -> None:
        """Ends what `take` began."""
        record.busy = False
        size = record.size
        self._bytes[record.user] += size - record.counted
        record.counted = size
        if not record.exchanges:
            self._forget(record)
        self._make_room(record)

    def _make_room(self, kept: Record) -> None:
        """Forgets the longest unused conversations, but not the one just used."""
        while self._bytes[kept.user] > USER_BYTES_MOST and self._forget_oldest(kept, of_user=True):
            pass
        while (len(self) > CONVERSATIONS_MOST or self._bytes.total() > BYTES_MOST) and self._forget_oldest(kept):
            pass

    def _forget_oldest(self, kept: Record, *, of_user: bool = False) -> bool:
        """Forgets one conversation; false when all are in use."""
        for record in self._records.values():
            if not record.busy and record is not kept and (not of_user or record.user == kept.user):
                self._forget(record)
                return True
        return False

    def _forget(self, record: Record) -> None:
        del self._records[record.user, record.id]
        self._bytes[record.user] -= record.counted
        if not self._bytes[record.user]:
            del self._bytes[record.user]


def _of_exchange(exchange: Exchange) -> int:
    around = sum(_PIECE_BYTES + getsizeof(message.content) for message in (*exchange.before, *exchange.behind))
    return getsizeof(exchange.question) + around + sum(map(_of_part, exchange.parts))


def _of_part(part: Part) -> int:
    if isinstance(part, Called):
        texts = getsizeof(part.marker) + getsizeof(part.block)
        return _PIECE_BYTES + texts + _of_params(part) + sum(map(_of_citation, part.citations))
    return _PIECE_BYTES + getsizeof(part.text)


def _of_params(call: Called) -> int:
    """About what its parameters take: they stand in its marker, and each value between signs in it is an object."""
    return len(call.marker) + _PIECE_BYTES * sum(map(call.marker.count, ",:[{"))


def _of_citation(citation: Citation) -> int:
    return _PIECE_BYTES + getsizeof(citation.id) + getsizeof(citation.title) + getsizeof(citation.url)


def _files(attachments: Iterable[Attachment]) -> int:
    return sum(len(attachment.data) for attachment in attachments)
