"""Which URLs a sign-in may ask, open, or believe."""

import pytest

from antiphon.oauth.metadata import is_issuer, issuer_metadata_urls, resource_metadata_urls
from antiphon.oauth.urls import UrlRefused, check_endpoint, covers, is_loopback, may_lead, network_of

SERVER = "https://mcp.example.com/a/mcp"


@pytest.mark.parametrize(
    "resource",
    [
        SERVER,
        "https://mcp.example.com/a",
        "https://mcp.example.com/a/",
        "https://mcp.example.com",
        "https://mcp.example.com/",
        "HTTPS://MCP.example.com:443/a/mcp",
    ],
)
def test_a_resource_covers_a_server_as_itself_or_as_a_parent(resource):
    assert covers(resource, SERVER)


@pytest.mark.parametrize(
    "resource",
    [
        "https://evil.example.com/a/mcp",
        "http://mcp.example.com/a/mcp",
        "https://mcp.example.com:8443/a/mcp",
        "https://mcp.example.com/a/mcp2",
        "https://mcp.example.com/a/mc",
        "https://mcp.example.com/A/mcp",
        "https://mcp.example.com/a/mcp/below",
        "https://mcp.example.com@evil.example/a/mcp",
        "https://user@mcp.example.com/a/mcp",
        "https://mcp.example.com/a/mcp#x",
        "https://mcp.example.com/a/mcp?x=1",
        "https://mcp.example.com.evil.example/a/mcp",
        "mcp.example.com/a/mcp",
        "https://[::1",
        "",
    ],
)
def test_another_resource_covers_nothing(resource):
    assert not covers(resource, SERVER)


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "gopher://x/",
        "http://auth.example.com/authorize",
        "https://user:secret@auth.example.com/",
        "https://auth.example.com/#x",
        "https://auth.example.com/`id`",
        'https://auth.example.com/"',
        "https://auth.example.com/ x",
        "https://auth.example.com/\r\nx",
        "https://",
        "//auth.example.com/",
        "https://auth.example.com:x/",
    ],
)
def test_a_url_that_must_not_be_asked_or_opened_is_refused(url):
    with pytest.raises(UrlRefused):
        check_endpoint(url, "The page")


@pytest.mark.parametrize(
    "url", ["https://auth.example.com/a?b=c", "http://127.0.0.1:1/x", "http://localhost/x", "http://[::1]/"]
)
def test_https_and_this_machine_may_be_asked(url):
    assert check_endpoint(url, "The page") == url


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.8.8", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("169.254.169.254", "private"),
        ("::ffff:10.0.0.1", "private"),
        ("fe80::1%eth0", "private"),
        ("fd00::1", "private"),
        ("0.0.0.0", "private"),
        ("100.64.0.1", "private"),
        ("224.0.0.1", "private"),
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
    ],
)
def test_an_address_is_on_one_network(address, network):
    assert network_of(address) == network


def test_a_server_leads_to_its_own_network_or_a_wider_one():
    assert may_lead("public", "public")
    assert not may_lead("public", "private")
    assert not may_lead("public", "loopback")
    assert not may_lead("private", "loopback")
    assert may_lead("private", "public")
    assert may_lead("loopback", "private")


def test_a_name_is_this_machine_only_by_definition():
    assert is_loopback("LOCALHOST.")
    assert is_loopback("app.localhost")
    assert not is_loopback("localhost.evil.example")
    assert not is_loopback("0177.0.0.1")


def test_metadata_is_looked_for_in_the_order_of_the_specification():
    assert resource_metadata_urls("https://h/a/mcp/") == [
        "https://h/.well-known/oauth-protected-resource/a/mcp",
        "https://h/.well-known/oauth-protected-resource",
    ]
    assert resource_metadata_urls("https://h") == ["https://h/.well-known/oauth-protected-resource"]
    assert issuer_metadata_urls("https://h/t1") == [
        "https://h/.well-known/oauth-authorization-server/t1",
        "https://h/.well-known/openid-configuration/t1",
        "https://h/t1/.well-known/openid-configuration",
    ]
    assert issuer_metadata_urls("https://h:8/") == [
        "https://h:8/.well-known/oauth-authorization-server",
        "https://h:8/.well-known/openid-configuration",
    ]


def test_issuers_are_the_same_letter_by_letter_but_for_the_slash_of_a_bare_origin():
    assert is_issuer("https://h", "https://h/")
    assert not is_issuer("https://h/a", "https://h/a/")
    assert not is_issuer("https://H", "https://h")
    assert not is_issuer("https://h:443", "https://h")
    assert not is_issuer("x", "y")
