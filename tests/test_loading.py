"""Names of servers are parsed relative to a folder and loaded, once or fresh; cli/test_serve_targets.py has more."""

import sys

import pytest

from antiphon import Server
from antiphon.loading import ImportFailed, ServerMissing, load, parse, refuse_to_serve

ONE = "from antiphon import Server\nimport goods_elsewhere\napp = Server('one')\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that is not the current one; what is imported from it is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "shop_elsewhere").mkdir()
    (tmp_path / "shop_elsewhere" / "__init__.py").touch()
    (tmp_path / "shop_elsewhere" / "api.py").write_text(ONE)
    (tmp_path / "goods_elsewhere.py").touch()
    (tmp_path / "one_elsewhere.py").write_text(ONE)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize(
    "text", ["one_elsewhere.py", "shop_elsewhere/api.py", "shop_elsewhere.api", "one_elsewhere:app"]
)
def test_only_what_is_x_is_another_server(folder, text):
    name = parse(text, folder)
    first = load(name, Server)
    goods = sys.modules["goods_elsewhere"]
    assert load(name, Server) is first
    another = load(name, Server, fresh=True)
    assert another is not first
    assert load(name, Server, fresh=True) not in {first, another}
    assert sys.modules["goods_elsewhere"] is goods, "what it imports is not run again"


def test_a_module_whose_fresh_load_fails_stays_as_it_was(folder):
    name = parse("shop_elsewhere.api", folder)
    first = load(name, Server)
    (folder / "shop_elsewhere" / "api.py").write_text("1 / 0\n")
    with pytest.raises(ImportFailed, match=r"^shop_elsewhere\.api failed .*: ZeroDivisionError") as failed:
        load(name, Server, fresh=True)
    assert failed.value.log.count("  File ") == 1
    assert sys.modules["shop_elsewhere.api"].app is first


def test_a_file_that_is_not_there_is_named_as_the_current_folder_sees_it(folder, monkeypatch):
    with pytest.raises(ServerMissing, match=f"^There is no file {folder}/none.py$"):
        parse("shop_elsewhere/../none.py:app", folder)
    monkeypatch.chdir(folder.parent)
    with pytest.raises(ServerMissing, match=f"^There is no file {folder.name}/none.py$"):
        parse("none.py", folder)


def test_what_is_named_comes_before_what_is_importable_already(folder, monkeypatch):
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "one_elsewhere.py").write_text("raise AssertionError('the wrong one')\n")
    monkeypatch.setattr(sys, "path", [str(elsewhere), *sys.path, str(folder)])
    assert load(parse("one_elsewhere", folder), Server).info.name == "one"


@pytest.mark.parametrize("text", ["serves_elsewhere.py", "serves_elsewhere:app"])
@pytest.mark.parametrize("how", ["app.run()", "app.run('http')", "import asyncio\nasyncio.run(main())"])
def test_a_module_that_serves_while_it_is_imported_is_told_of_the_guard(folder, text, how):
    main = "async def main():\n    app.run()\n"
    (folder / "serves_elsewhere.py").write_text(f"from antiphon import Server\napp = Server('one')\n{main}{how}\n")
    with pytest.raises(ImportFailed, match='put what runs under if __name__ == "__main__":') as failed:
        load(parse(text, folder), Server)
    assert "serves_elsewhere.py" in failed.value.log


async def test_a_module_that_starts_an_event_loop_is_told_of_the_guard_where_one_runs_already(folder):
    (folder / "loop_elsewhere.py").write_text(
        "import asyncio\nwork = asyncio.sleep(0)\ntry:\n    asyncio.run(work)\nfinally:\n    work.close()\n"
    )
    with pytest.raises(ImportFailed) as failed:
        load(parse("loop_elsewhere.py", folder), Server)
    assert 'In loop_elsewhere.py, put what runs under if __name__ == "__main__":' in failed.value.log


def test_what_was_loaded_may_serve_afterwards(folder):
    load(parse("one_elsewhere.py", folder), Server)
    refuse_to_serve()


def test_among_several_servers_the_one_called_app_is_meant(folder):
    (folder / "two_elsewhere.py").write_text(
        "from antiphon import Server\nadmin = Server('admin')\napp = Server('main')\n"
    )
    assert load(parse("two_elsewhere.py", folder), Server).info.name == "main"
