"""Outbound fetches, against real servers on this machine."""

import asyncio
import gzip
import socket
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import trustme

from brain import Page, Refused, concurrency
from brain.net.fetch import Fetch, normalize_url, resolve_host

Answer = bytes | Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Request = tuple[str, dict[str, str], bytes]
"""Method and target, headers, body."""


def answer(body: bytes = b"hello", status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer; header names are written with `_` for `-`."""
    fields = {"Content_Type": "text/plain", "Content_Length": str(len(body)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items() if value]
    return f"HTTP/1.1 {status}\r\n".encode() + "\r\n".join([*lines, "", ""]).encode() + body


def redirect(target: str, status: str = "302 Found") -> bytes:
    return answer(b"", status, Location=target)


@dataclass
class Web:
    """A server that plays answers by path, and keeps its requests."""

    answers: Mapping[str, Answer]
    requests: list[Request] = field(default_factory=list)
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
            self.requests.append((f"{method} {path}", headers, body))
            found = self.answers.get(path.partition("?")[0], answer(b"", "404 Not Found"))
            if callable(found):
                await found(reader, writer)
            else:
                writer.write(found)
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


def fetch(answers: Mapping[str, Answer] | Answer, path: str = "/", **options: Any) -> tuple[Page | str, list[Request]]:
    """What fetching a path from a trusted server gives, a page or the reason of a refusal; and the requests."""

    async def main() -> tuple[Page | str, list[Request]]:
        async with web(answers if isinstance(answers, Mapping) else {"/": answers}) as server:
            try:
                return await Fetch()(server.url + path, trusted=server.url, **options), server.requests
            except Refused as refused:
                return refused.reason, server.requests

    return asyncio.run(main())


def page_of(*arguments: Any, **options: Any) -> Page:
    found, _ = fetch(*arguments, **options)
    assert isinstance(found, Page), found
    return found


async def reason_of(fetching: Awaitable[object]) -> str:
    with pytest.raises(Refused) as refused:
        await fetching
    return refused.value.reason


def resolver(**addresses: Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """A resolver that knows these names, with `_` for `.`."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses.get(host.replace(".", "_"), [host] if host[0].isdigit() else [])

    return resolve


# Pages


def test_a_request_and_its_page() -> None:
    given = answer("größe".encode(), Content_Type="Text/Plain; Charset=UTF-8", X_Own="1")
    page, ((line, headers, body),) = fetch(
        {"/s": given}, "/s?a=1#part", params={"q": "a b&c", "n": 2}, headers={"X-Key": "k"}
    )
    assert isinstance(page, Page)
    assert (page.status, page.type, page.text, page.headers["x-own"]) == (200, "text/plain", "größe", "1")
    assert (page.url.partition("/s")[2], page.good()) == ("?a=1&q=a+b%26c&n=2", page)
    assert (line, body, headers["x-key"]) == ("GET /s?a=1&q=a+b%26c&n=2", b"", "k")
    assert (headers["accept-encoding"], headers["connection"]) == ("gzip, deflate", "close")
    assert (headers["user-agent"][:10], "cookie" in headers) == ("brain-sse/", False)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("", "/"),
        ("#top", "/"),
        ("?a=1", "/?a=1"),
        ("/?", "/?"),
        ("/a/./b/../c#d", "/a/c"),
        ("//a///", "//a///"),
        ("/%41%2f%c3?%41=+", "/%41%2f%c3?%41=+"),
        ("/größe?ü=ä b", "/gr%C3%B6%C3%9Fe?%C3%BC=%C3%A4%20b"),
        ("/\u200b \\", "/%E2%80%8B%20\\"),
        (" \n", "/"),
    ],
)
def test_the_normal_form_of_a_url_is_what_is_sent(path: str, sent: str) -> None:
    _, ((line, headers, _),) = fetch({}, path)
    assert line == f"GET {sent}"
    url = f"http://{headers['host']}{sent}"
    assert normalize_url(f"http://{headers['host']}{path}") == url == normalize_url(url)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTPS://Own.EXAMPLE", "https://own.example/"),
        ("https://own.example.:443/", "https://own.example/"),
        ("http://own.example..:80", "http://own.example/"),
        ("http://own.example:443/", "http://own.example:443/"),
        ("https://bücher.example", "https://xn--bcher-kva.example/"),
        ("https://[::1]:8080/", "https://[::1]:8080/"),
        ("https://ada:pä@own.example", "https://ada:p%C3%A4@own.example/"),
        *[(url, None) for url in ("own.example", "ftp://own.example", "https://", "https://xn--a/", "https://a:b/")],
        *[(url, None) for url in ("https://own.example/\n/", "mailto:ada@own.example", "")],
    ],
)
def test_the_normal_form_of_a_host(url: str, normal: str | None) -> None:
    if normal is None:
        with pytest.raises(ValueError, match=r"\w"):
            normalize_url(url)
    else:
        assert normalize_url(url) == normalize_url(normal) == normal


