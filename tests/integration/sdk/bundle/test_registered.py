"""Bundles fetched from a service that lies, breaks off or is none: one line of reason, and no token for others."""

import json
import ssl
import subprocess
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.base.service import MAX_JSON_BYTES, Service, ServiceRequestError
from physai.sdk.bundle.archive import BundleError
from physai.sdk.bundle.registered import cache_folder, fetch_bundle, push_bundle

CONTENT = b"what was published"
DIGEST = sha256_hex(CONTENT)


@dataclass
class Liar:
    """An HTTP server that answers each path as it is told."""

    server: ThreadingHTTPServer
    url: str
    answers: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """What is sent for a path: a whole answer with its head."""
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Path of each request, and its token."""


def answer(content: bytes, *, status: str = "200 OK", head: str = "") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Length: {len(content)}\r\n{head}\r\n".encode() + content


@pytest.fixture
def liar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Liar]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            liar.asked.append((self.path, self.headers.get("authorization", "")))
            self.wfile.write(liar.answers[self.path])

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    liar = Liar(server, f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    yield liar
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_bundle_is_fetched_once(liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSAI_TOKEN", "physai_secret")
    prefix = DIGEST[:10]
    liar.answers[f"/v1/registry/bundle?prefix={prefix}"] = answer(json.dumps([{"sha256": DIGEST}]).encode())
    liar.answers[f"/v1/blobs/{DIGEST}"] = answer(CONTENT)
    service = Service.parse(liar.url + "/")
    assert "secret" not in repr(service)
    assert fetch_bundle(service, prefix) == CONTENT
    assert [token for _, token in liar.asked] == ["Bearer physai_secret"] * 2
    assert fetch_bundle(service, DIGEST) == CONTENT
    assert len(liar.asked) == 2
    (cache_folder() / f"{DIGEST}.physai").write_bytes(b"damaged")
    assert fetch_bundle(service, DIGEST) == CONTENT
    assert len(liar.asked) == 3


FORGED: dict[str, tuple[bytes, str]] = {
    "other-content": (answer(b"what was not published"), "sent other content than"),
    "cut": (answer(CONTENT).replace(b"18", b"99"), "the answer broke off"),
    "redirect": (answer(b"", status="302 Found", head="Location: /elsewhere\r\n"), r"HTTP 302"),
    "problem": (answer(b'{"detail": "no file has it"}', status="404 Not Found"), r"no file has it \(HTTP 404\)"),
    "no-problem": (answer(b"[" * 100_000, status="500 Oops"), r"not a service of .* \(HTTP 500\)"),
    "no-http": (b"SSH-2.0-OpenSSH\r\n", "cannot be reached: SSH-2.0"),
    "nothing": (b"", "cannot be reached: Remote end closed connection"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_answer_is_refused(liar: Liar, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSAI_TOKEN", "physai_secret")
    content, reason = FORGED[name]
    liar.answers = {f"/v1/blobs/{DIGEST}": content, "/elsewhere": answer(CONTENT)}
    with pytest.raises(ServiceRequestError, match=reason) as caught:
        fetch_bundle(Service.parse(liar.url), DIGEST)
    assert "secret" not in str(caught.value)
    assert [path for path, _ in liar.asked] == [f"/v1/blobs/{DIGEST}"], "the token must not follow a redirection"
    assert not list(cache_folder().glob("*"))


LISTS: dict[str, tuple[bytes, str]] = {
    "none": (b"[]", r"names 0 bundles .*\(none\); .*physai bundle push"),
    "two": (json.dumps([{"sha256": "0a" * 32}, {"sha256": "0a" * 31 + "0b"}]).encode(), "names 2 bundles"),
    "other": (json.dumps([{"sha256": DIGEST}]).encode(), "names 0 bundles"),
    "path": (json.dumps([{"sha256": "0a0a0a0a/../../../etc"}]).encode(), "lists no bundles"),
    "object": (b'{"sha256": 1}', "lists no bundles"),
    "numbers": (b"[1]", "lists no bundles"),
    "text": (b"<html>", "the answer is not JSON"),
    "deep": (b"[" * 100_000, "the answer is not JSON"),
    "large": (b" " * (MAX_JSON_BYTES + 1), "more than 1048576 bytes"),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_names_no_bundle(liar: Liar, name: str) -> None:
    content, reason = LISTS[name]
    liar.answers = {"/v1/registry/bundle?prefix=0a0a0a0a": answer(content)}
    with pytest.raises(PhysaiError, match=reason) as caught:
        fetch_bundle(Service.parse(liar.url), "0a0a0a0a")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8800", "ftp://a", "file:///etc/passwd", "http://", "http://a:0", "http://a:99999"),
        *("http://u:p@a", "http://a/?x", "http://a/#x", "http://a b", "http://a\n", "http://ä", "http://[::1"),
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ServiceRequestError, match="is no address of a service"):
        Service.parse(url)


def test_an_unknown_certificate_is_refused(liar: Liar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", "/CN=twins", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    liar.server.socket = context.wrap_socket(liar.server.socket, server_side=True)
    liar.answers[f"/v1/blobs/{DIGEST}"] = answer(CONTENT)
    service = Service.parse(liar.url.replace("http:", "https:"))
    with pytest.raises(ServiceRequestError, match="certificate verify failed"):
        fetch_bundle(service, DIGEST)
    assert liar.asked == []
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert fetch_bundle(service, DIGEST) == CONTENT


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "[::1]:1", "127.0.0.1:1"])
def test_an_address_where_nothing_answers(host: str) -> None:
    with pytest.raises(ServiceRequestError, match="cannot be reached: ") as caught:
        Service.parse(f"http://{host}").get("/v1/jobs")
    assert len(str(caught.value).splitlines()) == 1


def test_a_damaged_token_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSAI_TOKEN", "physai_secret\nX-Other: 1")
    with pytest.raises(ServiceRequestError, match="PHYSAI_TOKEN has characters") as caught:
        Service.parse("http://127.0.0.1")
    assert "secret" not in str(caught.value)


def test_what_is_no_bundle_is_not_sent(liar: Liar) -> None:
    with pytest.raises(BundleError, match="not a bundle"):
        push_bundle(b"no bundle" * 10, server=Service.parse(liar.url))
    assert liar.asked == []
