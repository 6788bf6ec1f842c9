"""The files of snapshots: their names, and what is said when they cannot be written."""

import os
from pathlib import Path

import pytest

from antiphon.testing import snapshots
from antiphon.testing.snapshots import Snapshots, SnapshotsBroken, file_name


@pytest.mark.parametrize(
    "label", ["日本語の名前" * 20, "ж" * 300, "x" + "é" * 200, "test[" + "😀" * 100 + "]", "a b " * 100, "X" * 400]
)
def test_a_long_name_fits_every_file_system(label: str, tmp_path: Path) -> None:
    assert len(file_name(label).encode()) <= 200
    kept = Snapshots(tmp_path, update=True)
    kept.put(label, 1)
    assert kept.get(label) == 1
    assert file_name(label) != file_name(f"{label}!")


@pytest.mark.parametrize("label", ["test_it", "test_it[a=1]", "日本語", "TestA.test_it"])
def test_names_that_differ_in_case_are_two_files_everywhere(label: str) -> None:
    names = {file_name(each).lower() for each in (label, label.upper(), label.title(), label.swapcase())}
    assert len(names) == len({label, label.upper(), label.title(), label.swapcase()})


def test_a_plain_name_is_the_name_of_its_file() -> None:
    assert [file_name(label) for label in ("test_it", "日本語", "a.b-c=1")] == [
        "test_it.json",
        "日本語.json",
        "a.b-c=1.json",
    ]


@pytest.mark.parametrize("how", ["draft", "link"])
def test_a_snapshot_that_cannot_be_written_says_so(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    if how == "draft":
        (folder / f".a.json.{os.getpid()}").mkdir(parents=True)
    else:
        folder.symlink_to(tmp_path / "gone")
    with pytest.raises(SnapshotsBroken, match=r"The snapshot .*a\.json cannot be written: "):
        Snapshots(folder, update=True).put("a", 1)


@pytest.mark.parametrize("update", [True, False])
def test_two_values_with_one_name_are_told_in_every_run(update: bool, tmp_path: Path) -> None:
    Snapshots(tmp_path, update=True).put("test_it-n", 1)
    assert_snapshot = snapshots.TestSnapshots(Snapshots(tmp_path, update=update), "test_it")
    assert_snapshot(1, "n")
    assert_snapshot(1, "n")
    with pytest.raises(AssertionError, match="This test has two snapshots called .*, and they differ"):
        assert_snapshot(2, "n")
    assert Snapshots(tmp_path).get("test_it-n") == 1
