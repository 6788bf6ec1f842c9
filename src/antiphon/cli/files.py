"""Files that a command writes: completely or not at all."""

import os
import tempfile
from pathlib import Path

OWNER_ONLY = 0o600


def replace(path: Path, content: bytes, mode: int = OWNER_ONLY) -> None:
    """Write a file in one step, with these permissions."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
