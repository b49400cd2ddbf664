"""Erasing a user's data calls every specialist, even if some fail."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from brain import Registry
from brain.plugins import registry as registry_module
from brain.plugins.context import Result
from brain.plugins.specialist import specialist


@dataclass(frozen=True)
class Folder:
    place: str = "drawer"


def text() -> str:
    """Does it."""
    return "x"


def registry_of(*forgets: Callable[..., Any], **options: Any) -> Registry:
    """Return specialists `a`, `b`, … with these functions."""
    registry = Registry()
    for name, forget in zip("abc", forgets, strict=False):
        registry.add(specialist(name=name, forget=forget, settings=Folder, **options)(text))
    return registry


def test_functions_get_user_conversation_and_settings() -> None:
    calls: list[Any] = []

    async def coroutine(user: str, conversation_id: str | None, *, settings: Folder) -> None:
        calls.append((settings.place, user, conversation_id))

    def plain(user: str, conversation_id: str | None) -> None:
        assert threading.current_thread() is not threading.main_thread()
        calls.append(("plain", user, conversation_id))

    registry = registry_of(plain, coroutine)
    registry.cache(("ada", "x"), Result("x"), 60)
    registry.cache(("bob", "x"), Result("x"), 60)
    assert asyncio.run(registry.erase_user_data("ada", "c1")) == []
    assert (registry.find_cached(("ada", "x")), registry.find_cached(("bob", "x"))) == (None, Result("x"))
    assert asyncio.run(registry.erase_user_data("bob")) == []
    assert calls == [("plain", "ada", "c1"), ("drawer", "ada", "c1"), ("plain", "bob", None), ("drawer", "bob", None)]


def test_failures_are_named_and_unavailable_specialists_are_called(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def breaks(user: str, conversation_id: str | None) -> None:
        monkeypatch.setattr(registry_module, "ERASURE_SECONDS", 0.05)  # of the next one, which never ends
        raise RuntimeError("the disk is full")

    async def hangs(user: str, conversation_id: str | None) -> None:
        await asyncio.Event().wait()

    registry = registry_of(lambda user, conversation_id: calls.append(user), breaks, hangs, needs=lambda: "its disk")
    assert asyncio.run(registry.erase_user_data("ada")) == ["b", "c"]
    assert calls == ["ada"]
    assert "the disk is full" in caplog.text
