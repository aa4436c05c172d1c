"""Reads from the output of strace whether the log was written and synced to disk before each delivery was answered."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OPTIONS = ["-f", "--seccomp-bpf", "-y", "-s", "6000", "-e", "signal=none"]
WRITES = "write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg"
SYNCS = "fsync,fdatasync,sync_file_range"


def tracing_command(strace: str, output: Path) -> str:
    """The strace command that starts a service's command, and writes to `output` what `calls` reads."""
    # Only root can trace a process that protects its memory. So the prctl calls of the service do nothing.
    unprotected = ["-e", "inject=prctl:retval=0"]
    return " ".join([strace, *OPTIONS, "-o", str(output), "-e", f"trace={WRITES},{SYNCS},prctl", *unprotected])


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One system call."""

    begun: int
    """The number of the line at which it began."""
    ended: int
    pid: int
    name: str
    arguments: str

    def is_on(self, file: str) -> bool:
        """Whether its first argument is a descriptor of a file whose path ends with `file`."""
        return self.arguments.partition(">")[0].endswith(file)


_BEGUN = re.compile(r"(?P<pid>\d+) +(?P<name>\w+)\((?P<rest>.*)")
_RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)")
_UNFINISHED = " <unfinished ...>"
_TEXT = re.compile(r'"([0-9a-f]{32})\\"')
_DELIVERY = re.compile(r"dlv_[0-9a-f]{32}")
_SUCCEEDED = re.compile(r"\) += \d+$")


def calls(output: Path) -> Iterator[Call]:
    """The successful calls, in the order in which they ended."""
    unfinished: dict[str, tuple[int, str, str]] = {}
    for number, line in enumerate(output.read_text(encoding="latin-1").splitlines()):
        if (resumed := _RESUMED.match(line)) is not None:
            begun, name, arguments = unfinished.pop(resumed["pid"])
            rest, pid = arguments + resumed["rest"], resumed["pid"]
        elif (whole := _BEGUN.match(line)) is not None:
            begun, name, rest, pid = number, whole["name"], whole["rest"], whole["pid"]
            if rest.endswith(_UNFINISHED):
                unfinished[pid] = begun, name, rest.removesuffix(_UNFINISHED)
                continue
        else:
            continue
        if _SUCCEEDED.search(rest):
            yield Call(begun=begun, ended=number, pid=int(pid), name=name, arguments=rest)


@dataclass(frozen=True, slots=True)
class TracedDeliveries:
    """Delivery ids by what the trace shows."""

    answered: frozenset[str]
    """The ids that were sent on a socket."""
    unwritten: frozenset[str]
    """The answered ids whose body was not written to the log before the answer."""
    unsynced: frozenset[str]
    """The answered ids without a sync of the log that began after this write and ended before the answer."""


def read_deliveries(output: Path, log: str, bodies: Mapping[str, str]) -> TracedDeliveries:
    """`log` is the end of the path of the log, SQLite's WAL. `bodies` has for each delivery id 32 hexadecimal digits,
    which are in its body only, in quotes."""
    written: dict[str, Call] = {}
    answers: dict[str, Call] = {}
    syncs: list[Call] = []
    deliveries = {text: delivery for delivery, text in bodies.items()}
    for call in calls(output):
        if call.is_on(log):
            if call.name in ("fsync", "fdatasync"):
                syncs.append(call)
            else:
                for text in _TEXT.findall(call.arguments):
                    if text in deliveries:
                        written.setdefault(deliveries[text], call)
        elif call.name not in SYNCS:
            for delivery in _DELIVERY.findall(call.arguments):
                if delivery in bodies:
                    answers.setdefault(delivery, call)
    unwritten = {delivery for delivery, answer in answers.items() if not _precedes(written.get(delivery), answer)}
    unsynced = {
        delivery
        for delivery, answer in answers.items()
        if delivery not in unwritten
        and not any(_precedes(written[delivery], sync) and _precedes(sync, answer) for sync in syncs)
    }
    return TracedDeliveries(frozenset(answers), frozenset(unwritten), frozenset(unsynced))


def _precedes(first: Call | None, second: Call) -> bool:
    return first is not None and first.ended < second.begun
