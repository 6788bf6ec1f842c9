"""Draw the pictures of the documentation from what the programs on its pages show.

`python scripts/pictures.py` writes `docs/images/call.svg`, from `docs/getting-started.md`, and, if a chromium is on the
PATH, `docs/images/report-terminal.png` and `docs/images/report-html.png`, from `docs/testing/reports.md`, and
`docs/images/inbox.png`, and `docs/images/inspect.png` and `docs/images/inspect-fork.png`, from `examples/demo.py`.
"""

import asyncio
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from antiphon import Inbox, MemoryStore
from antiphon.inbox.rows import Row
from antiphon.testing.report import html
from antiphon.testing.report.terminal import ReportPrinter
from antiphon.testing.servers import serving
from antiphon.testing.suite.loading import load
from antiphon.testing.suite.model import Summary
from antiphon.testing.suite.runner import run

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cli"))
PAGE = ROOT / "docs" / "testing" / "reports.md"
STARTED = ROOT / "docs" / "getting-started.md"
IMAGES = ROOT / "docs" / "images"
FILES = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
COLUMNS = 100
PAPER, INK, GREY = (30, 33, 40), (220, 224, 230), (120, 130, 145)
RED, GREEN, YELLOW = (240, 113, 120), (127, 201, 143), (232, 176, 79)
BLUE, MAGENTA, CYAN = (130, 170, 255), (199, 146, 238), (92, 195, 230)
THEME = TerminalTheme(
    PAPER,
    INK,
    [PAPER, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN, INK],
    [GREY, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN, INK],
)
# As rich has it, but with local fonts: a picture loads nothing.
FRAME = """<!doctype html><meta charset="utf-8"><style>{stylesheet}
body {{ margin: 0; padding: 22px 26px; color: {foreground}; background: {background}; }}
pre {{ margin: 0; font: 15px/1.38 "DejaVu Sans Mono", Menlo, Consolas, monospace; }}</style>
<pre>{code}</pre>"""


def main() -> int:
    IMAGES.mkdir(exist_ok=True)
    draw_call()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"pictures.py: none of {', '.join(BROWSERS)} is on the PATH", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        summary = run_suite(folder)
        terminal = folder / "terminal.html"
        terminal.write_text(terminal_page(summary), "utf-8")
        shoot(browser, terminal.as_uri(), IMAGES / "report-terminal.png", 976, 955)
        page = folder / "report.html"
        page.write_text(html.render(summary), "utf-8")
        shoot(browser, page.as_uri(), IMAGES / "report-html.png", 1000, 1190)
        shoot_inspect(browser, folder)
    asyncio.run(draw_inbox(browser))
    return 0


