"""Several instances in full: 200 older clients at 4 processes, one of which is killed; 10,000 abandoned sessions.

`python scripts/instances.py [options of pytest]`. The everyday tests try the same with fewer.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    command = [sys.executable, "-m", "pytest", "-q", "--durations=0", "tests/legacy/instances", *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "INSTANCES": "full"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
