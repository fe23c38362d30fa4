"""Released weights: what there is, fetching that survives a broken line, checksums, conversion.

The publishers give no checksums. The first complete download is therefore trusted, its SHA-256 is written beside it
(`FILE.sha256`, in the form `sha256sum --check` reads), and from then on the file is held to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from ..errors import BackboneError
from ..storage import storage_error, write_text
from .spec import BackboneSpec

BASE_URL = "https://dl.fbaipublicfiles.com/vjepa2/"
_CHUNK = 1 << 20
_RETRIED = {408, 429, 500, 502, 503, 504}

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all if the server said
Trust = Literal["catalogue", "record", "first use"]


@dataclass(frozen=True)
class Release:
    """One official file. Size and checksum are None where the publisher does not state them."""

    arch: str
    file: str
    bytes: int | None = None
    sha256: str | None = None

    @property
    def url(self) -> str:
        return BASE_URL + self.file


CATALOGUE: dict[str, Release] = {
    release.arch: release
    for release in (
        Release("vjepa2_1_vit_base_384", "vjepa2_1_vitb_dist_vitG_384.pt"),
        Release("vjepa2_1_vit_large_384", "vjepa2_1_vitl_dist_vitG_384.pt"),
        Release("vjepa2_1_vit_giant_384", "vjepa2_1_vitg_384.pt"),
        Release("vjepa2_1_vit_gigantic_384", "vjepa2_1_vitG_384.pt"),
        Release("vjepa2_vit_large", "vitl.pt"),
        Release("vjepa2_vit_huge", "vith.pt"),
        Release("vjepa2_vit_giant", "vitg.pt"),
        Release("vjepa2_vit_giant_384", "vitg-384.pt"),
    )
}


@dataclass(frozen=True)
class Checked:
    """A file's SHA-256, what it was compared with, and whether it agreed."""

    path: Path
    sha256: str
    trust: Trust
    ok: bool


def weights_folder() -> Path:
    """Where fetched weights go unless told: `$FACTORJEPA_WEIGHTS`, else the user's cache folder."""
    stated = os.environ.get("FACTORJEPA_WEIGHTS")
    if stated:
        return Path(stated)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "factorjepa" / "weights"


def release_of(name: str) -> Release:
    if name in CATALOGUE:
        return CATALOGUE[name]
    raise BackboneError(f"no released weights are known for {name!r}; there are: {', '.join(CATALOGUE)}")


def fetch(
    release: Release,
    folder: Path,
    *,
    url: str | None = None,
    progress: Progress | None = None,
    attempts: int = 5,
    pause: float = 1.0,
    timeout: float = 30.0,
) -> Checked:
    """Download `release` into `folder`, continuing what an earlier call left, and check it.

    A dropped connection is resumed up to `attempts` times in a row without a new byte. The file appears under its name
    only when it is complete and its checksum agrees. `url` names a mirror.
    """
    target = folder / release.file
    if target.exists():
        checked = verify(target, release)
        if not checked.ok:
            raise BackboneError(_mismatch(target, checked))
        return checked
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{release.file}.download"
    with _only_one(partial):
        _download(url or release.url, partial, progress, attempts, pause, timeout)
        digest = sha256_of(partial)
        wanted, trust = _wanted(target, release)
        if wanted is not None and digest != wanted:
            os.truncate(partial, 0)
            _resume_note(partial).unlink(missing_ok=True)
            raise BackboneError(
                f"{target}: the download's SHA-256 is {digest}, expected {wanted} ({trust}); it was deleted. Fetch "
                f"again; if it stays so, the publisher's file has changed: delete {_record(target).name} to accept it"
            )
        if wanted is None:
            write_text(_record(target), f"{digest}  {target.name}\n")
        os.replace(partial, target)
        _resume_note(partial).unlink(missing_ok=True)
    return Checked(target, digest, trust, ok=True)


def verify(path: Path, release: Release | None = None) -> Checked:
    """Compare a file's SHA-256 with the catalogue's or the recorded one; without either, record it (first use)."""
    if not path.is_file():
        raise BackboneError(f"{path}: no such weights file")
    release = release or next((known for known in CATALOGUE.values() if known.file == path.name), None)
    wanted, trust = _wanted(path, release)
    digest = sha256_of(path)
    if wanted is None:
        write_text(_record(path), f"{digest}  {path.name}\n")
    return Checked(path, digest, trust, ok=wanted in (None, digest))