@pytest.mark.parametrize("status", [404, 503])
def test_a_page_of_any_status_is_fetched(status: int) -> None:
    page = page_of(answer(b"<p>no", f"{status} X", Content_Type="image/png"))
    assert (page.status, page.body) == (status, b"<p>no")
    with pytest.raises(Refused):
        page.good()


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
def test_text_is_decoded(body: bytes, kind: str, text: str) -> None:
    charset = kind.partition("charset=")[2].strip('"') or None
    assert Page("http://a/", 200, kind.partition(";")[0], {}, body, charset).text == text


CHARSETS = [
    ("gb2312", b"\xe9\x46 \x80", "镕 €"),  # not in GB 2312, and a euro sign of Windows
    ("x-gbk", b"\x81\x30\x81\x30", "\x80"),  # four bytes of GB 18030
    ("euc-kr", b"\x8c\x63\xb9\xe6", "똠방"),  # only in Windows-949
    ("ks_c_5601-1987", b"\xc7\xd1", "한"),
    ("big5", b"\xf9\xd6\xc6\xa1\x87\x40", "碁①䏰"),  # vendors and Hong Kong
    ("x-x-big5", b"\xa4\xa4", "中"),
    ("shift_jis", b"\x87\x40\x93\x8c", "①東"),
    ("windows-31j", b"\x87\x8a", "㈱"),
    ("x-sjis", b"\xfb\xfc", "髙"),
    ("euc-jp", b"\xad\xa1\xad\xea\xc5\xec", "①㈱東"),
    ("x-euc-jp", b"\x8e\xb1", "ｱ"),
    ("iso-2022-jp", b"\x1b$BEl\x1b(I1\x1b(B", "東ｱ"),
    ("iso-8859-1", b"\x93\x80\x94", "“€”"),
    ("ascii", b"\x96\xe9", "–é"),
    ("latin1", b"\x85", "…"),
    ("iso-8859-9", b"\x80\xfd", "€ı"),
    ("tis-620", b"\x80\xa1", "€ก"),
    ("iso-8859-11", b"\x93\xa1", "“ก"),
    ("dos-874", b"\xa1", "ก"),
    ("iso-8859-8-i", b"\xe0", "א"),
    ("logical", b"\xe0", "א"),
    ("iso_8859-2:1987", b"\xb3", "ł"),
    ("x-cp1250", b"\xb3", "ł"),
    ("x-mac-roman", b"\x8a", "ä"),
    ("x-mac-cyrillic", b"\x80", "А"),
    ("koi8-ru", b"\xa4", "є"),
    ("866", b"\x80", "А"),
    ("unicode-1-1-utf-8", b"\xc3\xa9", "é"),
    ("johab", b"\xc3\xa9", "é"),  # no label: UTF-8
]
IN_HEADERS = [("utf-16", b"h\0i\0", "hi"), ("unicodefffe", b"\0h\0i", "hi"), ("x-user-defined", b"a\x80", "a\uf780")]
IN_DOCUMENTS = [("utf-16", b"\xc3\xa9", "é"), ("utf-16be", b"\xc3\xa9", "é"), ("x-user-defined", b"\x80", "€")]
UNREAD = ("iso-2022-kr", "hz-gb-2312", "iso-2022-cn", "csiso2022kr", "replacement")


