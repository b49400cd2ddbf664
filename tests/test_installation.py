"""The command that adds an extra fits the way in which the package was installed, and stands in one place."""

import json
from pathlib import Path
from typing import Any

import pytest

from brain import install_command, installation

ROOT = Path(__file__).parent.parent

CLONE = {"url": "file:///srv/my%20shop", "dir_info": {"editable": True}}


@pytest.fixture(autouse=True)
def no_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "CONTAINER_FILES", ())
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("sys.executable", "/usr/bin/python3")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(origin: dict[str, Any] | None, installer: str = "pip", name: str = "shop") -> None:
        info = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "INSTALLER").write_text(f"{installer}\n")
        if origin is not None:
            (info / "direct_url.json").write_text(json.dumps(origin))
        monkeypatch.syspath_prepend(tmp_path)

    return install


@pytest.mark.parametrize(
    ("origin", "installer", "command"),
    [
        (CLONE, "pip", "cd '/srv/my shop' && pip install -e '.[deep]'"),
        ({"url": "file:///srv/shop", "dir_info": {}}, "uv", "cd /srv/shop && uv pip install '.[deep]'"),
        ({"url": "file:///w/shop-1.0.whl", "archive_info": {}}, "pip", "pip install '/w/shop-1.0.whl[deep]'"),
        (
            {"url": "https://shop.example/shop-1.0.whl", "archive_info": {}},
            "pip",
            "pip install 'shop[deep] @ https://shop.example/shop-1.0.whl'",
        ),
        (
            {"url": "https://git.example/shop", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "pip",
            "pip install 'shop[deep] @ git+https://git.example/shop@c0ffee'",
        ),
        (None, "pip", "pip install 'shop[deep]'"),
    ],
)
def test_the_command_for_a_package(install: Any, origin: dict[str, Any] | None, installer: str, command: str) -> None:
    install(origin, installer)
    assert install_command("deep", "shop") == command


def test_the_directory_of_the_clone_needs_no_cd(install: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install({"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    monkeypatch.chdir(tmp_path)
    assert install_command("deep", "shop") == "pip install -e '.[deep]'"


def test_a_container_needs_another_image(install: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install({**CLONE, "dir_info": {}})
    monkeypatch.setattr(installation, "CONTAINER_FILES", (tmp_path,))
    command = "rebuild the image with RUN cd '/srv/my shop' && pip install '.[deep]'"
    assert install_command("deep", "shop") == command


def test_a_clone_in_a_container_is_changed_in_place(
    install: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(CLONE)
    monkeypatch.setattr(installation, "CONTAINER_FILES", (tmp_path,))
    assert install_command("deep", "shop") == "cd '/srv/my shop' && pip install -e '.[deep]'"


def test_an_interpreter_that_is_not_on_the_path(install: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install({"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    monkeypatch.setattr("sys.executable", str(tmp_path / ".venv/bin/python"))
    monkeypatch.chdir(tmp_path)
    assert install_command("deep", "shop") == ".venv/bin/python -m pip install -e '.[deep]'"
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/pip").touch()
    assert install_command("deep", "shop") == ".venv/bin/pip install -e '.[deep]'"


def test_brain_is_never_looked_for_in_a_package_index(install: Any) -> None:
    install(None, name="brain-sse")
    assert "brain-sse" not in install_command("web")


def test_missing_extras_are_those_for_users(install: Any, tmp_path: Path) -> None:
    install(CLONE, name="brain-sse")
    (tmp_path / "brain_sse-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: brain-sse\nVersion: 1.0\n"
        "Provides-Extra: deep\nRequires-Dist: no-such-package>=1; extra == 'deep'\n"
        "Provides-Extra: dev\nRequires-Dist: no-such-package>=1; extra == 'dev'\n"
        "Provides-Extra: light\nRequires-Dist: pytest>=1; extra == 'light'\n"
    )
    assert installation.missing_extras() == ["deep"]


def test_no_other_text_says_how_to_install_an_extra() -> None:
    sources = [file for folder in ("brain", "specialists") for file in (ROOT / folder).rglob("*") if file.is_file()]
    texts = {file: file.read_text("utf-8", "replace") for file in sources if file.suffix in (".py", ".js", ".json")}
    assert [file.name for file, text in texts.items() if "pip install" in text] == ["installation.py"]
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert [file.name for file in documents if "brain-sse[" in file.read_text("utf-8")] == []
