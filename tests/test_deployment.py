"""The files for several machines: their settings exist, and they name each other as they must."""

import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from brain.settings import read
from brain.store import POSTGRESQL

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "deploy" / "several-machines"
GIVEN = {"POSTGRES_PASSWORD": "secret", "BRAIN_KEYS": "a-long-enough-key:ann"}


def services() -> dict[str, Any]:
    """The services of the compose file, with its variables as a user gives them."""

    def value(match: re.Match[str]) -> str:
        return GIVEN.get(match["name"], match["default"] or "")

    text = re.sub(r"\$\{(?P<name>\w+):[-?](?P<default>[^}]*)\}", value, (FOLDER / "compose.yaml").read_text("utf-8"))
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


def test_each_replica_has_the_settings_of_the_others_and_its_own_address() -> None:
    replicas = {name: one for name, one in services().items() if name.startswith("replica")}
    common = []
    for name, one in replicas.items():
        environ = dict(one["environment"])
        assert environ.pop("BRAIN_ADVERTISE") == f"{name}:8700"
        common.append(environ)
        settings = read({**environ, "BRAIN_ADVERTISE": f"{name}:8700"})
        assert settings.advertise == f"{name}:8700"
        assert (settings.store or "").partition(":")[0] in POSTGRESQL
        assert int(one["stop_grace_period"].removesuffix("s")) >= settings.drain_seconds + 20
        assert one["volumes"] == [f"{name}:/data"]
    assert common == [common[0]] * 3


def test_nginx_names_each_replica_at_its_port() -> None:
    config = (FOLDER / "nginx.conf").read_text("utf-8")
    found = services()
    servers = re.findall(r"server (\S+):(\d+)", config)
    assert servers == [(name, "8000") for name in found if name.startswith("replica")]
    assert found["nginx"]["depends_on"] == [name for name, _ in servers]
    guide = (ROOT / "docs" / "how-to" / "several-machines.md").read_text("utf-8")
    assert config[config.index("upstream") :] in guide


def test_the_image_has_what_a_wheel_needs() -> None:
    lines = (FOLDER / "Dockerfile").read_text("utf-8").splitlines()
    copied = {word.strip("/") for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]}
    assert copied == {"pyproject.toml", "README.md", "LICENSE", "docs", "brain", "specialists"}
    assert all((ROOT / name).exists() for name in copied)
