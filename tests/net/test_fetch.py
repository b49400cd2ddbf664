"""The guarded way to the web, against real servers on this machine."""

import asyncio
import gzip
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import trustme

from brain import Page, Refused
from brain.net.fetch import Fetch, resolved

Answer = bytes | Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes = b"hello", status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer; header names are written with `_` for `-`."""
    said = {"Content_Type": "text/plain", "Content_Length": str(len(body)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in said.items() if value]
    return f"HTTP/1.1 {status}\r\n".encode() + "\r\n".join([*lines, "", ""]).encode() + body


def redirect(target: str, status: str = "302 Found") -> bytes:
    return answer(b"", status, Location=target)


@dataclass
class Web:
    """A server that plays answers by path, and keeps what it was asked."""

    answers: Mapping[str, Answer]
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, path, _ = head[0].split(" ")
            self.asked.append((f"{method} {path}", headers, body))
            said = self.answers.get(path.partition("?")[0], answer(b"", "404 Not Found"))
            if callable(said):
                await said(reader, writer)
            else:
                writer.write(said)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.closed.set()


@asynccontextmanager
async def web(answers: Mapping[str, Answer], tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    served = Web(answers)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    async with server:
        yield served


def fetched(answers: Mapping[str, Answer], path: str = "/", **options: Any) -> Page:
    """What fetching a path from a trusted server gives."""

    async def main() -> Page:
        async with web(answers) as server:
            return await Fetch()(server.url + path, trusted=server.url, **options)

    return asyncio.run(main())


def refusal(answers: Mapping[str, Answer], path: str = "/", **options: Any) -> str:
    with pytest.raises(Refused) as refused:
        fetched(answers, path, **options)
    return refused.value.reason


# what comes back


def test_a_page() -> None:
    page = fetched({"/a": answer("größe".encode(), Content_Type="Text/Plain; Charset=UTF-8", X_Own="1")}, "/a#part")
    assert (page.status, page.type, page.text, page.headers["x-own"]) == (200, "text/plain", "größe", "1")
    assert page.url.endswith("/a")
    assert page.good() is page


def test_what_is_asked() -> None:
    async def main() -> tuple[str, dict[str, str], bytes]:
        async with web({"/s": answer()}) as server:
            address = f"{server.url}/s?a=1"
            await Fetch()(address, params={"q": "a b&c", "n": 2}, headers={"X-Key": "k"}, trusted=server.url + "/x")
            return server.asked[0]

    line, headers, body = asyncio.run(main())
    assert (line, body) == ("GET /s?a=1&q=a+b%26c&n=2", b"")
    assert headers["x-key"] == "k"
    assert headers["accept-encoding"] == "gzip, deflate"
    assert headers["connection"] == "close"
    assert headers["user-agent"].startswith("brain-sse/")
    assert "cookie" not in headers


def test_a_body_is_posted() -> None:
    async def main() -> tuple[str, dict[str, str], bytes]:
        async with web({"/s": answer()}) as server:
            await Fetch()(f"{server.url}/s", method="POST", body=b"a=1", trusted=server.url)
            return server.asked[0]

    line, _, body = asyncio.run(main())
    assert (line, body) == ("POST /s", b"a=1")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("404 Not Found", "has no such page; check the address; or try another source"),
        ("403 Forbidden", "refuses to show this; or try another source"),
        ("429 Too Many Requests", "gets too many requests; wait a while; or try another source"),
        ("503 Service Unavailable", "has trouble of its own; or try another source"),
        ("418 Teapot", "answers with status 418; or try another source"),
    ],
)
def test_an_answer_of_any_status_is_a_page_which_may_be_not_good(status: str, reason: str) -> None:
    page = fetched({"/": answer(b"<p>no", status, Content_Type="image/png")})
    assert (page.status, page.body) == (int(status[:3]), b"<p>no")
    with pytest.raises(Refused) as refused:
        page.good()
    assert refused.value.reason.partition(" ")[2] == reason


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("größe".encode("cp1252"), "text/html; charset=ISO-8859-1", "größe"),
        ("größe €".encode("cp1252"), "text/html; charset=us-ascii", "größe €"),
        ("日本".encode("shift_jis"), 'text/html; charset="Shift_JIS"', "日本"),
        (b"<meta charset='koi8-r'>" + "Привет".encode("koi8-r"), "text/html", "<meta charset='koi8-r'>Привет"),
        (b'<?xml version="1.0" encoding="iso-8859-15"?>' + "€".encode("iso8859-15"), "application/xml",
         '<?xml version="1.0" encoding="iso-8859-15"?>€'),
        ("\ufeffgröße".encode(), "text/html; charset=cp1251", "größe"),
        ("\ufeffgröße".encode("utf-16-le"), "text/html", "größe"),
        (b"caf\xe9", "text/html; charset=utf-8", "caf\ufffd"),
        (b"plain", "text/html; charset=rot13", "plain"),
        (b"plain", "text/html; charset=punycode", "plain"),
        (b"plain", "text/html; charset=x\x00y", "plain"),
    ],
)  # fmt: skip
def test_text_by_its_encoding(body: bytes, kind: str, text: str) -> None:
    assert Page("http://a/", 200, kind.partition(";")[0], {}, body, _charset(kind)).text == text


def _charset(kind: str) -> str | None:
    found = kind.partition("charset=")[2].strip('"')
    return found or None


def test_json() -> None:
    page = fetched({"/": answer(b'{"a":[1,2]}', Content_Type="application/json")}, types=("application/json",))
    assert page.json() == {"a": [1, 2]}


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"a":', b"[" * 45_000, b"NaN", b"\xff"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        Page("http://search.example/x", 200, "application/json", {}, body).json()
    assert refused.value.reason == "search.example did not answer in JSON; try another source"


@pytest.mark.parametrize(
    "body", [b"[" + b"[[]]," * 800_000 + b"0]", b"[" + b'"",' * 1_300_000 + b"0]", b'"' * 4_000_000]
)
def test_json_that_would_hold_everything_up_is_refused(body: bytes) -> None:
    """The first takes 0.4 s to read, in one go."""
    with pytest.raises(Refused) as refused:
        Page("http://search.example/x", 200, "application/json", {}, body).json()
    assert refused.value.reason == "search.example answers with too many pieces of data at once; ask for less"


def test_json_of_few_values_may_be_long() -> None:
    text = '{"a": [1, "' + '<p class=\\"x\\">[a], {b}\\\\</p>' * 100_000 + '"]}'
    value = Page("http://a/", 200, "application/json", {}, text.encode()).json()
    assert value["a"][1][:24] == '<p class="x">[a], {b}\\</'
    assert len(value["a"][1]) == 2_600_000


# size, type, compression, time


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream", "video/mp4; x=text/html", ""])
def test_another_type_is_refused(kind: str) -> None:
    assert "which cannot be read" in refusal({"/": answer(Content_Type=kind)})


def test_a_length_that_is_too_large_is_refused_before_it_is_read() -> None:
    assert (
        refusal({"/": answer(Content_Length="5000000")})
        == "127.0.0.1 is larger than 4 MiB, which is too much; try another source"
    )


def test_an_endless_body_is_refused() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"", Content_Length=""))
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    assert "larger than 0.5 MiB" in refusal({"/": endless}, most=524_288)


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"hello", mtime=0)),
        ("GZIP", gzip.compress(b"hello", mtime=0)),
        ("gzip", gzip.compress(b"hel", mtime=0) + gzip.compress(b"", mtime=0) + gzip.compress(b"lo", mtime=0)),
        ("gzip", gzip.compress(b"hello", mtime=0) + b"\0" * 512),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")[2:-4]),
        ("identity", b"hello"),
    ],
)
def test_compressed(encoding: str, packed: bytes) -> None:
    assert fetched({"/": answer(packed, Content_Encoding=encoding)}).body == b"hello"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip,deflate", "x"])
def test_other_compressions_are_refused(encoding: str) -> None:
    assert "compressed in a way" in refusal({"/": answer(gzip.compress(b"x"), Content_Encoding=encoding)})


@pytest.mark.parametrize("body", [b"no gzip at all", gzip.compress(b"hello" * 1000, mtime=0)[:20] + b"\xff" * 50])
def test_damaged_compression_is_refused(body: bytes) -> None:
    assert "is damaged" in refusal({"/": answer(body, Content_Encoding="gzip")})


def test_a_bomb_is_refused_before_it_is_blown_up() -> None:
    bomb = gzip.compress(bytes(64_000_000))
    assert len(bomb) < 70_000
    assert "larger than 4 MiB" in refusal({"/": answer(bomb, Content_Encoding="gzip")})


def test_what_never_answers_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    assert "did not answer within 0.2 seconds" in refusal({"/": silent}, seconds=0.2)


def test_what_drips_is_given_up() -> None:
    async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"", Content_Length="100000"))
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.01)

    assert "did not answer within 0.2 seconds" in refusal({"/": dripping}, seconds=0.2)


@pytest.mark.parametrize(
    "said", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_what_breaks_off_is_refused(said: bytes) -> None:
    assert refusal({"/": said}) == "127.0.0.1 cannot be reached or broke off; try another source"


def test_a_head_without_end_is_refused() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-A: " + b"x" * 60_000 + b"\r\n")
            await writer.drain()

    assert "broke off" in refusal({"/": endless})


def test_a_cancelled_fetch_closes_its_connection() -> None:
    reached = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.read()

    async def main() -> None:
        async with web({"/": silent}) as server:
            task = asyncio.create_task(Fetch()(server.url, trusted=server.url))
            await reached.wait()
            task.cancel()
            async with asyncio.timeout(0.1):
                await server.closed.wait()

    asyncio.run(main())


# the loop of the turns goes on, whatever an answer is like


def in_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Awaitable[None]:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(b"1\r\nx\r\n" * 40_000 + b"0\r\n\r\n")
    return writer.drain()


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(in_chunks, id="40,000 chunks"),
        pytest.param(b"HTTP/1.1 103 \r\n\r\n" * 20_000 + answer(), id="20,000 hints"),
        pytest.param(answer().replace(b"\r\n", b"\r\n" + b"a:\r\n" * 24_000, 1), id="24,000 lines"),
    ],
)
def test_an_answer_that_takes_long_to_parse_blocks_no_turn(said: Answer) -> None:
    """On the loop of the turns these took 370, 160 and 100 ms, in which it came round four times at most."""

    async def main() -> int:
        rounds = 0

        async def watch() -> None:
            nonlocal rounds
            while True:
                await asyncio.sleep(0.001)
                rounds += 1

        async with web({"/": said}) as server:
            await Fetch()(f"{server.url}/other", trusted=server.url)  # what the first one of all has to import
            watching = asyncio.create_task(watch())
            await Fetch()(server.url, trusted=server.url)
            watching.cancel()
        return rounds

    assert asyncio.run(main()) > 6


def test_a_resolver_that_hangs_is_left_behind() -> None:
    async def hanging(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(30)
        return []

    async def main() -> float:
        task = asyncio.create_task(Fetch(resolve=hanging)("http://slow.example/"))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - began

    assert asyncio.run(main()) < 0.5  # of 10 s


def test_the_resolver_of_the_machine() -> None:
    assert "127.0.0.1" in asyncio.run(resolved("localhost", 80))
    with pytest.raises(socket.gaierror):
        asyncio.run(resolved("no-such-host.invalid", 80))


# where it goes

REFUSED = [
    "http://{trap}/", "http://localhost:{port}/", "http://127.1:{port}/", "http://0:{port}/", "http://[::1]:{port}/",
    "http://2130706433:{port}/", "http://0x7f000001:{port}/", "http://017700000001:{port}/", "http://0x7f.0.0.1:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/", "http://[::ffff:7f00:1]:{port}/", "http://[::127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/", "http://[2002:7f00:1::]:{port}/", "http://[fe80::1%25lo]:{port}/",
    "http://user@127.0.0.1:{port}/", "http://user:password@{trap}/", "http://example.org@{trap}/",
    "http://127.0.0.1.:{port}/", "http://localhost.:{port}/", "HTTP://LOCALHOST:{port}/", "http://{trap}\\@example.org/",
    "http://{trap}#@example.org/", "http://example.org#@{trap}/", "http:///{trap}/", "http:{trap}", "//{trap}/",
    "{trap}", "https://xn--a.example/", "https://xn--ls8h.la/", "https://xn--.com/", "https://☃.example/",
    "ftp://{trap}/", "file:///etc/passwd", "gopher://{trap}/_GET", "data:text/plain,hello", "javascript:alert(1)",
    "http+unix://%2Fvar%2Frun/", "http://①②⑦.⓪.⓪.①:{port}/", "http://127。0。0。1:{port}/", "http://{trap}:80/",
    "http://169.254.169.254/latest/meta-data/", "http://100.100.100.200/", "http://[fd00:ec2::254]/", "http://10.0.0.1/",
    "http://192.168.0.1/", "http://172.16.0.1/", "http://metadata.google.internal/", "http://168.63.129.16/",
    "http://255.255.255.255/", "http://224.0.0.1/", "http://0.0.0.0/", "http://[::]/", "http://", "", " ",
    "\x00", "http://%",
    "http://example.org:22/", "http://example.org:0/", "http://example.org:65536/", "http://a b/", "http://[/",
    "x" * 5000,
    "http://" + "a." * 2000, "http://\u202e/", "http://exa\r\nmple.org/", "http://{trap}\t/",
]  # fmt: skip


def test_a_trap_on_this_machine_is_never_touched() -> None:
    async def main() -> tuple[int, list[str]]:
        async with web({"/": answer()}) as trap:
            urls = [url.replace("{trap}", trap.host).replace("{port}", str(trap.port)) for url in REFUSED]
            return trap.connections, [url for url in urls if not await refuses(url)]

    assert asyncio.run(main()) == (0, [])


@pytest.mark.parametrize("port", ["", ":80", ":443"])
@pytest.mark.parametrize("url", [url for url in REFUSED if "{port}" in url and "@" not in url])
def test_at_a_usual_port_it_is_the_address_that_is_refused(url: str, port: str) -> None:
    async def main() -> str:
        with pytest.raises(Refused) as refused:
            await Fetch()(url.replace(":{port}", port))
        return refused.value.reason

    assert re.match("there is no public host |that is no address", asyncio.run(main()))


async def refuses(url: str) -> bool:
    try:
        await Fetch()(url, seconds=2)
    except Refused as refused:
        return bool(refused.reason)
    return False


def names(**addresses: Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """A resolver that knows these names (`_` for `.`), and what was asked of it."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses.get(host.replace(".", "_"), [host] if host[0].isdigit() else [])

    return resolve


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["::ffff:127.0.0.1"], []]
)
def test_a_name_with_any_private_address_is_refused_in_the_words_for_none(addresses: list[str]) -> None:
    async def main() -> str:
        with pytest.raises(Refused) as refused:
            await Fetch(resolve=names(inside_example=addresses))("http://inside.example/")
        return refused.value.reason

    assert asyncio.run(main()) == "there is no public host inside.example; correct the address or try another source"


