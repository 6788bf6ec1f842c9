"""The files of the page: plain modules that fetch nothing from elsewhere, and write no markup of a server."""

import re
import zlib
from importlib.resources import files

from antiphon.testing.report.html import render
from antiphon.testing.suite.model import Summary

STATIC = {each.name: each.read_text("utf-8") for each in files("antiphon.inspect").joinpath("static").iterdir()}
OURS = {name: text for name, text in STATIC.items() if name != "preact.js"}
CARDS = files("antiphon.testing.report").joinpath("conversation.css").read_text("utf-8")


def test_no_text_of_a_server_can_become_markup_or_code():
    written = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|javascript:"
    )
    assert {name: found for name, text in OURS.items() if (found := written.findall(text))} == {}


def test_the_page_fits_a_strict_policy_and_names_no_other_host():
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on[a-z]+=", STATIC["index.html"])
    for name, text in OURS.items():
        addresses = set(re.findall(r"https?://[^\s\"'`<>]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg", "http://127.0.0.1:6280/#key=…"}, name
        assert not re.search(r"@import|url\(", text), name


def test_every_module_imports_what_is_there():
    for name, text in OURS.items():
        assert set(re.findall(r'from "\./([^"]+)"', text)) <= STATIC.keys(), name
    links = set(re.findall(r'(?:href|src)="/static/([^"]+)"', STATIC["index.html"]))
    assert links <= {*STATIC, "conversation.css"}


def test_the_page_is_small_and_what_is_not_ours_has_its_licence():
    assert len(zlib.compress("".join(STATIC.values()).encode(), 9)) < 50_000
    assert "Apache License 2.0" in STATIC["preact.js"][:1000]
    assert "MIT License" in STATIC["preact.js"][:1000]


def test_the_report_draws_a_conversation_with_the_same_cards():
    assert CARDS in render(Summary(outcomes=(), seconds=0.0, started=0.0))
