"""How relevant items are to messages, with embeddings whose cosines are all alike, as those of some models."""

import math
import random

import pytest

from brain.models.relevance import ITEMS, MESSAGES, UNRELATED, Relevance, center, measure

SIZE = 48
COMMON = 6.0
"""What all embeddings have in common; with it, their cosines are between 0.9 and 1."""


def embed(rng: random.Random, near: list[float] | None = None) -> list[float]:
    own = [rng.gauss(0, 1) for _ in range(SIZE)]
    return [0.3 * number + one for number, one in zip(own, near, strict=True)] if near else own


def with_common(vector: list[float]) -> list[float]:
    return [COMMON + number for number in vector]


@pytest.fixture(scope="module")
def measured() -> tuple[Relevance, list[list[float]]]:
    rng = random.Random(1)
    messages = [embed(rng) for _ in MESSAGES]
    items = [embed(rng, message) for message in messages]
    unrelated = [embed(rng) for _ in UNRELATED]
    return measure(*[[with_common(one) for one in many] for many in (messages, items, unrelated)])


def test_related_items_are_told_from_others(measured: tuple[Relevance, list[list[float]]]) -> None:
    relevance, references = measured
    assert relevance.related > relevance.unrelated > 0
    assert relevance.least(0.0) == relevance.unrelated
    assert relevance.least(1.0) == relevance.related
    rng = random.Random(2)
    message = embed(rng)
    items = [embed(rng, message), *(embed(rng) for _ in range(9))]
    centred = relevance.center_message(with_common(message))
    near = []
    for item in items:
        embedded = relevance.center_item(with_common(item), references)
        assert math.isclose(math.hypot(*embedded.vector), 1)
        cosine = sum(map(float.__mul__, centred, embedded.vector))
        near.append((cosine, embedded.mean, embedded.spread))
    first, *others = relevance.score(centred, near)
    assert first > relevance.least(0.5) > max(others)


def test_an_item_without_an_embedding_is_near_to_nothing(measured: tuple[Relevance, list[list[float]]]) -> None:
    relevance, references = measured
    item = relevance.center_item([0.0] * SIZE, references)
    assert (any(item.vector), item.mean) == (False, 0.0)
    assert item.spread > 0
    assert center([math.inf] * SIZE, relevance.item_mean) == [0.0] * SIZE


def test_texts_of_the_check() -> None:
    assert len(set(ITEMS)) == len(set(MESSAGES)) == len(set(UNRELATED)) == 60
    assert not set(MESSAGES) & set(UNRELATED)
