"""Keeps: all do the same, and none lets others read what it keeps."""

import asyncio
import os
import stat
import sys
from typing import ClassVar

import pytest

from antiphon import MemoryStore, Seal, SQLiteStore
from antiphon.auth import File, KeepBroken, Keyring, Memory, StoreKeep
from antiphon.testing.contracts import check_keep


@pytest.fixture(params=["memory", "file", "store", "keyring"])
def keep(request, tmp_path, monkeypatch):
    match request.param:
        case "memory":
            return Memory()
        case "file":
            return File(tmp_path / "keep")
        case "store":
            return StoreKeep(MemoryStore(), Seal(keys=["k" * 40]))
        case _:
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
            monkeypatch.setattr("antiphon.client.keeps._keyring", lambda: FakeKeyring)
            return Keyring()


class FakeKeyring:
    """A desktop's keyring."""

    passwords: ClassVar = {}

    class errors:
        class PasswordDeleteError(Exception):
            pass

    @classmethod
    def get_password(cls, service, name):
        return cls.passwords.get((service, name))

    @classmethod
    def set_password(cls, service, name, value):
        cls.passwords[service, name] = value

    @classmethod
    def delete_password(cls, service, name):
        if cls.passwords.pop((service, name), None) is None:
            raise cls.errors.PasswordDeleteError


async def test_a_keep_does_what_keeps_do(keep):
    await check_keep(lambda: keep)


def test_files_are_for_their_owner_alone_whatever_the_umask(tmp_path):
    folder = tmp_path / "deep" / "keep"
    before = os.umask(0)
    try:
        asyncio.run(File(folder).put("https://a", "secret"))
    finally:
        os.umask(before)
    path = next(folder.glob("*.json"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "https" not in path.name


async def test_a_file_that_others_can_read_is_refused(tmp_path):
    keep = File(tmp_path / "keep")
    await keep.put("a", "secret")
    path = next(keep.folder.glob("*.json"))
    path.chmod(0o644)
    with pytest.raises(KeepBroken, match="chmod 600"):
        await keep.get("a")


async def test_a_link_is_not_followed(tmp_path):
    keep = File(tmp_path / "keep")
    await keep.put("a", "secret")
    path = next(keep.folder.glob("*.json"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("planted")
    elsewhere.chmod(0o600)
    path.unlink()
    path.symlink_to(elsewhere)
    with pytest.raises(KeepBroken):
        await keep.get("a")


async def test_half_a_file_is_nothing(tmp_path):
    keep = File(tmp_path / "keep")
    await keep.put("a", "secret")
    next(keep.folder.glob("*.json")).write_bytes(b"\xff\xfe")
    assert await keep.get("a") is None
    assert await keep.get("b") is None


@pytest.mark.parametrize("then", ["put", "drop"])
async def test_a_draft_that_a_killed_process_left_is_deleted(tmp_path, then):
    keep = File(tmp_path / "keep")
    await keep.put("a", "secret")
    path = next(keep.folder.glob("*.json"))
    left, young = (keep.folder / f".{path.name}.99999.{name}" for name in ("left", "young"))
    for draft in (left, young):
        draft.write_text("half of a sec")
    os.utime(left, (0, 0))
    await (keep.put("a", "another") if then == "put" else keep.drop("a"))
    # Another process may be at work on the young one.
    assert [young.exists(), left.exists()] == [True, False]


@pytest.mark.parametrize("often", [False, True])
async def test_a_writer_that_stood_still_writes_once_more(tmp_path, monkeypatch, often):
    slow, other = File(tmp_path / "keep"), File(tmp_path / "keep")
    stood_still = []

    def stand_still(descriptor):
        if often or not stood_still:
            stood_still.append(descriptor)
            os.utime(descriptor, (0, 0))
            other._delete_old_drafts(other._path("a"))  # as each of its writes does

    monkeypatch.setattr(os, "fsync", stand_still)
    if often:
        with pytest.raises(KeepBroken, match="cannot be written"):
            await slow.put("a", "secret")
    else:
        await slow.put("a", "secret")
    assert await slow.get("a") == (None if often else "secret")
    assert [path.name for path in slow.folder.glob(".*")] == []
    assert len(stood_still) == 1 + often


async def test_a_lock_of_a_process_that_was_killed_is_free(tmp_path):
    script = (
        "import asyncio, sys\nfrom antiphon.auth import File\n"
        "async def main():\n    async with File(sys.argv[1]).alone('a'):\n        print('held', flush=True)\n"
        "        await asyncio.Event().wait()\nasyncio.run(main())"
    )
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path / "keep"), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await holder.stdout.readline() == b"held\n"
        keep = File(tmp_path / "keep")
        waiting = asyncio.create_task(_alone(keep))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        holder.kill()
        async with asyncio.timeout(10):
            await waiting
    finally:
        await holder.communicate()


async def _alone(keep):
    async with keep.alone("a"):
        pass


async def test_a_store_keeps_nothing_that_can_be_read(tmp_path):
    store = SQLiteStore(tmp_path / "store.db")
    keep = StoreKeep(store, Seal(keys=["k" * 40]))
    await keep.put("a", "secret-token")
    assert b"secret-token" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert await StoreKeep(store, Seal(keys=["n" * 40])).get("a") is None
    assert await StoreKeep(store, Seal(keys=["n" * 40, "k" * 40])).get("a") == "secret-token"
    await store.close()


def test_a_store_needs_keys(monkeypatch):
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)
    with pytest.raises(KeepBroken, match="ANTIPHON_KEYS"):
        StoreKeep(MemoryStore())


def test_a_keyring_that_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(KeepBroken, match=r"antiphon\[keyring\]"):
        asyncio.run(Keyring().get("a"))
