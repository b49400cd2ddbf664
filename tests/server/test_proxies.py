"""Behind nginx, set up as the documentation has it: who comes to which server, and what gets through."""

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import trustme
from serving import Process, brain_served, post, script

OPERATIONS = Path(__file__).parent.parent.parent / "docs" / "operations.md"
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
SPECIALIST = '''\
"""A specialist that tells of its process."""

import os

from brain import specialist


@specialist
async def who() -> str:
    """Says which process this is."""
    return str(os.getpid())
'''
USERS = [f"user{number}" for number in range(20)]

pytestmark = [pytest.mark.nginx, pytest.mark.skipif(NGINX is None, reason="nginx is not installed")]


def test_a_user_comes_to_the_same_server_and_nothing_is_held_back(tmp_path: Path) -> None:
    (tmp_path / "specialists").mkdir()
    (tmp_path / "specialists" / "who.py").write_text(SPECIALIST, "utf-8")
    slow = script(tmp_path, {"chunks": ["One ", "two ", "three."], "delay_ms": 100}, name="slow.jsonl")
    env = {
        "BRAIN_SPECIALISTS_FOLDER": str(tmp_path / "specialists"),
        "BRAIN_MODEL": f"{script(tmp_path, ['SPECIALIST_REQUEST[who]'], ['That is who.'])},{slow}",
        "BRAIN_KEYS": ",".join(f"{user}:{user}" for user in USERS),
    }
    with ExitStack() as stack:
        servers = [stack.enter_context(Process("serve", "--port", "0", env=env)) for _ in range(2)]
        ports = {
            old: _place(server.url()) for old, server in zip(("127.0.0.1:8001", "127.0.0.1:8002"), servers, strict=True)
        }
        place = stack.enter_context(proxied(tmp_path, "nginx", ports, listens="127.0.0.1:8000"))
        url = f"http://{place}"
        by_key = [{"authorization": f"Bearer {user}"} for user in USERS]
        by_session = [{"cookie": _session(url, user)} for user in USERS[:5]]
        seen = [{_who(url, caller) for _ in range(2)} for caller in (*by_key, *by_session)]
        as_browser = {"authorization": "Bearer user1", "origin": url}  # with the proxy's port, no usual one
        answer = post(url, json={"message": "hi", "model": slow}, headers=as_browser)
    assert [len(found) for found in seen] == [1] * 25
    assert set().union(*seen) == {str(server.process.pid) for server in servers}
    assert sum(b"event: token" in chunk for chunk in answer.chunks) == 3, "each token arrives on its own"


def test_by_https_and_below_a_path(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "pem")
    written = {"/etc/nginx/chat.example.pem": f"{tmp_path}/pem", "/etc/nginx/chat.example.key": f"{tmp_path}/key"}
    tls = ssl.create_default_context()
    authority.configure_trust(tls)
    with (
        brain_served(KEYS="a-key:ann", STORE="memory:") as server,
        proxied(tmp_path, "nginx https", {"127.0.0.1:8000": _place(server.url), **written}, listens="443") as place,
        httpx.Client(verify=tls, trust_env=False) as client,
    ):
        origin = f"https://{place.replace('127.0.0.1', 'localhost')}"
        client.base_url = httpx.URL(f"{origin}/brain/")
        assert _speaks_http2(place, tls)
        assert "<title>Brain</title>" in client.get("").text
        browser = {"origin": origin}
        signed_in = client.post("v1/session", json={"key": "a-key"}, headers=browser)
        assert signed_in.headers["set-cookie"].endswith("; SameSite=Strict; Secure")
        assert client.get("page/start").json()["user"] == "ann"
        assert client.post("v1/turns", json={"message": "hi"}, headers=browser).status_code == 201
        claimed = [
            client.get("v1/models", headers={"authorization": "Bearer wrong", "x-forwarded-for": f"203.0.113.{n}"})
            for n in range(21)
        ]
        assert [answer.status_code for answer in claimed] == [401] * 20 + [429]


def _place(url: str) -> str:
    return f"127.0.0.1:{url.rpartition(':')[2]}"


def _who(url: str, caller: Mapping[str, str]) -> str:
    events = post(url, json={"message": "who?"}, headers=caller).events
    return next(str(event.data["text"]) for event in events if event.name == "specialist_result")


def _session(url: str, key: str) -> str:
    said = httpx.post(f"{url}/v1/session", json={"key": key}, trust_env=False).headers["set-cookie"]
    return str(said.partition(";")[0])


def _speaks_http2(place: str, tls: ssl.SSLContext) -> bool:
    tls.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(_address(place)) as plain,
        tls.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        return secure.selected_alpn_protocol() == "h2"


@contextmanager
def proxied(folder: Path, block: str, written: Mapping[str, str], *, listens: str) -> Iterator[str]:
    """Nginx as this block of the documentation sets it up, with what is real for what is written; where it listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    found = OPERATIONS.read_text("utf-8").partition(f"<!-- {block} -->\n```nginx\n")[2].partition("```")[0]
    for said, real in {f"listen {listens}": f"listen {place}", **written}.items():
        assert said in found
        found = found.replace(said, real)
    paths = "".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    around = f"daemon off; pid {folder}/pid; events {{}} http {{ access_log off; {paths} {found} }}"
    (folder / "nginx.conf").write_text(around, "utf-8")
    proxy = subprocess.Popen([str(NGINX), "-c", folder / "nginx.conf", "-e", "stderr"])
    try:
        while not _is_there(place):
            assert proxy.poll() is None
        yield place
    finally:
        proxy.terminate()
        proxy.wait(10)


def _is_there(place: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(_address(place)) == 0


def _address(place: str) -> tuple[str, int]:
    host, _, port = place.partition(":")
    return host, int(port)
