"""`python -m tests.chaos`: kill, stop and cut off everything between PostgreSQL and its replicas, and compare them.

--minutes M     rounds of load and faults for so long (default: 30), then every replica comes to the end once more
--kills N       instead: until so many processes have got SIGKILL, and all was compared behind them
--seed N        the load and the plan of faults, not their timing (default: by the clock)
--brokers N     1 or 3 (default: 1)
--clocks        step the clocks of connectors too, by seconds (needs a C compiler)
--round S       seconds of load and faults between two quiet points (default: 240)
--pace P        all waits of faults and between them are so many times as long (default: 1)
--home FOLDER   where data and logs are (default: a temporary folder; it stays where something was wrong)
--tally FILE    add a line with what was counted
--summary FILE  write a page of Markdown about it

Ctrl-C or SIGTERM: what runs is compared where it comes to the end within three minutes; the next one ends that, too.
Exit code 1: a replica differs from PostgreSQL, a process ended by itself, or nothing was compared.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import time
from pathlib import Path

from tests.chaos.disk import in_own_mounts
from tests.chaos.run import Plan, Run
from tests.chaos.world import make_home
from tests.harness.tally import add_line, end_on_signals


def main(arguments: list[str] | None = None) -> int:
    """Run it, and tell what it came to."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10**6)
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--clocks", action="store_true")
    parser.add_argument("--round", type=float, default=240)
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--tally", type=Path)
    parser.add_argument("--summary", type=Path)
    told = parser.parse_args(arguments)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    home = make_home(told.home)
    sys.stdout.write(f"seed {told.seed}, in {home}\n")
    plan = Plan(told.seed, told.minutes, told.kills, told.brokers, told.round, told.pace, clocks=told.clocks)
    report = Run(plan, home).run()
    sys.stdout.write(report.page())
    if told.summary is not None:
        report.write_page(told.summary)
    if told.tally is not None:
        add_line(told.tally, report.line())
    if report.is_wrong:
        sys.stdout.write(f"seed {report.seed}; what was written is in {home}\n")
        return 1
    if told.home is None:
        shutil.rmtree(home, ignore_errors=True)
    return 0 if report.quiet_points else 1


if __name__ == "__main__":
    in_own_mounts(sys.argv[1:])
    end_on_signals()
    sys.exit(main())
