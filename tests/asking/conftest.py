"""What most tests of asking need: a server, and what it logs."""

import logging

import pytest

from antiphon import Server


@pytest.fixture
def app() -> Server:
    return Server("asking")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "antiphon")
    return caplog
