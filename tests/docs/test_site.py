"""The site that `make docs` builds: complete, without a dead link, and readable on a phone."""

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.heavy


class PageParser(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in {"href", "src"}:
                self.links.append(value)
            elif name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, PageParser]:
    return {str(file.relative_to(site)): PageParser(file.read_text()) for file in sorted(site.rglob("*.html"))}


def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Path, pages: dict[str, PageParser]) -> None:
    assert len(pages) > 40
    for name, page in pages.items():
        if name == "404.html":
            continue
        for link in page.links:
            path, anchor = urldefrag(urljoin(f"site:///{name}", link))
            if not path.startswith("site:///"):
                assert not link.startswith(("http://", "//")), f"{name} loads or links {link}"
                continue
            file = site / unquote(path.removeprefix("site:///"))
            file = file / "index.html" if file.is_dir() else file
            assert file.is_file(), f"{name} links to {link}"
            if anchor and file.suffix == ".html":
                assert unquote(anchor) in pages[str(file.relative_to(site))].anchors, f"{name} links to {link}"


def test_the_hidden_tests_of_a_page_are_not_on_the_site(site: Path) -> None:
    for file in [*site.rglob("index.html"), *site.rglob("index.md"), site / "llms-full.txt"]:
        text = file.read_text()
        assert "<!-- test" not in text, file
        assert not re.search(r"^assert ", text, re.MULTILINE) or "pytest" in text, file


def test_every_page_has_a_twin_in_markdown_and_a_line_in_llms_txt(site: Path) -> None:
    listed = (site / "llms.txt").read_text()
    whole = (site / "llms-full.txt").read_text()
    for file in (ROOT / "docs").rglob("*.md"):
        path = file.relative_to(ROOT / "docs").with_suffix("")
        folder = path.parent if path.name == "index" else path
        address = "" if folder == Path() else f"{folder}/"
        assert (site / folder / "index.md").is_file(), file
        assert f"/antiphon/{address}index.md)" in listed, file
        heading = next(line for line in file.read_text().splitlines() if line.startswith("# "))
        assert heading in whole


def test_the_reference_has_every_public_name(pages: dict[str, PageParser]) -> None:
    import antiphon
    import antiphon.auth
    import antiphon.testing

    anchors = {anchor for name, page in pages.items() if name.startswith("reference/") for anchor in page.anchors}
    for module in (antiphon, antiphon.auth, antiphon.testing):
        missing = [name for name in module.__all__ if f"{module.__name__}.{name}" not in anchors]
        assert missing == []
    for method in ("tool", "prompt", "resource", "asgi", "run"):
        assert f"antiphon.Server.{method}" in anchors


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_page_fits_a_phone_and_loads_nothing_from_elsewhere(address: str, site: Path) -> None:
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert chromium, "Install chromium, or name one: CHROMIUM=path"
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=[*quiet, "--disable-sync", "--no-first-run"])
        page = browser.new_page(viewport={"width": 360, "height": 740})
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda sent: None if sent.url.startswith((address, "data:")) else problems.append(sent.url))
        for file in sorted(site.rglob("index.html")):
            page.goto(address + str(file.parent.relative_to(site)) + "/")
            wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
            if wide:
                problems.append(f"{file} is wider than a phone")
        browser.close()
    assert problems == []
