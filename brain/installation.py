"""Describe how a package was installed: which extras are missing, and the command that adds one."""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import sys
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

PACKAGE = "brain-sse"
NOT_FOR_USERS = frozenset(["all", "bench", "dev"])
CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Docker and Podman create one of these in a container."""


def install_command(extra: str, package: str = PACKAGE) -> str:
    """Return the command that adds an extra to an installed package.

    Args:
        extra: Name of the extra, such as ``web``.
        package: Name of the package (default: Brain).

    Returns:
        The command for the installation at hand: ``cd /srv/brain && pip install -e '.[web]'`` for a clone, without
        ``cd`` in its directory; ``pip install '/tmp/brain.whl[web]'`` for a wheel; the line for the Dockerfile in a
        container, because a container loses its changes, unless it runs a clone. The command has the path of pip if
        another one, or none, is on the PATH.
    """
    command, is_clone = _build_command(extra, package)
    in_container = "KUBERNETES_SERVICE_HOST" in os.environ or any(file.exists() for file in CONTAINER_FILES)
    if in_container and not is_clone:
        return f"rebuild the image with RUN {command}"
    start, pip, rest = command.partition("pip install")
    if start.endswith("uv "):
        return command
    return f"{start}{_find_pip(is_relative=not start)} install{rest}" if pip else command


def _find_pip(*, is_relative: bool) -> str:
    """Return the pip of this interpreter: `pip` if it is on the PATH, else its path, possibly relative."""
    folder = Path(sys.executable).parent
    on_path = shutil.which("pip")
    if on_path is not None and Path(on_path).parent == folder:
        return "pip"
    own = folder / "pip"
    program = own if own.exists() else Path(sys.executable)
    if is_relative and program.is_relative_to(Path.cwd()):
        program = program.relative_to(Path.cwd())
    return shlex.quote(str(program)) + ("" if own.exists() else " -m pip")


def missing_extras() -> list[str]:
    """Return the extras of Brain for users whose packages are not all installed."""
    distribution = importlib.metadata.distribution(PACKAGE)
    extras = distribution.metadata.get_all("Provides-Extra") or []
    return [extra for extra in extras if extra not in NOT_FOR_USERS and not has_extra(distribution, extra)]


def has_extra(package: importlib.metadata.Distribution, extra: str) -> bool:
    """Return whether everything that an extra of a package requires is installed."""
    marker = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    for requirement in _find_requirements(package):
        if marker.search(requirement):
            name = re.match(r"[A-Za-z0-9._-]+", requirement)
            try:
                importlib.metadata.distribution(name[0] if name else requirement)
            except importlib.metadata.PackageNotFoundError:
                return False
    return True


@lru_cache(maxsize=16)
def _find_requirements(package: importlib.metadata.Distribution) -> tuple[str, ...]:
    return tuple(package.requires or ())  # parses all metadata of the package


def _build_command(extra: str, package: str) -> tuple[str, bool]:
    """Return the command, and whether the package is an editable clone."""
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return f"pip install '{package}[{extra}]'", False
    install = f"{'uv pip' if (distribution.read_text('INSTALLER') or '').strip() == 'uv' else 'pip'} install"
    from urllib.request import url2pathname  # imports the HTTP client of the standard library

    origin = json.loads(distribution.read_text("direct_url.json") or "{}")  # PEP 610
    url = origin.get("url", "")
    place = url2pathname(urlsplit(url).path) if url.startswith("file:") else ""
    if "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        folder = "" if Path(place) == Path.cwd() else f"cd {shlex.quote(place)} && "
        return f"{folder}{install} {editable}'.[{extra}]'", bool(editable)
    if place:
        return f"{install} {shlex.quote(f'{place}[{extra}]')}", False
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    if url:
        return f"{install} '{package}[{extra}] @ {url}'", False
    if package == PACKAGE:  # it is not on a package index
        return f"{install} 'FILE.whl[{extra}]', with the wheel that Brain was installed from", False
    return f"{install} '{package}[{extra}]'", False