def test_a_name_is_resolved_once_and_its_address_is_the_one_that_is_asked() -> None:
    """The server name system may say something else the second time: DNS rebinding."""
    answers = [["127.0.0.1"], ["8.8.8.8"]]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async def main() -> tuple[Page, str]:
        async with web({"/": answer()}) as server:
            allowed = frozenset({f"rebind.example:{server.port}"})
            page = await Fetch(allowed, resolve)(f"http://rebind.example:{server.port}/")
            return page, server.asked[0][1]["host"].partition(":")[0]

    page, host = asyncio.run(main())
    assert (page.text, host, answers) == ("hello", "rebind.example", [["8.8.8.8"]])


def test_the_next_address_is_tried_when_one_takes_no_connection() -> None:
    async def main() -> str:
        async with web({"/": answer()}) as server:
            resolve = names(two_example=["::1", "127.0.0.2", "127.0.0.1"])
            allowed = frozenset({f"two.example:{server.port}"})
            return (await Fetch(allowed, resolve)(f"http://two.example:{server.port}/")).text

    assert asyncio.run(main()) == "hello"


def test_the_next_address_is_tried_when_one_swallows_everything() -> None:
    async def main() -> str:
        async with web({"/": answer()}) as server:
            with socket.socket() as deaf, socket.socket() as one, socket.socket() as two:
                deaf.bind(("127.0.0.2", server.port))
                deaf.listen(0)
                for waiting in (one, two):  # its queue is full now, and what comes next is dropped
                    waiting.setblocking(False)
                    waiting.connect_ex(("127.0.0.2", server.port))
                resolve = names(two_example=["127.0.0.2", "127.0.0.1"])
                fetch = Fetch(frozenset({f"two.example:{server.port}"}), resolve)
                return (await fetch(f"http://two.example:{server.port}/", seconds=0.9)).text

    assert asyncio.run(main()) == "hello"


