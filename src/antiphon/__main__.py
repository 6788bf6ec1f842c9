"""``python -m antiphon``: the command line without its script."""

from antiphon.cli import main

if __name__ == "__main__":
    main()
