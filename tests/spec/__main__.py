"""Prints the requirements that no test shows, lists requirements or faults with their tests, or writes the page."""

import argparse

from tests.spec import report, shown_by_every_module

parser = argparse.ArgumentParser(prog="python -m tests.spec", description=__doc__)
parser.add_argument("--list", action="store_true", help="print every requirement with the tests that show it")
parser.add_argument("--faults", action="store_true", help="print every fault with the tests that show it")
parser.add_argument("--write", action="store_true", help="write docs/requirements.md")
options = parser.parse_args()

if options.write:
    report.PAGE.write_text(report.page())
elif options.list:
    print(report.listing(shown_by_every_module()))
elif options.faults:
    print(report.faults())
else:
    print(report.coverage(shown_by_every_module()))