@pytest.mark.parametrize(("label", "body", "text"), CHARSETS + IN_HEADERS)
def test_charsets_of_servers_are_those_of_the_web(label: str, body: bytes, text: str) -> None:
    for name in (label, label.upper(), f" {label} "):
        assert Page("http://a/", 200, "text/html", {}, body, name).text == text


@pytest.mark.parametrize(("label", "body", "text"), CHARSETS + IN_DOCUMENTS)
def test_charsets_of_documents_are_those_of_the_web(label: str, body: bytes, text: str) -> None:
    for head in (
        f'<meta charset="{label}">',
        f"<html><META content='text/html; charset={label}' http-equiv=content-type>",
        f"<!-- <meta charset=koi8-r> --><meta charset={label} />",
    ):
        assert Page("http://a/", 200, "text/html", {}, head.encode() + body, "unknown").text == head + text
        assert Page("http://a/", 200, "text/html", {}, b"\xef\xbb\xbf" + head.encode() + b"\xc3\xa9").text == head + "é"


@pytest.mark.parametrize("label", UNREAD)
def test_charsets_in_which_scripts_hide_are_refused(label: str) -> None:
    for page in (
        Page("http://a/", 200, "text/html", {}, b"x", label),
        Page("http://a/", 200, "text/html", {}, f"<meta charset={label}>".encode()),
    ):
        with pytest.raises(Refused, match=r"^a sent text in an encoding that is not read$"):
            _ = page.text


def test_a_body_of_unknown_characters_takes_no_longer() -> None:
    body = b"\x80" * 3_000_000
    assert Page("http://a/", 200, "text/html", {}, body, "gbk").text == "\ufffd" * 3_000_000


MANY_VALUES = [b"[" + b"[[]]," * 800_000 + b"0]", b"[" + b'"",' * 1_300_000 + b"0]", b'"' * 4_000_000]
"""Decoding the first one would take 0.4 seconds."""


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"a":', b"[" * 45_000, b"NaN", b"\xff", *MANY_VALUES])
def test_bad_json(body: bytes) -> None:
    with pytest.raises(Refused, match=r"search\.example") as refused:
        Page("http://search.example/x", 200, "application/json", {}, body).json()
    assert ("50,000" in refused.value.reason) == (body in MANY_VALUES)


def test_json_of_few_values_may_be_long() -> None:
    assert page_of(answer(b'{"a":[1,2]}', Content_Type="application/json")).json() == {"a": [1, 2]}
    text = '{"a": [1, "' + '<p class=\\"x\\">[a], {b}\\\\</p>' * 100_000 + '"]}'
    value = Page("http://a/", 200, "application/json", {}, text.encode()).json()
    assert (value["a"][1][:24], len(value["a"][1])) == ('<p class="x">[a], {b}\\</', 2_600_000)


# Size, type, compression, time


async def endless_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(b"", Content_Length=""))
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def endless_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-A: " + b"x" * 60_000 + b"\r\n")
        await writer.drain()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def silent_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(b"", Content_Length="100000") + b"x")
    await reader.read()


PACKED = gzip.compress(b"hello", mtime=0)