def test_port_0_is_no_usual_port() -> None:
    with pytest.raises(Refused, match="port 0 cannot be fetched"):
        asyncio.run(Fetch()("http://8.8.8.8:0/"))


def test_an_address_of_ipv6_is_allowed_in_whatever_form_it_is_written() -> None:
    async def main(url: str, allowed: str) -> list[str]:
        asked: list[str] = []

        async def resolve(host: str, port: int) -> Sequence[str]:
            asked.append(f"{host} {port}")
            return ["::1"]

        with suppress(Refused):
            await Fetch(frozenset({allowed}), resolve)(url, seconds=1)
        return asked

    assert asyncio.run(main("http://[0:0:0:0:0:0:0:1]:9/", "[::1]:9")) == ["::1 9"]
    assert asyncio.run(main("http://[::1]:9/", "::1:9")) == []  # which is an address without a port


@pytest.mark.parametrize("hosts", [{"127.0.0.1"}, {"127.0.0.1:{port}"}])
def test_the_operator_may_allow_hosts(hosts: set[str]) -> None:
    async def main() -> str | None:
        async with web({"/": answer()}) as server:
            allowed = frozenset(host.replace("{port}", str(server.port)) for host in hosts)
            try:
                return (await Fetch(allowed)(server.url)).text
            except Refused as refused:
                return refused.reason.replace(str(server.port), "PORT")

    with_port = asyncio.run(main())
    assert with_port == (
        "hello" if "127.0.0.1" not in hosts else "port PORT cannot be fetched, only the usual ones of http and https"
    )


