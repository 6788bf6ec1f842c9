"""Authorization: the ways a client signs in, where it keeps its tokens, and how a server is protected."""

from antiphon.client.auth import Bearer, ClientCredentials, Enterprise, OAuth, Workload
from antiphon.client.keeps import File, Keep, KeepBroken, Keyring, Memory, StoreKeep
from antiphon.client.signing_in import LoginNeeded
from antiphon.errors import SignInFailed, Unauthorized
from antiphon.oauth.account import Login
from antiphon.oauth.identity import Identity
from antiphon.transports.authorization import Introspect, Jwt, Protected

__all__ = [
    "Bearer",
    "ClientCredentials",
    "Enterprise",
    "File",
    "Identity",
    "Introspect",
    "Jwt",
    "Keep",
    "KeepBroken",
    "Keyring",
    "Login",
    "LoginNeeded",
    "Memory",
    "OAuth",
    "Protected",
    "SignInFailed",
    "StoreKeep",
    "Unauthorized",
    "Workload",
]