@pytest.mark.parametrize(
    ("given", "options", "part"),
    [
        *(
            (answer(Content_Type=kind), {}, kind.partition(";")[0])
            for kind in ("image/png", "application/octet-stream", "video/mp4; x=text/html", "")
        ),
        (answer(Content_Length="5000000"), {}, "4 MiB"),
        (endless_body, {"most": 524_288}, "0.5 MiB"),
        (answer(gzip.compress(bytes(64_000_000), mtime=0), Content_Encoding="gzip"), {}, "4 MiB"),
        (answer(gzip.compress(b"", mtime=0) * 300_000, Content_Encoding="gzip", Content_Length=""), {}, "4 MiB"),
        *(
            (answer(gzip.compress(b"x", mtime=0), Content_Encoding=encoding), {}, "compression")
            for encoding in ("br", "zstd", "gzip, gzip", "gzip,deflate", "x")
        ),
        (answer(b"no gzip at all", Content_Encoding="gzip"), {}, "damaged"),
        (answer(gzip.compress(b"hello" * 1000, mtime=0)[:20] + b"\xff" * 50, Content_Encoding="gzip"), {}, "damaged"),
        *((given, {"seconds": 0.05}, "0.05 seconds") for given in (silent, silent_body)),
        *((data, {}, "connection") for data in (b"", b"garbage\r\n\r\n", answer(Content_Length="9"), endless_head)),
    ],
)
def test_what_cannot_be_read_is_refused(given: Answer, options: Any, part: str) -> None:
    found, _ = fetch(given, **options)
    assert isinstance(found, str)
    assert ("127.0.0.1" in found, part in found) == (True, True)


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", PACKED),
        ("GZIP", PACKED),
        ("gzip", gzip.compress(b"hel", mtime=0) + gzip.compress(b"", mtime=0) + gzip.compress(b"lo", mtime=0)),
        ("gzip", PACKED + b"\0" * 512),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")[2:-4]),
        ("identity", b"hello"),
    ],
)
def test_compression(encoding: str, packed: bytes) -> None:
    assert page_of(answer(packed, Content_Encoding=encoding)).body == b"hello"


async def in_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(b"1\r\nx\r\n" * 40_000 + b"0\r\n\r\n")
    await writer.drain()


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(in_chunks, id="40,000 chunks"),
        pytest.param(b"HTTP/1.1 103 \r\n\r\n" * 20_000 + answer(), id="20,000 hints"),
        pytest.param(answer().replace(b"\r\n", b"\r\n" + b"a:\r\n" * 24_000, 1), id="24,000 lines"),
    ],
)
def test_an_answer_that_takes_long_to_parse_blocks_no_turn(given: Answer) -> None:
    """On the loop of the turns, parsing took 370, 160 and 100 ms and allowed four rounds."""

    async def main() -> int:
        rounds = 0
        async with web({"/": given}) as server:
            await Fetch()(f"{server.url}/other", trusted=server.url)  # what the first one of all has to import
            fetching = asyncio.create_task(Fetch()(server.url, trusted=server.url))
            while not fetching.done():
                await asyncio.sleep(0)
                rounds += 1
        return rounds

    assert asyncio.run(main()) > 50


def test_a_cancelled_fetch_closes_its_connection() -> None:
    async def main() -> None:
        reached = asyncio.Event()

        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reached.set()
            await reader.read()

        async with web({"/": wait}) as server:
            task = asyncio.create_task(Fetch()(server.url, trusted=server.url))
            await reached.wait()
            task.cancel()
            await server.closed.wait()

    asyncio.run(main())


def test_a_resolver_that_hangs_is_left_behind() -> None:
    async def main() -> None:
        loop, reached = asyncio.get_running_loop(), asyncio.Event()

        async def hang(host: str, port: int) -> Sequence[str]:
            loop.call_soon_threadsafe(reached.set)
            await asyncio.Event().wait()
            return []

        task = asyncio.create_task(Fetch(resolve=hang)("http://slow.example/", seconds=1e6))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_without_a_thread_no_name_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "MAX_THREADS", 0)
    assert "at the moment" in asyncio.run(reason_of(Fetch()("http://example.org/")))


def test_the_resolver_of_the_machine() -> None:
    assert "127.0.0.1" in asyncio.run(resolve_host("localhost", 80))
    with pytest.raises(socket.gaierror):
        asyncio.run(resolve_host("no-such-host.invalid", 80))


