"""The tests of the store run on a database of your own, as `docs/contributing.md` says."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tests_of_the_store_run_on_a_database_of_ones_own(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "own.py").write_text(code, "utf-8")
    tests = ["tests/store/test_database.py", "tests/store/test_sqlite_vacuum.py", "-k=outlives or scrubbed"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--database=own:new_database",
        "-v",
        "-n=0",
        "-pno:cacheprovider",
        *tests,
    ]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.findall(r"::(\w+)\[(\S+)\] PASSED", done.stdout) == [
        ("test_a_database_outlives_its_process", "own:new_database")
    ]
