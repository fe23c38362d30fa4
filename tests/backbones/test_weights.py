"""Fetching over a line that breaks, checksums, conversion: against a server on the loopback interface."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from factorjepa.backbones import build, load
from factorjepa.backbones.weights import CATALOGUE, Release, convert, fetch, release_of, verify
from factorjepa.errors import BackboneError
from factorjepa.verbs.model import weights_app

from .conftest import TINY

CONTENT = bytes(range(256)) * 4096  # 1 MiB
RELEASE = Release("tiny", "tiny.pt")
SHA = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `content`; each number in `drops` makes one answer stop after that many bytes."""

    content = CONTENT
    etag: str | None = '"one"'
    ranges = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.drops: list[int] = []
        self.codes: list[int] = []
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/tiny.pt"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range")
        server.asked.append(asked)
        if server.codes:
            self.send_error(server.codes.pop(0))
            return
        start = 0
        if_range = self.headers.get("If-Range")
        if asked and server.ranges and if_range in (None, server.etag):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        else:
            self.send_response(200)
        if server.etag:
            self.send_header("ETag", server.etag)
        body = server.content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.drops.pop(0)] if server.drops else body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def get(server: Server, folder: Path, release: Release = RELEASE, **options: object) -> Path:
    checked = fetch(release, folder, url=server.url, pause=0.0, timeout=5.0, **options)  # type: ignore[arg-type]
    assert checked.ok
    return checked.path


def test_a_dropped_connection_is_resumed_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.drops = [100_000, 300_000]
    seen: list[tuple[int, int | None]] = []
    path = get(server, tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=400000-"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["tiny.pt", "tiny.pt.sha256"]


def test_a_line_that_stays_dead_keeps_what_arrived_for_the_next_run(server: Server, tmp_path: Path) -> None:
    server.drops = [50_000, 0, 0]
    with pytest.raises(BackboneError, match="run the same command again"):
        get(server, tmp_path, attempts=2)
    assert not (tmp_path / "tiny.pt").exists()
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=50000-"


def test_a_server_without_ranges_sends_the_whole_file_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.drops = [70_000]
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_file_that_changed_between_two_connections_is_not_glued_together(server: Server, tmp_path: Path) -> None:
    server.drops = [50_000, 0, 0]
    with pytest.raises(BackboneError):
        get(server, tmp_path, attempts=2)
    server.content, server.etag = CONTENT[::-1], '"two"'
    assert get(server, tmp_path).read_bytes() == CONTENT[::-1]


def test_a_busy_server_is_asked_again_and_a_missing_file_is_not(server: Server, tmp_path: Path) -> None:
    server.codes = [503, 503]
    assert get(server, tmp_path / "a").read_bytes() == CONTENT
    server.codes = [404]
    with pytest.raises(BackboneError, match="404"):
        get(server, tmp_path / "b")
    assert server.codes == []


def test_the_first_download_is_trusted_and_recorded_and_then_held_to(server: Server, tmp_path: Path) -> None:
    first = fetch(RELEASE, tmp_path, url=server.url)
    assert (first.trust, first.sha256) == ("first use", SHA)
    assert (tmp_path / "tiny.pt.sha256").read_text() == f"{SHA}  tiny.pt\n"
    again = fetch(RELEASE, tmp_path, url=server.url)
    assert (again.trust, again.ok) == ("record", True)
    assert len(server.asked) == 1  # nothing is downloaded twice
    first.path.write_bytes(CONTENT[:-1] + b"x")
    assert not verify(first.path).ok
    with pytest.raises(BackboneError, match="damaged or changed"):
        fetch(RELEASE, tmp_path, url=server.url)


def test_a_download_that_is_not_what_was_recorded_is_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / "tiny.pt.sha256").write_text(f"{'0' * 64}  tiny.pt\n")
    with pytest.raises(BackboneError, match="was deleted"):
        get(server, tmp_path)
    known = Release("tiny", "tiny.pt", sha256=SHA)
    (tmp_path / "tiny.pt.sha256").unlink()
    assert fetch(known, tmp_path, url=server.url).trust == "catalogue"
    assert not (tmp_path / "tiny.pt").with_name(".tiny.pt.download").exists()


def test_a_dead_address_says_so(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"http://127\.0\.0\.1:9"):
        fetch(RELEASE, tmp_path, url="http://127.0.0.1:9/tiny.pt", attempts=2, pause=0.0, timeout=2.0)


def test_an_official_file_converts_to_safetensors_with_equal_outputs(tmp_path: Path) -> None:
    source = build(TINY, seed=3).eval()
    prefixed = {f"module.backbone.{key}": tensor for key, tensor in source.encoder.state_dict().items()}
    torch.save({"ema_encoder": prefixed, "predictor": source.predictor.state_dict()}, tmp_path / "official.pt")
    origin = convert(tmp_path / "official.pt", TINY, tmp_path / "ours.safetensors")
    assert origin == "official.pt: ema_encoder, predictor"
    video = torch.randn(1, 3, 8, 32, 32)
    with torch.no_grad():
        assert load(tmp_path / "ours.safetensors", TINY).eval().encoder(video).equal(source.encoder(video))
    with pytest.raises(BackboneError, match=r"must end in \.safetensors"):
        convert(tmp_path / "official.pt", TINY, tmp_path / "ours.bin")


def test_the_catalogue_names_every_released_architecture_over_https() -> None:
    assert len(CATALOGUE) == 8
    assert all(release.url.startswith("https://dl.fbaipublicfiles.com/vjepa2/") for release in CATALOGUE.values())
    assert release_of("vjepa2_1_vit_gigantic_384").file == "vjepa2_1_vitG_384.pt"
    with pytest.raises(BackboneError, match="nano"):
        release_of("nano")


def test_the_fetch_command_says_where_the_file_is_and_that_it_was_trusted(server: Server, tmp_path: Path) -> None:
    words = ["fetch", "vjepa2_vit_large", "--folder", str(tmp_path), "--url", server.url]
    result = CliRunner().invoke(weights_app, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert str(tmp_path / "vitl.pt") in result.output
    assert "first download is trusted" in result.output
    assert (tmp_path / "vitl.pt").read_bytes() == CONTENT


def test_two_fetches_of_one_file_do_not_interleave(server: Server, tmp_path: Path) -> None:
    import fcntl

    with open(tmp_path / ".tiny.pt.download", "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BackboneError, match="another fetch"):
            get(server, tmp_path)


def test_a_failed_fetch_leaves_no_empty_files(server: Server, tmp_path: Path) -> None:
    server.codes = [404]
    with pytest.raises(BackboneError):
        get(server, tmp_path)
    assert list(tmp_path.iterdir()) == []
