"""Authorization: the ways a client signs in, and where it keeps its tokens."""

from antiphon.client.auth import Bearer, ClientCredentials, Enterprise, OAuth, Workload
from antiphon.client.keeps import File, Keep, KeepBroken, Keyring, Memory, StoreKeep
from antiphon.client.signing_in import LoginNeeded
from antiphon.errors import SignInFailed
from antiphon.oauth.account import Login

__all__ = [
    "Bearer",
    "ClientCredentials",
    "Enterprise",
    "File",
    "Keep",
    "KeepBroken",
    "Keyring",
    "Login",
    "LoginNeeded",
    "Memory",
    "OAuth",
    "SignInFailed",
    "StoreKeep",
    "Workload",
]
