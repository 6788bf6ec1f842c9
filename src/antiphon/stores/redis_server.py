"""A Redis server: where it is, how it reads commands, and what its errors mean."""

from typing import TYPE_CHECKING, NamedTuple

from antiphon.stores.store import StoreError

if TYPE_CHECKING:
    from redis.asyncio import ConnectionPool


class RedisServer(NamedTuple):
    """Where Redis is, and what its errors mean to a user."""

    address: str
    timeout: float
    secret: str

    @classmethod
    def of(cls, pool: "ConnectionPool", timeout: float) -> "RedisServer":
        about = pool.connection_kwargs
        address = about.get("path") or f"{about.get('host', 'localhost')}:{about.get('port', 6379)}"
        return cls(str(address), timeout, str(about.get("password") or ""))

    def __str__(self) -> str:
        return f"redis at {self.address}"

    def __repr__(self) -> str:
        # A tuple's repr would show the password.
        return str(self)

    def explained(self, fault: Exception, *, sent: bool = False) -> Exception:
        """Return an error that says what to do, without the password, which Redis may have repeated."""
        from redis.exceptions import RedisError  # loaded with the pool

        if isinstance(fault.__cause__, RedisError):
            fault = fault.__cause__
        if isinstance(fault, TimeoutError):
            said = f"no answer within {self.timeout:g} s"
        elif isinstance(fault, RedisError | OSError):
            said = str(fault)
        else:
            return fault
        if self.secret:
            said = said.replace(self.secret, "***")
        doubt = "; the command may have been done or not" if sent else ""
        return StoreError(f"{self}: {said.rstrip('.')}; {_advice(fault)}{doubt}")


def _advice(fault: Exception) -> str:
    from redis import exceptions as kinds  # loaded with the pool

    match fault:
        case kinds.AuthenticationError():
            return "give the right user name and password: redis://user:password@host"
        case kinds.NoPermissionError():
            return "allow its user to read, write, run scripts and use channels under the store's prefix"
        case kinds.OutOfMemoryError():
            return "give it more memory (maxmemory), or the entries a shorter ttl"
        case kinds.ReadOnlyError():
            return "this is a replica: use the URL of the server that takes writes"
        case kinds.BusyLoadingError():
            return "it has just started: try again in a moment"
        case kinds.ConnectionError() | kinds.TimeoutError() | OSError():
            return "check that it runs, and that it can be reached from here"
        case _:
            return "check its log"


def packed(command: tuple[bytes, ...]) -> bytes:
    """Encode a command as Redis reads it: an array of strings."""
    return b"*%d\r\n" % len(command) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in command])