def convert(source: Path, arch: str | BackboneSpec, target: Path) -> str:
    """Rewrite an official file as safetensors (averaged encoder and predictor only); return what was taken."""
    from .checkpoint import load, save

    if target.suffix != ".safetensors":
        raise BackboneError(f"{target}: the converted file must end in .safetensors")
    backbone = load(source, arch)
    save(backbone, target)
    return backbone.origin


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _wanted(path: Path, release: Release | None) -> tuple[str | None, Trust]:
    if release is not None and release.sha256:
        return release.sha256, "catalogue"
    record = _record(path)
    if record.is_file():
        words = record.read_text(encoding="utf-8").split()
        if not words or len(words[0]) != 64:
            raise BackboneError(f"{record}: is not a SHA-256 record; delete it to record the file anew")
        return words[0], "record"
    return None, "first use"


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _resume_note(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


def _mismatch(path: Path, checked: Checked) -> str:
    return (
        f"{path}: its SHA-256 {checked.sha256} is not the expected one ({checked.trust}): the file was damaged or "
        "changed. Delete it and fetch it again"
    )


def _download(url: str, partial: Path, progress: Progress | None, attempts: int, pause: float, timeout: float) -> None:
    """Fill `partial` to the length that the server states."""
    failures = 0
    while True:
        start = partial.stat().st_size if partial.exists() else 0
        try:
            if _transfer(url, partial, progress, timeout):
                return
            problem = "the connection was closed early"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in _RETRIED:
                raise BackboneError(f"{url}: the server answered {error.code} ({error.reason}); try a mirror") from None
            problem = f"the server answered {error.code}"
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            problem = str(getattr(error, "reason", error)) or type(error).__name__
        grown = partial.exists() and partial.stat().st_size > start
        failures = 1 if grown else failures + 1
        if failures >= attempts:
            raise BackboneError(
                f"{url}: {problem}, {failures} times in a row. What has arrived is kept in {partial}: run the same "
                "command again to continue"
            )
        time.sleep(pause * 2 ** (failures - 1))


def _transfer(url: str, partial: Path, progress: Progress | None, timeout: float) -> bool:
    """One connection; True when the file is complete."""
    note = _read_note(partial)
    offset = partial.stat().st_size if partial.exists() and note.get("url") == url else 0
    headers = {"Accept-Encoding": "identity", "User-Agent": "factorjepa"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if note.get("validator"):
            headers["If-Range"] = note["validator"]  # a file that changed meanwhile is sent whole
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        error.close()
        if offset == note.get("length"):
            return True
        os.truncate(partial, 0)  # longer than the server's file: begin again
        return False
    with response:
        offset = offset if response.status == 206 else 0
        length = response.headers.get("Content-Length")
        total = offset + int(length) if length else None
        if offset and note.get("length") not in (None, total):
            os.truncate(partial, 0)  # the server's file is another one now
            return False
        validator = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if validator and validator.startswith("W/"):
            validator = None  # a weak tag does not promise equal bytes
        _need_space(partial, (total or 0) - offset)
        _resume_note(partial).write_text(json.dumps({"url": url, "length": total, "validator": validator}))
        try:
            with open(partial, "r+b") as file:  # the locked file itself: never replaced while it is filled
                done = _copy(response, file, offset, total, progress)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            raise storage_error(partial, error) from error
    return total is None or done == total


def _copy(response: Any, file: IO[bytes], offset: int, total: int | None, progress: Progress | None) -> int:
    file.seek(offset)
    done = offset
    while chunk := _read(response):
        file.write(chunk)
        done += len(chunk)
        if progress is not None:
            progress(done, total)
    file.truncate()
    file.flush()
    os.fsync(file.fileno())
    return done


def _read(response: Any) -> bytes:
    try:
        return bytes(response.read1(_CHUNK))
    except OSError as error:  # a broken line (reset, timeout, TLS); writing errors stay storage errors
        raise ConnectionError(str(error) or type(error).__name__) from error


def _read_note(partial: Path) -> dict[str, Any]:
    try:
        note = json.loads(_resume_note(partial).read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _need_space(partial: Path, needed: int) -> None:
    free = shutil.disk_usage(partial.parent).free
    if needed > free:
        raise BackboneError(
            f"{partial.parent}: {needed / 1e9:.1f} GB are to come and {free / 1e9:.1f} GB are free; "
            "choose another folder"
        )


@contextlib.contextmanager
def _only_one(partial: Path) -> Iterator[None]:
    """Two downloads into one file would interleave: hold a lock on it. An empty leftover is removed."""
    import fcntl

    with open(partial, "ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BackboneError(f"{partial}: another fetch of this file is running; wait for it") from None
        try:
            yield
        finally:
            if partial.exists() and partial.stat().st_size == 0:
                partial.unlink()