def test_only_the_trusted_origin_is_trusted() -> None:
    async def main() -> list[str]:
        async with web({"/": answer()}) as trusted, web({"/": answer()}) as other:
            refused = []
            for url in (other.url, f"http://localhost:{trusted.port}", f"https://{trusted.host}"):
                with pytest.raises(Refused) as error:
                    await Fetch()(url, trusted=trusted.url)
                refused.append(error.value.reason.partition(" ")[0])
            assert (trusted.connections, other.connections) == (0, 0)
            return refused

    assert asyncio.run(main()) == ["port", "port", "port"]


# redirects


def test_redirects_are_followed() -> None:
    page = fetched({"/a": redirect("/b", "301 Moved"), "/b": redirect("c?x=1"), "/c": answer(b"end")}, "/a")
    assert (page.text, page.url.partition("/c")[1:]) == ("end", ("/c", "?x=1"))


def test_a_redirect_without_a_target_is_an_answer() -> None:
    assert fetched({"/": answer(b"", "304 Not Modified")}).status == 304
    assert fetched({"/": answer(b"", "302 Found")}).status == 302


def test_a_circle_of_redirects_ends() -> None:
    assert "redirects too often" in refusal({"/": redirect("/")})


@pytest.mark.parametrize(
    "target",
    ["http://{trap}/", "//{trap}/", "http://localhost:{port}/", "http://169.254.169.254/", "file:///etc/passwd",
     "http://user@{trap}/", "http://[::1]:{port}/", "gopher://{trap}/", "http://\x00/", "http://[", "x" * 9000],
)  # fmt: skip
def test_a_redirect_is_checked_like_the_first_address(target: str) -> None:
    async def main() -> int:
        async with web({"/": answer()}) as trap:
            there = target.replace("{trap}", trap.host).replace("{port}", str(trap.port))
            async with web({"/": redirect(there)}) as server:
                with pytest.raises(Refused):
                    (await Fetch()(server.url, trusted=server.url)).good()
            return trap.connections

    assert asyncio.run(main()) == 0


