"""A Home is read seen from a folder, and found once or anew; tests/cli/test_find.py has what words lead there."""

import sys

import pytest

from antiphon import Server
from antiphon.loading import ImportFailed, ServerMissing, find, read

ONE = "from antiphon import Server\nimport goods_of_home\napp = Server('one')\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that is not the current one; what is imported from it is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "shop_at_home").mkdir()
    (tmp_path / "shop_at_home" / "__init__.py").touch()
    (tmp_path / "shop_at_home" / "api.py").write_text(ONE)
    (tmp_path / "goods_of_home.py").touch()
    (tmp_path / "one_at_home.py").write_text(ONE)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize("text", ["one_at_home.py", "shop_at_home/api.py", "shop_at_home.api", "one_at_home:app"])
def test_only_what_is_found_anew_is_another_server(folder, text):
    home = read(text, folder)
    first = find(home, Server)
    goods = sys.modules["goods_of_home"]
    assert find(home, Server) is first
    another = find(home, Server, anew=True)
    assert another is not first
    assert find(home, Server, anew=True) not in {first, another}
    assert sys.modules["goods_of_home"] is goods, "what it imports is not run again"


def test_a_module_that_fails_anew_stays_as_it_was(folder):
    home = read("shop_at_home.api", folder)
    first = find(home, Server)
    (folder / "shop_at_home" / "api.py").write_text("1 / 0\n")
    with pytest.raises(ImportFailed, match=r"^shop_at_home\.api failed .*: ZeroDivisionError") as failed:
        find(home, Server, anew=True)
    assert failed.value.log.count("  File ") == 1
    assert sys.modules["shop_at_home.api"].app is first


def test_a_file_that_is_not_there_is_named_as_the_current_folder_sees_it(folder, monkeypatch):
    with pytest.raises(ServerMissing, match=f"^There is no file {folder}/none.py$"):
        read("shop_at_home/../none.py:app", folder)
    monkeypatch.chdir(folder.parent)
    with pytest.raises(ServerMissing, match=f"^There is no file {folder.name}/none.py$"):
        read("none.py", folder)


def test_what_is_named_comes_before_what_is_importable_already(folder, monkeypatch):
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "one_at_home.py").write_text("raise AssertionError('the wrong one')\n")
    monkeypatch.setattr(sys, "path", [str(elsewhere), *sys.path, str(folder)])
    assert find(read("one_at_home", folder), Server).info.name == "one"
