"""The exit codes of every command, and the message for each failure of a call. The user never sees a traceback."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import click
from click.exceptions import Exit

from antiphon.client.signing_in import LoginNeeded
from antiphon.errors import CallFailed, CannotAnswer, Disconnected, Refused, SignInFailed, TicketClosed
from antiphon.stores.store import StoreError

T = TypeVar("T")

TOOL_ERROR: Final = 1
FAILED: Final = 1
DRIFTED: Final = 1
BROKEN: Final = 2
NOT_STARTED: Final = 3
WAITING: Final = 5
INTERRUPTED: Final = 130

CALL_TABLE: Final = """\b
Exit codes:
  0    done
  1    the tool ran, and its result is an error
  2    wrong usage: an unknown tool, a missing or wrong argument
  3    the call failed: refused, disconnected, too slow, broken
  4    a question could not be answered
  5    the call waits for answers, in the file of --pending
  6    the server wants you to sign in: antiphon login URL
  130  interrupted"""

LOGIN_TABLE: Final = """\b
Exit codes:
  0    done
  2    wrong usage
  3    it failed: refused, disconnected, too slow
  130  interrupted"""

INSTALL_TABLE: Final = """\b
Exit codes:
  0    done
  1    you said no
  2    wrong usage
  3    the file cannot be read or written, and was left as it is"""
INBOX_TABLE: Final = """\b
  1    the tool ran, and its result is an error
  3    it failed: the store or the server does not answer, or refused
  4    there is no such call, it takes no answer any more, or the answer does not fit
  5    the call still waits
  130  interrupted"""

TEST_TABLE: Final = """\b
Exit codes:
  0    every test passed
  1    a test failed
  2    a suite is broken, or there is nothing to run
  3    a server did not start
  130  interrupted"""

VERIFY_TABLE: Final = """\b
Exit codes:
  0    the server answers as it did
  1    it answers in another way
  2    the cassette is broken, or the usage wrong
  3    the server did not start, cannot be reached, or does not answer"""

_MISSING_CAPABILITY: Final = -32021


class Failed(click.ClickException):
    """The call failed."""

    exit_code = 3


class SignInFirst(click.ClickException):
    """The server wants a token, and no person is here to sign in."""

    exit_code = 6


class Unanswered(click.ClickException):
    """A question of the server could not be answered."""

    exit_code = 4


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result; turn failures into the command's exit codes."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        click.echo("Interrupted", err=True)
        raise Exit(INTERRUPTED) from None
    except (CannotAnswer, TicketClosed) as fault:
        raise Unanswered(str(fault)) from None
    except StoreError as fault:
        raise Failed(str(fault)) from None
    except LoginNeeded as fault:
        raise SignInFirst(f"{fault}: run  antiphon login {fault.login.server}") from None
    except CallFailed as fault:
        raise Failed(explained(fault)) from None


def explained(fault: CallFailed) -> str:
    """Return what went wrong, and what can be done about it on the command line."""
    text = str(fault)
    if isinstance(fault, SignInFailed):
        return f"{text}. If you have a token, pass it with --header 'Authorization: Bearer ...'"
    if isinstance(fault, Disconnected) and "exit code 0" in text:
        return f"{text} before it answered: it may not be an MCP server, or does not serve standard streams"
    if not isinstance(fault, Refused):
        return text
    if fault.code is not None:
        text = f"The server refused: {text} (error {fault.code})"
    if fault.status == 401:
        text = f"The server refused: {fault.message}. Pass a token with --header 'Authorization: Bearer ...'"
    if fault.code == _MISSING_CAPABILITY and "roots" in str(fault.data):
        text += ". Pass roots with --root PATH"
    if fault.retry_after is not None:
        text += f". Retry in {fault.retry_after:.0f} seconds"
    return text
