"""The settings of `knowledge`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from specialists._knowledge.worker import Job

LOCAL = "local"
"""The user of the terminal, and of folders without a user."""


@dataclass(frozen=True)
class KnowledgeSettings:
    """The settings of `knowledge`."""

    folders: Annotated[
        tuple[str, ...],
        Meta(description="folders to index without `brain index`, for the user `local`; `NAME=FOLDER` for others"),
    ] = ()
    database: Annotated[
        str, Meta(description="folder of the indexes, one SQLite file per user; by default in the user's data folder")
    ] = ""
    file_mb: Annotated[int, Meta(description="maximum file size in MB", ge=1, le=1000)] = 50
    passages: Annotated[int, Meta(description="maximum passages per index", ge=1, le=2_000_000)] = 200_000
    ocr_language: Annotated[str, Meta(description="language of scans, two letters or a Tesseract code")] = "en"

    @property
    def home(self) -> Path:
        """The folder of the indexes."""
        if self.database:
            return Path(self.database).expanduser()
        import platformdirs

        return platformdirs.user_data_path("brain") / "knowledge"

    def list_folders(self, user: str | None) -> list[Path]:
        """Return the user's folders in the settings."""
        pairs = [split_owner(item) for item in self.folders]
        return [Path(folder).expanduser().resolve() for owner, folder in pairs if owner == user]

    def make_job(self, path: Path) -> Job:
        """Return a job that updates the folders of an index."""
        return Job(str(path), self.ocr_language, self.file_mb * 1_000_000, self.passages)


def split_owner(item: str) -> tuple[str, str]:
    """Return user and folder of an item of the setting `folders`."""
    owner, is_owner, folder = item.partition("=")
    has_owner = is_owner and not any(sign in owner for sign in "/\\~")
    return (owner.strip(), folder.strip()) if has_owner else (LOCAL, item.strip())
