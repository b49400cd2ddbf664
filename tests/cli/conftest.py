"""What the tests of the commands share."""

from pathlib import Path

import pytest

from cli.command import Brain


@pytest.fixture
def brain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Brain:
    """Commands, with a store that does not exist yet."""
    return Brain(tmp_path, monkeypatch, capsys)
