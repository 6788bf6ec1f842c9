"""The official Python client in its legacy mode through a list of conversations, as `asking_client.py` has it."""

import sys

from asking_client import tell

if __name__ == "__main__":
    tell(sys.argv[1:], mode="legacy")
