"""Prepare the pages of the site: hooks for mkdocs, which `make docs` runs.

The pages in `docs/` are written for the repository, where each block of code is tested. For the site, this

* leaves out the hidden tests, and the words that only the tests read;
* points links that leave `docs/` to the repository;
* makes the reference from the public names and their docstrings, one page for each of `REFERENCE`;
* adds the changelog and the security policy as pages;
* writes each page as Markdown, too, beside its HTML, and `llms.txt` and `llms-full.txt`, which list and hold them all.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "https://github.com/antiphon-mcp/antiphon/blob/main/"
PAGES = {"changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md"}
REFERENCE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "servers": ("Servers", "antiphon", ("antiphon.app", "antiphon.server", "antiphon.tracing", "antiphon.inbox")),
    "asking": ("Asking", "antiphon", ("antiphon.rounds", "antiphon.shapes")),
    "clients": ("Clients", "antiphon", ("antiphon.client", "antiphon.transports")),
    "authorization": ("Authorization", "antiphon.auth", ("antiphon",)),
    "adapt": ("Servers of other libraries", "antiphon.adapt", ("antiphon",)),
    "stores": ("Stores", "antiphon", ("antiphon.stores",)),
    "errors": ("Errors", "antiphon", ("antiphon.errors",)),
    "types": ("Types", "antiphon", ("antiphon.types",)),
    "testing": ("The test kit", "antiphon.testing", ("antiphon",)),
}
"""By page: its title, the package that users import from, and the modules in which its names are defined."""
FIRST = ("Server", "Client", "OAuth", "Protected", "Store", "McpClient", "ask")
"""Names that come before the others of their page."""
MORE_TESTING = ("antiphon.testing.cassette", "antiphon.testing.contracts", "antiphon.testing.suite")
FENCE = re.compile(r'^```(\w+)(?: serves| of="([^"]+)")$', re.MULTILINE)
HIDDEN = re.compile(r"<!-- test.*?-->\n*", re.DOTALL)
LINK = re.compile(r"\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
FENCED = re.compile(r"^(```.*?^```)$", re.DOTALL | re.MULTILINE)

_written: dict[str, str] = {}
"""The Markdown of each page, by its address on the site."""


# --- pages --------------------------------------------------------------------------------------------------------


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    _written.clear()
    for name, source in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text("utf-8")))
    files.append(File.generated(config, "reference/index.md", content=_overview()))
    for name in REFERENCE:
        files.append(File.generated(config, f"reference/{name}.md", content=_reference(name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn a page of the repository into one of the site."""
    del config, files
    text = FENCE.sub(lambda found: f"```{found[1]}" + (f' title="{found[2]}"' if found[2] else ""), markdown)
    text = HIDDEN.sub("", text)
    folder = (ROOT / PAGES.get(page.file.src_uri, f"docs/{page.file.src_uri}")).parent
    text = "".join(
        part if part.startswith("```") else LINK.sub(lambda found: _link(found, page, folder), part)
        for part in FENCED.split(text)
    )
    _written[page.url] = text
    if page.file.src_uri in PAGES or page.file.generated_by:
        page.edit_url = None
    return text


def _link(found: re.Match[str], page: Page, folder: Path) -> str:
    """Return a link as the site needs it: within docs as it is, elsewhere to the repository."""
    target, anchor = (folder / found["path"]).resolve(), found["anchor"] or ""
    docs = ROOT / "docs"
    made = {ROOT / source: docs / name for name, source in PAGES.items()}
    target = made.get(target, target)
    if not target.is_relative_to(docs):
        return f"]({SOURCE}{target.relative_to(ROOT)}{anchor})" if target.exists() else found[0]
    up = Path(page.file.src_uri).parent
    return f"]({_relative(target.relative_to(docs), up)}{anchor})"


def _relative(target: Path, folder: Path) -> str:
    up = [".."] * (0 if folder == Path() else len(folder.parts))
    return "/".join([*up, *target.parts])


# --- the reference ------------------------------------------------------------------------------------------------


def names_of(page: str) -> Iterator[tuple[str, str]]:
    """Yield the public names of a page of the reference, each with the package to import it from."""
    _, package, homes = REFERENCE[page]
    for name in sorted(import_module(package).__all__, key=lambda name: name not in FIRST):
        home = _home(package, name)
        if any(home == each or home.startswith(f"{each}.") for each in homes):
            yield package, name
    for more in MORE_TESTING if page == "testing" else ():
        for name in import_module(more).__all__:
            yield more, name


def _home(package: str, name: str) -> str:
    value: Any = getattr(import_module(package), name)
    known = import_module("antiphon")
    for module, names in vars(known)["_HOMES"].items():
        if package == "antiphon" and name in names:
            return str(module)
    if name == "ask":
        return "antiphon.rounds.ask"
    home = str(getattr(value, "__module__", None))
    return home if home.startswith("antiphon") else "antiphon.types"  # an alias says typing


def _overview() -> str:
    rows = "\n".join(
        f"| [{REFERENCE[page][0]}]({page}.md) | {', '.join(f'`{name}`' for _, name in names_of(page))} |"
        for page in REFERENCE
    )
    return f"# Reference\n\nEvery public name, with what it takes, returns and raises.\n\n| | |\n|---|---|\n{rows}\n"


def _reference(page: str) -> str:
    made = [f"# {REFERENCE[page][0]}"]
    package = None
    for home, name in names_of(page):
        if home != package:
            package = home
            made.append(f"Import these from `{package}`.")
        made.append(f"::: {home}.{name}")
        if name == "Server":
            made[-1] += "\n    options:\n      inherited_members: true"
    return "\n\n".join(made) + "\n"


# --- for programs that read ---------------------------------------------------------------------------------------


def on_post_build(config: MkDocsConfig) -> None:
    """Write the pages as Markdown, and the two files that list and hold them."""
    site, base = Path(config.site_dir), str(config.site_url)
    listed, whole = [], []
    for url, text in _written.items():
        twin = site / url / "index.md"
        twin.parent.mkdir(parents=True, exist_ok=True)
        twin.write_text(text, "utf-8")
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        listed.append(f"- [{title[1] if title else url}]({base}{url}index.md)")
        whole.append(f"<!-- {base}{url} -->\n\n{text.strip()}\n")
    head = f"# {config.site_name}\n\n> {config.site_description}\n\n"
    (site / "llms.txt").write_text(f"{head}## Pages\n\n" + "\n".join(listed) + "\n", "utf-8")
    (site / "llms-full.txt").write_text(head + "\n".join(whole), "utf-8")
