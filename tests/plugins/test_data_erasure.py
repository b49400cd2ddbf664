"""Specialists forget what they keep of a user: each is asked, and one that cannot does not keep the others from it."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from brain import Registry
from brain.plugins import data_erasure
from brain.plugins.data_erasure import erase_user_data
from brain.plugins.executor import Answer
from brain.plugins.specialist import Specialist, specialist

Asked = list[tuple[str, str | None]]


@dataclass(frozen=True)
class Folder:
    place: str = "drawer"


def keeping(name: str, forget: Callable[..., Any], **options: Any) -> Specialist[..., Any]:
    @specialist(name=name, forget=forget, **options)
    def keeps() -> str:
        """Keeps what users say."""
        return ""

    return keeps


def registry_of(*specialists: Specialist[..., Any]) -> Registry:
    registry = Registry()
    for one in specialists:
        registry.add(one)
    return registry


def test_each_is_asked_with_user_conversation_and_settings() -> None:
    asked: list[Any] = []

    async def later(user: str, conversation_id: str | None, *, settings: Folder) -> None:
        await asyncio.sleep(0)
        asked.append((settings.place, user, conversation_id))

    def at_once(user: str, conversation_id: str | None) -> None:
        assert threading.current_thread() is not threading.main_thread()
        asked.append(("none", user, conversation_id))

    registry = registry_of(keeping("a", at_once), keeping("b", later, settings=Folder))
    assert asyncio.run(erase_user_data(registry, "ada", "c1")) == []
    assert asyncio.run(erase_user_data(registry, "bob")) == []
    assert asked == [("none", "ada", "c1"), ("drawer", "ada", "c1"), ("none", "bob", None), ("drawer", "bob", None)]


def test_those_that_cannot_are_named_and_the_others_forget(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: Asked = []

    def breaks(user: str, conversation_id: str | None) -> None:
        raise RuntimeError("the disk is full")

    async def hangs(user: str, conversation_id: str | None) -> None:
        await asyncio.sleep(30)

    monkeypatch.setattr(data_erasure, "ERASURE_SECONDS", 0.05)
    lost = keeping("d", lambda user, conversation_id: asked.append((user, conversation_id)), needs=lambda: "its disk")
    registry = registry_of(keeping("a", breaks), keeping("b", hangs), lost)
    assert asyncio.run(erase_user_data(registry, "ada")) == ["a", "b"]
    assert asked == [("ada", None)], "also one that cannot be called"
    assert "specialist a could not forget what it keeps" in caplog.text


def test_answers_that_are_kept_for_the_user_are_forgotten_with_any_conversation() -> None:
    registry = Registry()
    registry.cache(("ada", "x"), Answer("x"), 60)
    registry.cache(("bob", "x"), Answer("x"), 60)
    asyncio.run(erase_user_data(registry, "ada", "c1"))
    assert registry.find_cached(("ada", "x")) is None
    assert registry.find_cached(("bob", "x")) == Answer("x")
