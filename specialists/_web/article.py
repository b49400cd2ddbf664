"""What was read of a page. Imports nothing of Brain."""

from dataclasses import dataclass

TEXT_MOST = 1_000_000
"""Characters of an article."""


@dataclass(frozen=True, slots=True)
class Article:
    """What a page says. Facts that it does not give are empty; `date` is ISO.

    Attributes:
        scripted: whether scripts would put the text there.
        paid: whether it says that its text is only for those who pay.
        refresh: where the page sends its reader at once.
    """

    title: str = ""
    author: str = ""
    site: str = ""
    date: str = ""
    text: str = ""
    scripted: bool = False
    paid: bool = False
    refresh: str = ""