# Where it goes

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
            reasons = [await reason_of(Fetch()(url, seconds=2)) for url in urls]
            return trap.connections, [url for url, reason in zip(urls, reasons, strict=True) if not reason]

    assert asyncio.run(main()) == (0, [])


@pytest.mark.parametrize("port", ["", ":80", ":443"])
@pytest.mark.parametrize("url", [url for url in REFUSED if "{port}" in url and "@" not in url])
def test_at_a_usual_port_the_address_is_refused(url: str, port: str) -> None:
    assert asyncio.run(reason_of(Fetch()(url.replace(":{port}", port))))


def test_a_name_with_any_private_address_is_refused_like_one_without_addresses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    private = [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["::ffff:127.0.0.1"]]

    async def main() -> set[str]:
        fetches = [Fetch(resolve=resolver(inside_example=addresses)) for addresses in (*private, [])]
        return {await reason_of(fetch("http://inside.example/")) for fetch in fetches}

    assert len(asyncio.run(main())) == 1
    assert [record.args for record in caplog.records] == [("inside.example",)] * len(private)


def test_a_name_is_resolved_once() -> None:
    """The second answer of the name server may be another one: DNS rebinding."""
    answers = [["127.0.0.1"], ["8.8.8.8"]]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async def main() -> tuple[str, str]:
        async with web({"/": answer()}) as server:
            fetch = Fetch(frozenset({f"rebind.example:{server.port}"}), resolve)
            page = await fetch(f"http://rebind.example:{server.port}/")
            return page.text, server.requests[0][1]["host"].partition(":")[0]

    assert (asyncio.run(main()), answers) == (("hello", "rebind.example"), [["8.8.8.8"]])


@pytest.mark.parametrize("is_deaf", [False, True])
def test_the_next_address_is_tried(is_deaf: bool) -> None:
    """Nothing listens at the first ones; or it listens, and its queue is full, so that all packets are dropped."""

    async def main() -> str:
        async with web({"/": answer()}) as server:
            with socket.socket() as deaf, socket.socket() as one, socket.socket() as two:
                if is_deaf:
                    deaf.bind(("127.0.0.2", server.port))
                    deaf.listen(0)
                    for waiting in (one, two):
                        waiting.setblocking(False)
                        waiting.connect_ex(("127.0.0.2", server.port))
                resolve = resolver(
                    two_example=["127.0.0.2", "127.0.0.1"] if is_deaf else ["::1", "127.0.0.2", "127.0.0.1"]
                )
                fetch = Fetch(frozenset({f"two.example:{server.port}"}), resolve)
                return (await fetch(f"http://two.example:{server.port}/", seconds=3)).text

    assert asyncio.run(main()) == "hello"


def test_an_ipv6_address_is_allowed_in_any_form() -> None:
    async def resolved_by(url: str, allowed: str) -> list[str]:
        resolved: list[str] = []

        async def resolve(host: str, port: int) -> Sequence[str]:
            resolved.append(f"{host} {port}")
            return ["::1"]

        with suppress(Refused):
            await Fetch(frozenset({allowed}), resolve)(url, seconds=1)
        return resolved

    assert asyncio.run(resolved_by("http://[0:0:0:0:0:0:0:1]:9/", "[::1]:9")) == ["::1 9"]
    assert asyncio.run(resolved_by("http://[::1]:9/", "::1:9")) == []  # which is an address without a port


def test_hosts_of_the_operator_and_the_trusted_origin() -> None:
    async def main() -> None:
        async with web({"/": answer()}) as server, web({"/": answer()}) as other:
            assert (await Fetch(frozenset({server.host}))(server.url)).text == "hello"
            urls = (other.url, f"http://localhost:{server.port}", f"https://{server.host}", "http://8.8.8.8:0/")
            refused = [await reason_of(Fetch()(url, trusted=server.url)) for url in urls]
            refused.append(await reason_of(Fetch(frozenset({"127.0.0.1"}))(server.url)))
            assert ["port" in reason for reason in refused] == [True] * 5
            assert (server.connections, other.connections) == (1, 0)

    asyncio.run(main())