@pytest.mark.parametrize(
    ("status", "line", "body"),
    [("302 Found", "GET /b", b""), ("303 See Other", "GET /b", b""), ("307 Temporary Redirect", "POST /b", b"x"),
     ("308 Permanent Redirect", "POST /b", b"x")],
)  # fmt: skip
def test_what_becomes_of_a_posted_body(status: str, line: str, body: bytes) -> None:
    async def main() -> tuple[str, bytes, str | None]:
        async with web({"/a": redirect("/b", status), "/b": answer()}) as server:
            await Fetch()(f"{server.url}/a", method="POST", body=b"x", headers={"X-Key": "k"}, trusted=server.url)
            asked, headers, sent = server.asked[1]
            return asked, sent, headers.get("x-key")

    assert asyncio.run(main()) == (line, body, "k")


def test_another_origin_gets_no_headers_and_no_body() -> None:
    async def main() -> tuple[str | None, str]:
        async with (
            web({"/": answer()}) as other,
            web({"/": redirect(other.url), "/p": redirect(other.url, "307 T")}) as server,
        ):
            fetch = Fetch(frozenset({server.host, other.host}))
            await fetch(server.url, headers={"Authorization": "secret"})
            with pytest.raises(Refused) as refused:
                await fetch(f"{server.url}/p", method="POST", body=b"secret")
            return other.asked[0][1].get("authorization"), refused.value.reason

    assert asyncio.run(main()) == (None, "127.0.0.1 redirects to another host, which gets nothing of what was sent")


