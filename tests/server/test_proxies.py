"""Behind nginx, set up as the documentation has it: which server gets a request, and what passes."""

import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import httpx
import trustme
from brain_servers import Process, brain_served, client_of, post, script
from limits import WAIT_SECONDS
from nginx_proxy import NEEDS_NGINX, proxied

GUIDE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "nginx.md"
SPECIALIST = '''\
"""A specialist that reports its process."""

import os

from brain import specialist


@specialist
async def who() -> str:
    """Returns the process ID."""
    return str(os.getpid())
'''
USERS = [f"user{number}" for number in range(20)]

pytestmark = NEEDS_NGINX


def test_a_user_gets_the_same_server_and_tokens_are_not_held_back(tmp_path: Path) -> None:
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
        addresses = {f"127.0.0.1:{8001 + n}": server.url().partition("//")[2] for n, server in enumerate(servers)}
        url = f"http://{stack.enter_context(proxied(tmp_path, block_of('nginx'), addresses, listens='127.0.0.1:8000'))}"

        def worker(headers: Mapping[str, str]) -> str:
            events = post(url, json={"message": "who?"}, headers=headers).events
            return next(str(event.data["text"]) for event in events if event.name == "specialist_result")

        clients = [{"authorization": f"Bearer {user}"} for user in USERS]
        for user in USERS[:5]:
            answer = httpx.post(f"{url}/v1/session", json={"key": user}, trust_env=False, timeout=WAIT_SECONDS)
            clients.append({"cookie": answer.headers["set-cookie"].partition(";")[0]})
        found = [{worker(headers) for _ in range(2)} for headers in clients]
        browser = {
            "authorization": "Bearer user1",
            "origin": url,
        }  # with the proxy's port, which is not the default port
        answer_of_slow = post(url, json={"message": "hi", "model": slow}, headers=browser)
    assert [len(one) for one in found] == [1] * 25
    assert set().union(*found) == {str(server.process.pid) for server in servers}
    assert sum(b"event: token" in chunk for chunk in answer_of_slow.chunks) == 3, "each token arrives on its own"


def test_over_https_and_below_a_path(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "pem")
    replaced = {"/etc/nginx/chat.example.pem": f"{tmp_path}/pem", "/etc/nginx/chat.example.key": f"{tmp_path}/key"}
    tls = ssl.create_default_context()
    authority.configure_trust(tls)
    with brain_served(KEYS="a-key:ann") as server, client_of(server) as direct:
        replaced["127.0.0.1:8000"] = direct.base_url.netloc.decode()
        with (
            proxied(tmp_path, block_of("nginx https"), replaced, listens="443") as address,
            httpx.Client(verify=tls, trust_env=False, timeout=WAIT_SECONDS) as client,
        ):
            origin = f"https://{address.replace('127.0.0.1', 'localhost')}"
            client.base_url = httpx.URL(f"{origin}/brain/")
            assert "<title>Brain</title>" in client.get("").text
            browser = {"origin": origin}
            session = client.post("v1/session", json={"key": "a-key"}, headers=browser)
            assert session.headers["set-cookie"].endswith("; SameSite=Strict; Secure")
            assert client.get("page/start").json()["user"] == "ann"
            assert client.post("v1/turns", json={"message": "hi"}, headers=browser).status_code == 201
            claimed = [
                client.get("v1/models", headers={"authorization": "Bearer wrong", "x-forwarded-for": f"203.0.113.{n}"})
                for n in range(21)
            ]
            assert [answer.status_code for answer in claimed] == [401] * 20 + [429]
            tls.set_alpn_protocols(["h2"])
            plain = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
            with tls.wrap_socket(plain, server_hostname="localhost") as secure:
                assert secure.selected_alpn_protocol() == "h2"


def block_of(name: str) -> str:
    """The configuration that follows this comment in the guide."""
    return GUIDE.read_text("utf-8").partition(f"<!-- {name} -->\n```nginx\n")[2].partition("```")[0]
