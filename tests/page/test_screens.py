"""The command that takes the pictures of `docs/screens/`."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

pytestmark = [pytest.mark.chromium, pytest.mark.usefixtures("browser")]

SCREENS = Path(__file__).parents[1] / "screens"


def test_a_picture_is_taken(tmp_path: Path) -> None:
    command = [sys.executable, str(SCREENS), "--to", str(tmp_path), "empty"]
    subprocess.run(command, check=True, capture_output=True)
    with Image.open(tmp_path / "empty.png") as picture:
        assert picture.size == (1200, 800)
        assert len(set(picture.tobytes())) > 20  # it is not blank
