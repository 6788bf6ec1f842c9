"""Keeps: where a client's tokens and registrations are kept, for this process or for longer.

A keep maps a text to a text and can hold a lock on one of them. ``antiphon.testing.contracts.check_keep`` checks that
a keep of your own does what the others do.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import stat
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Protocol

from antiphon.errors import AntiphonError
from antiphon.rounds.token import Codec, Seal, SealBroken, guard_of, parse_keys
from antiphon.stores.store import Store

_FIRST_LOOK, _LAST_LOOK = 0.01, 0.2
_LEASE = 30.0
"""Seconds that a lock in a store lives if its holder dies: longer than a refresh may take."""
_DRAFT = 60.0
"""Seconds after which the draft of a file is one that a killed process left behind."""


class KeepBroken(AntiphonError):
    """A keep that cannot be used: it says why."""


class Keep(Protocol):
    """Where tokens are kept. ``lasting`` says whether they outlive the process."""

    lasting: bool

    async def get(self, key: str) -> str | None:
        """Return what is kept under a name, or None."""
        ...

    async def put(self, key: str, value: str) -> None:
        """Keep a value under a name, in place of any other."""
        ...

    async def drop(self, key: str) -> None:
        """Forget what is kept under a name."""
        ...

    def alone(self, key: str) -> AbstractAsyncContextManager[None]:
        """Wait until no other user of the keep is alone with this key."""
        ...


class Memory:
    """Keeps tokens as long as this object lives."""

    lasting = False

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, key: str) -> str | None:
        return self._values.get(key)

    async def put(self, key: str, value: str) -> None:
        self._values[key] = value

    async def drop(self, key: str) -> None:
        self._values.pop(key, None)

    def alone(self, key: str) -> AbstractAsyncContextManager[None]:
        return self._locks.setdefault(key, asyncio.Lock())


class File:
    """Keeps tokens in files that only you can read, one for each server, in a folder of your state directory.

    The folder is ``$XDG_STATE_HOME/antiphon/logins`` (``~/.local/state/...``, ``%LOCALAPPDATA%`` on Windows), unless
    another one is given.
    """

    lasting = True

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder is not None else state_folder() / "antiphon" / "logins"

    async def get(self, key: str) -> str | None:
        return await asyncio.to_thread(self._read, self._path(key))

    async def put(self, key: str, value: str) -> None:
        await asyncio.to_thread(self._write, self._path(key), value)

    async def drop(self, key: str) -> None:
        await asyncio.to_thread(self._delete, self._path(key))

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncGenerator[None]:
        """Lock a file beside the key's. The system frees it when the process ends, however that is."""
        path = self._path(key).with_suffix(".lock")
        descriptor = await asyncio.to_thread(self._open_lock, path)
        try:
            pause = _FIRST_LOOK
            while not _lock(descriptor, path):
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_LOOK)
            yield
        finally:
            os.close(descriptor)

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"

    def _read(self, path: Path) -> str | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise KeepBroken(f"{path}: cannot be read: {fault.strerror}") from None
        with os.fdopen(descriptor, encoding="utf-8") as file:
            about = os.fstat(descriptor)
            if os.name == "posix" and (about.st_uid != os.getuid() or about.st_mode & 0o077):
                raise KeepBroken(f"{path}: others can read it. Delete it and sign in again, or run: chmod 600 {path}")
            try:
                return file.read()
            except UnicodeDecodeError:
                return None

    def _write(self, path: Path, value: str) -> None:
        try:
            try:
                self._replace(path, value)
            except FileNotFoundError:
                # This process stood still for so long that another one took its draft for an old one.
                self._replace(path, value)
        except OSError as fault:
            raise KeepBroken(f"{path}: cannot be written: {fault.strerror}") from None
        self._delete_old_drafts(path)

    def _replace(self, path: Path, value: str) -> None:
        self._make_folder()
        draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    def _delete(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._delete_old_drafts(path)

    def _delete_old_drafts(self, path: Path) -> None:
        """Delete what killed processes were writing: there are tokens in it."""
        for draft in self.folder.glob(f".{path.name}.*"):
            with contextlib.suppress(OSError):
                if time.time() - draft.stat().st_mtime > _DRAFT:
                    draft.unlink()

    def _open_lock(self, path: Path) -> int:
        self._make_folder()
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError as fault:
            raise KeepBroken(f"{path}: cannot be locked: {fault.strerror}") from None

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = self.folder.stat()
            if os.name == "posix" and about.st_uid == os.getuid() and stat.S_IMODE(about.st_mode) & 0o077:
                self.folder.chmod(0o700)
        except OSError as fault:
            raise KeepBroken(f"{self.folder}: cannot be made: {fault.strerror}") from None


class Keyring:
    """Keeps tokens in the keyring of your desktop. Needs ``pip install antiphon[keyring]``."""

    lasting = True

    def __init__(self, service: str = "antiphon") -> None:
        self._service = service
        self._locks = File()

    async def get(self, key: str) -> str | None:
        value: str | None = await asyncio.to_thread(_keyring().get_password, self._service, key)
        return value

    async def put(self, key: str, value: str) -> None:
        await asyncio.to_thread(_keyring().set_password, self._service, key, value)

    async def drop(self, key: str) -> None:
        keyring = _keyring()
        with contextlib.suppress(keyring.errors.PasswordDeleteError):
            await asyncio.to_thread(keyring.delete_password, self._service, key)

    def alone(self, key: str) -> AbstractAsyncContextManager[None]:
        return self._locks.alone(key)


class StoreKeep:
    """Keeps tokens in a store, sealed: for the instances of a service that share one.

    ``seal`` has the keys; default: a Seal with those of ANTIPHON_KEYS.
    """

    lasting = True

    def __init__(self, store: Store, seal: Seal | Codec | None = None, *, ttl: float = 90 * 86400) -> None:
        if seal is None:
            keys = os.environ.get("ANTIPHON_KEYS", "").strip()
            if not keys:
                raise KeepBroken("StoreKeep needs keys: set ANTIPHON_KEYS, or pass Seal(keys=[...])")
            seal = Seal(keys=parse_keys(keys))
        self._store = store
        self._guard = guard_of(seal)
        self._ttl = ttl

    async def get(self, key: str) -> str | None:
        sealed = await self._store.get(f"antiphon:login:{key}")
        if sealed is None:
            return None
        try:
            return self._guard.open(sealed.decode(), bound_to=key.encode(), now=time.time()).payload.decode()
        except (SealBroken, ValueError):
            return None  # sealed with a key that is gone: sign in again

    async def put(self, key: str, value: str) -> None:
        sealed = self._guard.seal(
            value.encode(), bound_to=key.encode(), now=time.time(), ttl=self._ttl, entropy=os.urandom(12)
        )
        await self._store.put(f"antiphon:login:{key}", sealed.encode(), ttl=self._ttl)

    async def drop(self, key: str) -> None:
        await self._store.take(f"antiphon:login:{key}")

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncGenerator[None]:
        claim, pause = f"antiphon:login-lock:{key}", _FIRST_LOOK
        while not await self._store.add(claim, ttl=_LEASE):
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_LOOK)
        try:
            yield
        finally:
            await self._store.take(claim)


def state_folder() -> Path:
    named = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_STATE_HOME")
    return Path(named) if named else Path.home() / ".local" / "state"


def _lock(descriptor: int, path: Path) -> bool:
    """Lock a file for this process; return whether that worked. KeepBroken if its folder knows no locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        if fault.errno not in {errno.EACCES, errno.EAGAIN, errno.EDEADLK}:
            raise KeepBroken(f"{path}: cannot be locked: {fault.strerror}. Keep logins in another folder") from None
        return False
    return True


def _keyring() -> ModuleType:
    try:
        import keyring
    except ModuleNotFoundError:
        raise KeepBroken("Keyring() needs the package keyring: pip install 'antiphon[keyring]'") from None
    return keyring
