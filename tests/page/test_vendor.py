"""The vendored libraries are the files that their list names, byte for byte."""

import hashlib
import re
from importlib.resources import files
from pathlib import Path

VENDOR = Path(str(files("brain"))) / "page" / "vendor"
ROW = re.compile(r"^\| `([^`]+)` \| [^|]+ \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def test_vendored_files_have_the_hashes_of_their_list() -> None:
    listed = dict(ROW.findall(VENDOR.joinpath("README.md").read_text("utf-8")))
    found = {path.relative_to(VENDOR).as_posix(): path for path in VENDOR.rglob("*") if path.is_file()}
    found.pop("README.md")
    assert len(found) > 30
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()} == listed


def test_each_library_has_its_license() -> None:
    folders = [path for path in VENDOR.iterdir() if path.is_dir()]
    assert len(folders) == 4
    assert [folder.name for folder in folders if not folder.joinpath("LICENSE").read_text("utf-8").strip()] == []
