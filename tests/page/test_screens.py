"""The command that takes the pictures of `docs/screens/`."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

pytestmark = [pytest.mark.chromium, pytest.mark.usefixtures("browser")]

SCREENS = Path(__file__).parents[1] / "screens"


def take(folder: Path, *names: str) -> list[str]:
    command = [sys.executable, str(SCREENS), "--to", str(folder), *names]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_pictures_are_taken_and_stay_as_they_are(tmp_path: Path) -> None:
    assert [line.split(":")[0] for line in take(tmp_path, "empty", "terminal")] == ["empty", "terminal"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.png", "terminal.png"]
    with Image.open(tmp_path / "empty.png") as page, Image.open(tmp_path / "terminal.png") as terminal:
        assert page.size == (1200, 800)
        assert 700 < terminal.width < 1200
        assert all(len(set(picture.tobytes())) > 20 for picture in (page, terminal))  # neither is a blank one
    assert take(tmp_path, "empty") == ["empty: as it was"]


def test_an_unknown_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        take(tmp_path, "emptty")
    assert "unknown: emptty; there are: empty, " in refused.value.stderr
    assert list(tmp_path.iterdir()) == []
