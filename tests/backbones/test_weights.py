"""Fetching over a line that breaks, checksums, conversion: against a server on the loopback interface."""

from __future__ import annotations

import hashlib
import io
import re
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from factorjepa import terminal
from factorjepa.backbones import build, load
from factorjepa.backbones.releases import CATALOGUE, Release, release_of
from factorjepa.backbones.weights import convert, fetch, verify
from factorjepa.errors import BackboneError, StorageError
from factorjepa.verbs.model import weights_app

from .conftest import TINY, miniature

RELEASE = Release("nano", "tiny.pt")


def checkpoint(epoch: int) -> bytes:
    """A file with nano's keys and shapes, padded to a megabyte."""
    with tempfile.TemporaryDirectory() as folder:
        miniature(Path(folder) / "file.pt", "nano", epoch=epoch, padding=torch.zeros(2**18))
        return (Path(folder) / "file.pt").read_bytes()


CONTENT, CHANGED = checkpoint(1), checkpoint(2)
SHA = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `content`; each number in `drops` makes one answer stop after that many bytes."""

    content = CONTENT
    etag: str | None = '"one"'
    ranges = True
    shift = 0  # bytes by which a partial answer begins elsewhere than asked

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
            start = int(asked.removeprefix("bytes=").removesuffix("-")) + server.shift
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
    server.content, server.etag = CHANGED, '"two"'
    assert get(server, tmp_path).read_bytes() == CHANGED


def test_an_answer_that_begins_elsewhere_than_asked_is_not_glued_on(server: Server, tmp_path: Path) -> None:
    server.drops, server.shift = [100_000], 7
    with pytest.raises(BackboneError, match="another part of the file"):
        get(server, tmp_path, attempts=2)
    assert not (tmp_path / "tiny.pt").exists()


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
    known = Release("nano", "tiny.pt", sha256=SHA)
    (tmp_path / "tiny.pt.sha256").unlink()
    assert fetch(known, tmp_path, url=server.url).trust == "catalogue"
    assert not (tmp_path / "tiny.pt").with_name(".tiny.pt.download").exists()


def test_a_checksum_that_the_user_knows_outranks_every_other(server: Server, tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"expected 0{64} \(given\); it was deleted"):
        get(server, tmp_path, sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BackboneError, match="64 hexadecimal digits"):
        get(server, tmp_path, sha256="0" * 63)
    (tmp_path / "tiny.pt.sha256").write_text(f"{'0' * 64}  tiny.pt\n")
    checked = fetch(RELEASE, tmp_path, url=server.url, sha256=SHA.upper())
    assert (checked.trust, checked.holds) == ("given", "nano, encoder and predictor")
    assert (tmp_path / "tiny.pt.sha256").read_text() == f"{SHA}  tiny.pt\n"
    with pytest.raises(BackboneError, match=r"\(given\)"):  # also of a file that is here already
        get(server, tmp_path, sha256="0" * 64)


def test_a_login_page_sent_instead_of_the_file_is_neither_kept_nor_trusted(server: Server, tmp_path: Path) -> None:
    server.content = b"<!DOCTYPE html><title>Sign in to the network</title>"
    with pytest.raises(BackboneError, match=r"what arrived was deleted.*it is text, beginning '<!DOCTYPE"):
        get(server, tmp_path)
    assert list(tmp_path.iterdir()) == []
    server.content = CONTENT
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_weights_of_another_architecture_are_kept_but_not_trusted(server: Server, tmp_path: Path) -> None:
    other = Release("vjepa2_1_vit_base_384", "tiny.pt")
    with pytest.raises(BackboneError, match=r"name of vjepa2_1_vit_base_384, but holds nano"):
        get(server, tmp_path, other)
    assert [file.name for file in tmp_path.iterdir()] == ["tiny.pt"]


@pytest.mark.parametrize("address", ["tiny.pt", "file:///etc/passwd", "ftp://127.0.0.1/tiny.pt"])
def test_only_the_web_is_fetched_from(tmp_path: Path, address: str) -> None:
    with pytest.raises(BackboneError, match="not an address of the web"):
        fetch(RELEASE, tmp_path, url=address)


def test_a_folder_that_cannot_be_made_is_said(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file: is a file, where a folder has to be"):
        get(server, tmp_path / "file" / "weights")


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
    miniature(tmp_path / "source.pt", "vjepa2_vit_large")
    server.content = (tmp_path / "source.pt").read_bytes()
    words = ["fetch", "vjepa2_vit_large", "--folder", str(tmp_path), "--url", server.url]
    result = CliRunner().invoke(weights_app, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert f"{tmp_path / 'vitl.pt'}: vjepa2_vit_large, encoder and predictor" in result.output
    assert "first download is trusted" in result.output
    assert re.search(r"vitl.pt: 0 MB of 0 MB, [\d.]+ MB/s", result.stderr)  # no terminal: plain lines
    assert (tmp_path / "vitl.pt").read_bytes() == server.content
    known = hashlib.sha256(server.content).hexdigest()
    again = CliRunner().invoke(weights_app, [*words, "--sha256", known], catch_exceptions=False)
    assert "agrees with the one given" in again.output


def test_a_terminal_shows_a_bar_with_the_amount_and_the_rate(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "error_console", Console(file=screen, force_terminal=True, width=120))
    with terminal.downloading("tiny.pt") as progress:
        get(server, tmp_path, progress=progress)
    shown = Text.from_ansi(screen.getvalue()).plain
    assert re.search(r"tiny.pt ━+ 1\.\d/1\.\d MB [\d.]+ [kMGT]B/s \d:\d\d:\d\d", shown)


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
