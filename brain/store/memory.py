"""Wing: keeps conversations in this process's memory, as long as there is room."""

from collections import OrderedDict
from dataclasses import dataclass, field

from brain.ask import Attachment
from brain.errors import BadRequest
from brain.messages import Exchange

CONVERSATIONS_MOST = 1000
ATTACHED_BYTES_MOST = 512 * 1024 * 1024


@dataclass(slots=True)
class Record:
    """One conversation; `busy` while a turn of it runs. The store counted `counted_bytes` for its files."""

    user: str | None
    id: str
    exchanges: list[Exchange] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    busy: bool = False
    counted_bytes: int = 0

    @property
    def attached_bytes(self) -> int:
        """How much its files take."""
        return sum(len(attachment.data) for attachment in self.attachments)


class MemoryStore:
    """Conversations by user and id; the longest unused ones make room."""

    def __init__(self) -> None:
        self._records: OrderedDict[tuple[str | None, str], Record] = OrderedDict()
        self._bytes = 0

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
        self._bytes += record.attached_bytes - record.counted_bytes
        record.counted_bytes = record.attached_bytes
        if not record.exchanges:
            self._forget(record)
        if len(self._records) > CONVERSATIONS_MOST or self._bytes > ATTACHED_BYTES_MOST:
            self._make_room(record)

    def _make_room(self, kept: Record) -> None:
        """Forgets the longest unused conversations, but not the one just used."""
        for record in [one for one in self._records.values() if not one.busy and one is not kept]:
            if len(self._records) <= CONVERSATIONS_MOST and self._bytes <= ATTACHED_BYTES_MOST:
                return
            self._forget(record)

    def _forget(self, record: Record) -> None:
        del self._records[record.user, record.id]
        self._bytes -= record.counted_bytes
