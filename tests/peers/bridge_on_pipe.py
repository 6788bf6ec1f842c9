"""A bridge on standard streams: `python bridge_on_pipe.py ERA TARGET SITE`; clients add the site, which is not used."""

import sys

from antiphon.cli import commands

if __name__ == "__main__":
    era, target, _ = sys.argv[1:]
    commands.main(["bridge", target, "--era", era], prog_name="antiphon")