def draw_call() -> None:
    """Answer the tool of the first page in a terminal, and draw what stands there."""
    from pseudo_terminal import ENTER, PseudoTerminal

    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```$", STARTED.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    server, question = (next(block for block in blocks if word in block) for word in ("def greet", "def introduce"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "greeter.py").write_text(server.replace("\nif __name__", f"\n{question}\n\nif __name__"), "utf-8")
        command = [sys.executable, "-m", "antiphon", "call", "greeter.py", "introduce"]
        terminal = PseudoTerminal(command, cwd=folder, columns=72, lines=18)
        terminal.asks("What is your name?").types("Ada", ENTER)
        terminal.asks().types(ENTER)
        terminal.sees("Hello, Ada")
        terminal.ends()
        # The folder is of this run only: leave it out, and keep the frame as wide as it was.
        rows = [
            row.replace(f"{folder}/", "").replace("──╯", f"{'─' * (len(folder) + 1)}──╯")
            if folder in row
            else row.rstrip()
            for row in terminal.screen.display
        ]
        terminal.close()
    console = Console(file=io.StringIO(), width=72, record=True, force_terminal=True, color_system="standard")
    console.print("$ antiphon call greeter.py introduce", style="bold", highlight=False)
    for row in "\n".join(rows).strip().splitlines():
        console.print(row, highlight=False, markup=False)
    drawn = console.export_svg(title="antiphon call", theme=THEME, unique_id="call")
    picture = IMAGES / "call.svg"
    # A picture loads nothing: no fonts from elsewhere.
    picture.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), "utf-8")
    print(picture.relative_to(ROOT))


def run_suite(folder: Path) -> Summary:
    """Run the suite of the page."""
    for title, body in FILES.findall(PAGE.read_text("utf-8")):
        (folder / title).write_text(body, "utf-8")
    os.chdir(folder)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return asyncio.run(run(load(Path("shop.mcp.yaml"))))


def terminal_page(summary: Summary) -> str:
    """Return the terminal's report as HTML."""
    console = Console(file=io.StringIO(), width=COLUMNS, record=True, force_terminal=True, color_system="standard")
    printer = ReportPrinter(console)
    console.print("$ antiphon test shop.mcp.yaml", style="bold", highlight=False)
    for outcome in summary.outcomes:
        printer.ended(outcome)
    printer.finish(summary)
    return console.export_html(theme=THEME, code_format=FRAME)


async def draw_inbox(browser: str) -> None:
    """Draw the page of a question that waits."""
    inbox = Inbox(MemoryStore())
    now = time.time()
    fields = {
        "confirm": {"type": "boolean", "title": "Pay it?"},
        "account": {"type": "string", "enum": ["Operations", "Travel"], "default": "Operations"},
        "note": {"type": "string", "description": "Shown to the payee"},
    }
    schema = {"type": "object", "properties": fields, "required": ["confirm", "account"]}
    asked = {"mode": "form", "message": "Pay 900 euros to Ada Lovelace?", "requestedSchema": schema}
    row = Row(
        id="k3v7q2m4x5p6a7b2",
        method="tools/call",
        name="pay",
        arguments={"to": "Ada Lovelace", "euros": 900},
        server="bank",
        questions={"confirm": {"method": "elicitation/create", "params": asked}},
        who="finance",
        on_behalf="Charles",
        since=now,
        until=now + 2 * 86400,
    )
    await inbox.rows.add(row)
    page = inbox.asgi(principal=lambda _: ["Bob", "finance"])
    async with serving(lambda _: page) as url:
        await asyncio.to_thread(shoot, browser, f"{url}/{row.id}", IMAGES / "inbox.png", 700, 900)


def shoot(browser: str, page: str, picture: Path, width: int, height: int) -> None:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=1000"]
    size = f"--window-size={width},{height}"
    command = [browser, *flags, size, "--force-device-scale-factor=1.5", f"--screenshot={picture}", page]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    print(picture.relative_to(ROOT))


def shoot_inspect(browser: str, folder: Path) -> None:
    """Answer the demo's questions on the page, and fork the call."""
    from palette import with_palette
    from playwright.sync_api import sync_playwright

    def write(name: str, png: bytes) -> None:
        (IMAGES / name).write_bytes(with_palette(png))
        print((IMAGES / name).relative_to(ROOT))

    shutil.copy(ROOT / "examples" / "demo.py", folder)
    command = [sys.executable, "-m", "antiphon", "inspect", "demo.py", "--no-browser", "--port", "0"]
    program = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        address = next(found.group() for line in program.stderr or () if (found := re.search(r"http://\S+", line)))
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
            tab = chromium.new_page(viewport={"width": 1280, "height": 820})
            tab.goto(address)
            tab.locator(".offers a").first.click()
            tab.get_by_label("traveller").fill("Ada")
            tab.keyboard.press("Control+Enter")
            tab.get_by_label("city").select_option("Lisbon")
            tab.keyboard.press("Control+Enter")
            tab.get_by_label("confirm").check()
            write("inspect.png", tab.screenshot())
            tab.keyboard.press("Control+Enter")
            tab.get_by_role("button", name="Fork here").first.click()
            tab.get_by_role("button", name="Another answer").click()
            tab.get_by_label("city").select_option("Kyoto")
            tab.locator(".another .main").click()
            tab.get_by_label("confirm").check()
            tab.keyboard.press("Control+Enter")
            tab.get_by_role("link", name="Side by side").click()
            tab.get_by_text("Round 3: result").wait_for()
            tab.emulate_media(color_scheme="dark")
            tab.evaluate("scrollTo(0, 0)")
            write("inspect-fork.png", tab.screenshot())
            chromium.close()
    finally:
        program.terminate()
        program.communicate(timeout=30)


if __name__ == "__main__":
    sys.exit(main())
