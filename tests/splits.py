"""Ways to cut a stream into chunks, for properties that no cut may change."""

from hypothesis import strategies as st


def splits(text: str) -> st.SearchStrategy[list[str]]:
    """A text in chunks, some of which are empty."""
    places = st.lists(st.integers(0, len(text)), min_size=1, max_size=20).map(sorted)
    return places.map(lambda at: [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)])
