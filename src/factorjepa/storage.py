"""Writes that are whole or absent: temporary file, fsync, rename.

A reader never sees half a file, and a killed writer leaves at most a `.*.partial` that the next run removes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from .errors import StorageError

PARTIAL = ".partial"
_LOCK = ".writer.lock"
_IN_WORDS = re.compile(r"\(os error (\d+)\)")
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within: what the system refuses is said of `path`, with advice."""
    before = sys.exception()  # is handled already, and is the context of whatever comes
    try:
        yield
    except Exception as error:
        refused = refusal(error)
        if refused is None or refused is before:
            raise
        raise storage_error(path, refused) from error


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of `path`; on success it is fsynced and renamed over `path`, on failure removed."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.touch()
            mode = temporary.stat().st_mode  # that of any new file: some libraries write for the owner alone
            temporary.unlink()
            yield temporary
            temporary.chmod(mode)
            with open(temporary, "rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, path)
            _fsync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, then move it over `path` in one step."""
    with atomic_path(path) as temporary:
        write(temporary)


def write_text(path: Path, text: str) -> None:
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def refusal(error: BaseException) -> OSError | None:
    """The system's refusal to write behind an error; nothing where it is another kind of error.

    safetensors tells it in words alone, and what torch.save raises for a file that is open has it as its context.
    """
    if isinstance(error, OSError):
        return error
    if type(error).__name__ == "SafetensorError" and (numbered := _IN_WORDS.search(str(error))):
        return OSError(int(numbered[1]), os.strerror(int(numbered[1])))
    return error.__context__ if type(error) is RuntimeError and isinstance(error.__context__, OSError) else None


def _dangling(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def storage_error(path: Path | str, error: OSError) -> StorageError:
    """Turn an OSError met while writing `path` into advice."""
    if error.errno in DISK_FULL:
        return StorageError(
            f"{path}: the disk is full ({error.strerror}). Finished files are kept and complete: free some space "
            "or choose another folder, then run the same command again to continue."
        )
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return StorageError(f"{path}: not writable ({error.strerror}). Choose a folder you may write to.")
    if error.errno in {errno.ENOTDIR, errno.EEXIST}:
        in_the_way = next((one for one in (Path(path), *Path(path).parents) if one.is_file() or _dangling(one)), None)
        if in_the_way is not None:
            what = "a file" if in_the_way.is_file() else "a link that leads nowhere"
            return StorageError(
                f"{in_the_way}: is {what}, where a folder has to be. Choose another folder, or delete it."
            )
    return StorageError(f"{path}: could not be written ({error.strerror or error}).")


def remove_partials(folder: Path, deep: bool = True) -> int:
    """Delete what a killed writer left under `folder` (in it alone unless `deep`); return how many files that were."""
    leftovers = list((folder.rglob if deep else folder.glob)(f".*{PARTIAL}"))
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    return len(leftovers)


def inside(folder: Path, relative: str) -> Path:
    """Resolve `relative` under `folder`, refusing absolute paths, `..` and links that lead out of it."""
    try:
        root = folder.resolve()
        candidate = (root / relative).resolve()
    except (ValueError, RuntimeError, OSError) as error:  # a NUL byte, a loop of links, a name too long
        raise StorageError(f"path {relative!r} under {folder} cannot be resolved ({error})") from None
    if Path(relative).is_absolute() or not candidate.is_relative_to(root):
        raise StorageError(f"path {relative!r} leaves its folder {folder}: only paths inside the folder are allowed")
    return candidate


@contextlib.contextmanager
def only_writer(folder: Path, doing: str) -> Iterator[None]:
    """Hold the folder's lock, which the system releases when the process dies however it dies.

    Who fails before anything was written leaves no folder behind that was not there before.
    """
    lock, new = _hold(folder, doing)
    try:
        yield
    except BaseException:
        _remove_empty(folder, new)
        raise
    finally:
        os.close(lock)


@contextlib.contextmanager
def in_turn(folder: Path, name: str, waiting: Callable[[], object]) -> Iterator[None]:
    """Hold the folder's lock of that name. Who finds it held calls `waiting`, and waits until the holder is done."""
    with contextlib.ExitStack() as held:
        try:
            lock = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
            held.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise storage_error(folder, error) from error
        yield


def _hold(folder: Path, doing: str) -> tuple[int, list[Path]]:
    """The folder's lock, taken, and the folders that had to be made for it, the innermost first.

    Between opening the lock and taking it, a writer that failed may have removed it: what is held then is a file that
    the next writer does not find, and keeps nobody out. So whoever holds a file that is not there any more starts over.
    """
    while True:
        new = [one for one in (folder, *folder.parents) if not one.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise storage_error(folder, error) from error
        try:
            _take(lock, folder, doing)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(folder / _LOCK)):
                    return lock, new
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _remove_empty(folder: Path, new: list[Path]) -> None:
    """Of the folders that a writer made, those that hold nothing but its lock. It still holds that."""
    with contextlib.suppress(OSError):
        if folder in new and [one.name for one in folder.iterdir()] == [_LOCK]:
            (folder / _LOCK).unlink()
            for one in new:  # the innermost first
                one.rmdir()


def refuse_unwritable(folder: Path) -> None:
    """An error before the work if its results could not be written there; nothing is left behind."""
    place = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise storage_error(folder, error) from error


def refuse_busy(folder: Path, doing: str) -> None:
    """An error if some process holds the folder's lock; nothing is created or taken."""
    # Without a lock nobody holds it; where it may not be opened, the error that says so comes with the writing.
    with contextlib.suppress(FileNotFoundError, PermissionError):
        try:
            lock = os.open(folder / _LOCK, os.O_RDONLY)
        except NotADirectoryError as error:
            raise storage_error(folder, error) from error
        try:
            _take(lock, folder, doing)
        finally:
            os.close(lock)


def _take(lock: int, folder: Path, doing: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StorageError(
            f"{folder}: another process is {doing} into it; wait for it or choose another folder"
        ) from None


def _fsync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot fsync a directory; the rename is still atomic
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