# connections, proxies, cookies, certificates


def test_a_connection_serves_one_request() -> None:
    async def main() -> tuple[int, int]:
        async with web({"/": answer(Set_Cookie="a=1")}) as server:
            fetch = Fetch(frozenset({server.host}))
            await fetch(server.url)
            await fetch(server.url)
            assert "cookie" not in server.asked[1][1]
            return len(server.asked), server.connections

    assert asyncio.run(main()) == (2, 2)


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> int:
        async with web({"/": answer(b"proxied")}) as proxy, web({"/": answer(b"direct")}) as server:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(name, proxy.url)
            assert (await Fetch()(server.url, trusted=server.url)).text == "direct"
            return proxy.connections

    assert asyncio.run(main()) == 0


def test_tls_checks_the_name_and_not_the_address() -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("right.example").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def main() -> tuple[str, str]:
        async with web({"/": answer()}, tls) as server:
            hosts = frozenset({f"right.example:{server.port}", f"wrong.example:{server.port}"})
            resolve = names(right_example=["127.0.0.1"], wrong_example=["127.0.0.1"])
            fetch = Fetch(hosts, resolve, trusting)
            right = await fetch(f"https://right.example.:{server.port}/")  # the root's dot is in no certificate
            with pytest.raises(Refused) as refused:
                await fetch(f"https://wrong.example:{server.port}/")
            with pytest.raises(Refused):
                await Fetch(hosts, resolve)(f"https://right.example:{server.port}/")
            return right.text, refused.value.reason

    assert asyncio.run(main()) == ("hello", "wrong.example cannot be reached or broke off; try another source")


def test_it_serves_several_loops() -> None:
    fetch, found = Fetch(), []

    def work() -> None:
        async def main() -> str:
            async with web({"/": answer()}) as server:
                return (await fetch(server.url, trusted=server.url)).text

        found.append(asyncio.run(main()))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["hello"] * 3


@pytest.mark.parametrize("method", ["get", "G T", "", "GET\r\nX: y"])
def test_a_method_is_a_word_in_capitals(method: str) -> None:
    with pytest.raises(ValueError, match="is no method"):
        asyncio.run(Fetch()("http://example.org/", method=method))
