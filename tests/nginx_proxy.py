"""A real nginx, for tests of its documented configurations."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from limits import WAIT_SECONDS

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
NEEDS_NGINX = [pytest.mark.nginx, pytest.mark.skipif(NGINX is None, reason="nginx is not installed")]


@contextmanager
def proxied(folder: Path, config: str, replaced: Mapping[str, str], *, listens: str) -> Iterator[str]:
    """Run nginx with a part of its configuration, in which some texts are replaced; yields its address.

    Args:
        listens: What it listens on in this configuration.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for documented, real in {f"listen {listens}": f"listen 127.0.0.1:{port}", **replaced}.items():
        assert documented in config
        config = config.replace(documented, real)
    paths = "".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    text = f"user root; daemon off; pid {folder}/pid; events {{}} http {{ access_log off; {paths} {config} }}"
    (folder / "nginx.conf").write_text(text, "utf-8")
    proxy = subprocess.Popen([str(NGINX), "-c", folder / "nginx.conf", "-e", "stderr"])
    try:
        listening = False
        while not listening:
            assert proxy.poll() is None
            with socket.socket() as probe:
                listening = probe.connect_ex(("127.0.0.1", port)) == 0
        yield f"127.0.0.1:{port}"
    finally:
        proxy.terminate()
        proxy.wait(WAIT_SECONDS)
