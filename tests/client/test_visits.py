"""A person's way to a sign-in page and back, past everything else that knocks."""

import asyncio
import subprocess
import sys
import threading

import pytest

from antiphon.client.visits import ByBrowser, ByFunction
from antiphon.errors import SignInFailed
from antiphon.oauth.account import Login, Registration

from .until import until


def login(redirect, state="right"):
    return Login(
        url="https://auth.example.com/authorize",
        server="https://mcp.example.com",
        issuer="https://auth.example.com",
        resource="https://mcp.example.com",
        token_endpoint="https://auth.example.com/token",
        registration=Registration(client_id="c"),
        redirect=redirect,
        state=state,
        verifier="v",
    )


async def knock(redirect, target, *, verb="GET", host=None, body=b""):
    """Send a request to the listener; return its status line and its body."""
    authority = redirect.split("/")[2]
    name, _, port = authority.rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    writer.write(f"{verb} {target} HTTP/1.1\r\nHost: {host or authority}\r\n\r\n".encode() + body)
    answer = (await reader.read()).decode()
    writer.close()
    return answer.partition("\r\n")[0], answer.partition("\r\n\r\n")[2]


@pytest.fixture
async def browser():
    shown = []
    visiting = ByBrowser(show=shown.append)
    visiting.shown = shown
    yield visiting
    await visiting.close()


async def test_a_browser_comes_back_with_the_code(browser):
    redirect = await browser.listen(None)
    visit = asyncio.create_task(browser.visit(login(redirect)))
    await until(lambda: browser.shown)
    status, page = await knock(redirect, "/callback?code=abc&state=right&iss=x")
    assert status == "HTTP/1.1 200 OK"
    assert "close this page" in page
    assert "abc" not in page
    assert await visit == f"{redirect}?code=abc&state=right&iss=x"
    assert browser.shown == ["https://auth.example.com/authorize"]


@pytest.mark.parametrize(
    ("target", "how"),
    [
        ("/callback?code=abc&state=wrong", {}),
        ("/callback?code=abc", {}),
        ("/other?code=abc&state=right", {}),
        ("/callback?code=abc&state=right", {"verb": "POST"}),
        ("/callback?code=abc&state=right", {"host": "evil.example"}),
        ("http://evil.example/callback?code=abc&state=right", {}),
        ("/favicon.ico", {}),
        ("/" + "x" * 40_000, {}),
    ],
)
async def test_what_is_not_the_persons_return_is_ignored_and_the_login_goes_on(browser, target, how):
    redirect = await browser.listen(None)
    visit = asyncio.create_task(browser.visit(login(redirect)))
    await until(lambda: browser.shown)
    status, page = await knock(redirect, target, **how)
    assert "200" not in status
    assert page == ""
    assert not visit.done()
    await knock(redirect, "/callback?code=abc&state=right")
    assert "code=abc" in await visit


async def test_a_page_that_floods_the_listener_does_not_keep_the_person_out(browser):
    redirect = await browser.listen(None)
    visit = asyncio.create_task(browser.visit(login(redirect)))
    await until(lambda: browser.shown)
    port = int(redirect.split(":")[2].partition("/")[0])
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
    answers = await asyncio.gather(*(knock(redirect, f"/callback?code={n}&state=wrong") for n in range(100)))
    assert {status for status, _ in answers} == {"HTTP/1.1 404 Not Found"}
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /callback?" + b"x" * 1_000_000)  # a head without an end
    await knock(redirect, "/callback?code=abc&state=right")
    assert "code=abc" in await visit
    for _, each in [*silent, (None, writer)]:
        each.close()


async def test_the_first_return_counts(browser):
    redirect = await browser.listen(None)
    visit = asyncio.create_task(browser.visit(login(redirect)))
    await until(lambda: browser.shown)
    await knock(redirect, "/callback?code=first&state=right")
    await knock(redirect, "/callback?code=second&state=right")
    assert "code=first" in await visit


async def test_the_port_of_an_earlier_registration_is_taken_again_if_it_is_free(browser):
    redirect = await browser.listen(None)
    other = ByBrowser(show=lambda _: None)
    assert await other.listen(redirect) != redirect
    await other.close()
    await browser.close()
    again = ByBrowser(show=lambda _: None)
    assert await again.listen(redirect) == redirect
    await again.close()


async def test_a_port_that_is_wanted_and_taken_is_an_error(browser):
    redirect = await browser.listen(None)
    other = ByBrowser(redirect, show=lambda _: None)
    with pytest.raises(SignInFailed, match="in use"):
        await other.listen(None)


@pytest.mark.parametrize("redirect", ["https://app.example/back", "http://10.0.0.1/x", "app:/x"])
def test_a_browser_comes_back_to_this_machine_only(redirect):
    with pytest.raises(ValueError, match="127.0.0.1"):
        ByBrowser(redirect)


async def test_a_function_takes_the_person_there_and_back():
    async def later(url, redirect):
        return f"{redirect}?from={url}"

    for visit in (later, lambda url, redirect: f"{redirect}?from={url}"):
        way = ByFunction(visit, "https://app.example/back")
        assert await way.listen(None) == "https://app.example/back"
        back = await way.visit(login("https://app.example/back"))
        assert back == "https://app.example/back?from=https://auth.example.com/authorize"


async def test_a_plain_function_may_wait_and_the_event_loop_goes_on():
    came = threading.Event()

    def visit(url, redirect):
        assert came.wait(10)
        return redirect

    visiting = asyncio.create_task(
        ByFunction(visit, "https://app.example/back").visit(login("https://app.example/back"))
    )
    await asyncio.sleep(0)
    came.set()
    assert await visiting == "https://app.example/back"


HERE = "https://app.example/back"


async def test_a_plain_function_that_raises_stop_iteration_is_an_error_and_does_not_hang():
    def visit(url, redirect):
        raise StopIteration

    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await ByFunction(visit, HERE).visit(login(HERE))


async def test_visits_that_wait_keep_no_other_use_of_threads_waiting():
    came = threading.Event()

    def visit(url, redirect):
        assert came.wait(10)
        return redirect

    async with asyncio.timeout(5):
        visits = [asyncio.create_task(ByFunction(visit, HERE).visit(login(HERE))) for _ in range(40)]
        await until(lambda: threading.active_count() > 40)
        # More than the executor has threads: it still has one for this.
        assert await asyncio.to_thread(lambda: "free") == "free"
        came.set()
        assert set(await asyncio.gather(*visits)) == {HERE}


async def test_the_thread_of_a_visit_that_is_left_ends_when_its_function_does():
    came, seen = threading.Event(), []

    def visit(url, redirect):
        seen.append(threading.current_thread())
        assert came.wait(10)
        return redirect

    async with asyncio.timeout(5):
        visiting = asyncio.create_task(ByFunction(visit, HERE).visit(login(HERE)))
        await until(lambda: seen)
        visiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await visiting
        came.set()
        await until(lambda: not seen[0].is_alive())


@pytest.mark.parametrize("visiting", ["ByFunction(wait, 'x').visit(login)", "shown()"])
def test_a_program_ends_though_a_visit_waits(visiting):
    code = f"""
import asyncio, threading
from antiphon.client.visits import ByBrowser, ByFunction
class login: url, redirect, state = "https://auth.example.com", "x", "s"
def wait(*_): threading.Event().wait()
async def shown():
    browser = ByBrowser(show=wait)
    await browser.listen(None)
    try:
        await browser.visit(login)
    finally:
        await browser.close()
async def main():
    try:
        async with asyncio.timeout(0.2):
            await {visiting}
    except TimeoutError:
        print("left")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout == "left\n"
