"""Released weights: what there is, fetching that survives a broken line, checksums, conversion.

The publishers give no checksums. The first complete download is therefore trusted if its keys fit the architecture, its
SHA-256 is written beside it (`FILE.sha256`, in the form `sha256sum --check` reads), and from then on the file is held
to it. Who knows a checksum can give it, and nothing is taken on trust.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from ..errors import BackboneError
from ..storage import storage_error, write_text
from .releases import RELEASES, Release
from .spec import BackboneSpec

if TYPE_CHECKING:
    from .recognition import Parts

_CHUNK = 1 << 20
_RETRIED = {408, 429, 500, 502, 503, 504}

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all if the server said
Trust = Literal["given", "catalogue", "record", "first use"]


@dataclass(frozen=True)
class Checked:
    """A file's SHA-256, what it was compared with, whether it agreed, and if so what the file holds."""

    path: Path
    sha256: str
    trust: Trust
    ok: bool
    holds: str = ""


def weights_folder() -> Path:
    """Where fetched weights go unless told: `$FACTORJEPA_WEIGHTS`, else the user's cache folder."""
    stated = os.environ.get("FACTORJEPA_WEIGHTS")
    if stated:
        return Path(stated)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "factorjepa" / "weights"


def fetch(
    release: Release,
    folder: Path,
    *,
    url: str | None = None,
    sha256: str | None = None,
    progress: Progress | None = None,
    attempts: int = 5,
    pause: float = 1.0,
    timeout: float = 30.0,
) -> Checked:
    """Download `release` into `folder`, continuing what an earlier call left, and check it.

    A dropped connection is resumed up to `attempts` times in a row without a new byte. The file appears under its name
    only when it is as long as the server said, its checksum agrees (`sha256`, the catalogue's, or the one recorded
    before) and it can be read as weights. Weights that do not fit the architecture are kept, since they may have taken
    hours, but not recorded. `url` names a mirror.
    """
    address = url or release.url
    if not address.startswith(("https://", "http://")):
        raise BackboneError(f"{address}: not an address of the web (https://…)")
    target = folder / release.file
    if target.exists():
        checked = verify(target, release, sha256=sha256)
        if not checked.ok:
            raise BackboneError(_mismatch(target, checked))
        return checked
    wanted, trust = _wanted(target, release, sha256)
    partial = partial_of(target)
    with _only_one(partial):
        _download(address, partial, progress, attempts, pause, timeout)
        digest = sha256_of(partial)
        if wanted is not None and digest != wanted:
            _discard(partial)
            accept = f": delete {_record(target).name} to accept it" if trust == "record" else ""
            raise BackboneError(
                f"{target}: the download's SHA-256 is {digest}, expected {wanted} ({trust}); it was deleted. Fetch "
                f"again; if it stays so, the publisher's file has changed{accept}"
            )
        _need_weights(partial, address)
        os.replace(partial, target)
        _resume_note(partial).unlink(missing_ok=True)
    holds = _recognised(target, release)
    write_text(_record(target), f"{digest}  {target.name}\n")
    return Checked(target, digest, trust, ok=True, holds=holds)


def verify(
    path: Path, release: Release | None = None, *, sha256: str | None = None, progress: Progress | None = None
) -> Checked:
    """Compare a file's SHA-256 with the given, the catalogue's or the recorded one, and say what it holds.

    Without any of them the sum is recorded (first use), but only of whole weights of a known architecture.
    """
    if not path.is_file():
        raise BackboneError(f"{path}: no such weights file")
    release = release or next((known for known in RELEASES.values() if known.file == path.name), None)
    wanted, trust = _wanted(path, release, sha256)
    # With nothing to compare with, what is wrong is said at once rather than after reading gigabytes.
    holds = _recognised(path, release) if wanted is None else ""
    digest = sha256_of(path, progress)
    if wanted not in (None, digest):
        return Checked(path, digest, trust, ok=False)
    holds = holds or _recognised(path, release)
    if wanted is None:
        write_text(_record(path), f"{digest}  {path.name}\n")
    return Checked(path, digest, trust, ok=True, holds=holds)


def convert(source: Path, arch: str | BackboneSpec, target: Path, parts: Parts = "both") -> str:
    """Rewrite an official file as safetensors (averaged encoder and predictor only); return what was taken."""
    from .checkpoint import load, save

    if target.suffix != ".safetensors":
        raise BackboneError(f"{target}: the converted file must end in .safetensors")
    backbone = load(source, arch, parts=parts)
    save(backbone, target)
    return backbone.origin


def sha256_of(path: Path, progress: Progress | None = None) -> str:
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, total)
    return digest.hexdigest()


def partial_of(target: Path) -> Path:
    """Where a download lies until it is complete."""
    return target.with_name(f".{target.name}.download")


def _recognised(path: Path, release: Release | None) -> str:
    """What the file holds, in words; an error unless that is whole weights, and of the release that it is named for."""
    from .families import fitting
    from .reading import open_weights
    from .recognition import recognise

    try:
        if names := fitting(open_weights(path)):
            holds = f"{' or '.join(names)}, an encoder"
        else:
            found = recognise(path)
            names, holds = found.names, str(found)
    except BackboneError as error:
        raise BackboneError(f"{error}\n  No checksum was recorded.") from None
    if release is not None and release.arch not in names:
        raise BackboneError(
            f"{path}: has the name of {release.arch}, but holds {holds}; rename it. No checksum was recorded."
        )
    return holds


def _need_weights(partial: Path, address: str) -> None:
    """A login page or an error page sent as if it were the file is not worth keeping."""
    from .reading import open_weights

    try:
        open_weights(partial)
    except BackboneError as error:
        _discard(partial)
        raise BackboneError(f"{address}: what arrived was deleted. {error}") from None


def _discard(partial: Path) -> None:
    os.truncate(partial, 0)  # locked by us: emptied here, removed when the lock is given up
    _resume_note(partial).unlink(missing_ok=True)


def _wanted(path: Path, release: Release | None, given: str | None) -> tuple[str | None, Trust]:
    if given is not None:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", given):
            raise BackboneError(f"{given!r} is not a SHA-256: 64 hexadecimal digits are expected")
        return given.lower(), "given"
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
        if offset and not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
            raise ConnectionError("the server sent another part of the file than it was asked for")
        length = response.headers.get("Content-Length", "")
        total = offset + int(length) if length.isdigit() else None
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

    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        lock = open(partial, "ab")  # noqa: SIM115 (closed by the with below)
    except OSError as error:
        raise storage_error(partial, error) from None
    with lock as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BackboneError(f"{partial}: another fetch of this file is running; wait for it") from None
        try:
            yield
        finally:
            if partial.exists() and partial.stat().st_size == 0:
                partial.unlink()