# Redirects


def test_redirects_are_followed() -> None:
    page = page_of({"/a": redirect("/b", "301 Moved"), "/b": redirect("c?x=1"), "/c": answer(b"end")}, "/a")
    assert (page.text, page.url.partition("/c")[1:]) == ("end", ("/c", "?x=1"))
    assert [page_of(answer(b"", status)).status for status in ("304 Not Modified", "302 Found")] == [304, 302]
    assert isinstance(fetch(redirect("/"))[0], str)


@pytest.mark.parametrize(
    "target",
    ["http://{trap}/", "//{trap}/", "http://localhost:{port}/", "http://169.254.169.254/", "file:///etc/passwd",
     "http://user@{trap}/", "http://[::1]:{port}/", "gopher://{trap}/", "http://\x00/", "http://[", "x" * 9000,
     "http://xn--a/", "http:///"],
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
    [("302 X", "GET /b", b""), ("303 X", "GET /b", b""), ("307 X", "POST /b", b"x"), ("308 X", "POST /b", b"x")],
)
def test_redirects_of_a_posted_body(status: str, line: str, body: bytes) -> None:
    answers = {"/a": redirect("/b", status), "/b": answer()}
    _, (first, (found, headers, sent)) = fetch(answers, "/a", method="POST", body=b"x", headers={"X-Key": "k"})
    assert (first[0], first[2]) == ("POST /a", b"x")
    assert (found, sent, headers.get("x-key")) == (line, body, "k")


def test_another_origin_gets_no_headers_and_no_body() -> None:
    async def main() -> str | None:
        async with (
            web({"/": answer()}) as other,
            web({"/": redirect(other.url), "/p": redirect(other.url, "307 T")}) as server,
        ):
            fetch = Fetch(frozenset({server.host, other.host}))
            await fetch(server.url, headers={"Authorization": "secret"})
            await reason_of(fetch(f"{server.url}/p", method="POST", body=b"secret"))
            ((_, headers, _),) = other.requests
            return headers.get("authorization")

    assert asyncio.run(main()) is None


# Connections, proxies, cookies, certificates


def test_a_connection_serves_one_request_without_cookies_and_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with web({"/": answer(b"proxied")}) as proxy, web({"/": answer(Set_Cookie="a=1")}) as server:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(name, proxy.url)
            fetch = Fetch(frozenset({server.host}))
            assert [(await fetch(server.url)).text for _ in range(2)] == ["hello"] * 2
            assert (server.connections, proxy.connections) == (2, 0)
            assert "cookie" not in server.requests[1][1]

    asyncio.run(main())


def test_tls_checks_the_name_and_not_the_address() -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("right.example").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def main() -> None:
        async with web({"/": answer()}, tls) as server:
            right, wrong = (f"https://{name}.example:{server.port}/" for name in ("right", "wrong"))
            hosts = frozenset({f"right.example:{server.port}", f"wrong.example:{server.port}"})
            resolve = resolver(right_example=["127.0.0.1"], wrong_example=["127.0.0.1"])
            fetch = Fetch(hosts, resolve, trusting)
            assert (await fetch(right.replace("e:", "e.:"))).text == "hello"  # the root's dot is in no certificate
            for refused in (fetch(wrong), Fetch(hosts, resolve)(right)):
                await reason_of(refused)
            assert len(server.requests) == 1

    asyncio.run(main())


def test_it_serves_several_loops() -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(page_of(answer()).text)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["hello"] * 3


@pytest.mark.parametrize("method", ["get", "G T", "", "GET\r\nX: y"])
def test_a_method_is_a_word_in_capitals(method: str) -> None:
    with pytest.raises(ValueError, match="HTTP method"):
        asyncio.run(Fetch()("http://example.org/", method=method))
