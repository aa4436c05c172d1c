"""Checks chained exports of deliveries. It needs only Python, and no Hookmill.

    python3 check_chain.py HEAD FILE…

HEAD is the head of the chain, as the export printed it. The files are those of the whole chain, in their order.
"""

import hashlib
import json
import sys
from pathlib import Path

SUFFIX_BYTES = len(b', "hash": "') + 64 + len(b'"}\n')


def fault(head: str, paths: list[str]) -> str | None:
    """The first fault in the chain; None if there is none."""
    sequence, previous, record = 0, "0" * 64, {}
    for path in paths:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                content, suffix = line[:-SUFFIX_BYTES], line[-SUFFIX_BYTES:]
                digest = hashlib.sha256(content).hexdigest()
                if suffix != b', "hash": "%s"}\n' % digest.encode():
                    return f"{path}, line {number}: it was altered or cut, because its hash is wrong"
                record = json.loads(line)
                if record["previous"] != previous or record["sequence"] != sequence + 1:
                    return f"{path}, line {number}: a line before it was altered, removed, added or moved"
                sequence, previous = sequence + 1, digest
        if "end" not in record:
            return f"{path}: it was cut after line {sequence} of the chain"
    return None if previous == head else f"the head is {previous}, and not {head}"


if __name__ == "__main__":
    reason = fault(sys.argv[1], sys.argv[2:])
    sys.exit(f"The chain is broken: {reason}." if reason else print("The chain is complete and unaltered."))
