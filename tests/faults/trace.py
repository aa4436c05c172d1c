"""What strace wrote down, read as a story: who wrote what to which file, when it was synced, when it was answered."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OPTIONS = ["-f", "--seccomp-bpf", "-y", "-s", "6000", "-e", "signal=none"]
WRITES = "write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg"
SYNCS = "fsync,fdatasync,sync_file_range"


def traced(strace: str, output: Path) -> str:
    """The command to put before a service's, for `calls`."""
    # What a protected process writes is shown to root alone, so the service is kept from protecting itself.
    unprotected = ["-e", "inject=prctl:retval=0"]
    return " ".join([strace, *OPTIONS, "-o", str(output), "-e", f"trace={WRITES},{SYNCS},prctl", *unprotected])


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One system call. `begun` and `ended` count in the order in which the kernel was entered and left."""

    begun: int
    ended: int
    pid: int
    name: str
    arguments: str

    def is_on(self, file: str) -> bool:
        """Whether its first argument, a descriptor, is of this file."""
        return self.arguments.partition(">")[0].endswith(file)


_BEGUN = re.compile(r"(?P<pid>\d+) +(?P<name>\w+)\((?P<rest>.*)")
_RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)")
_UNFINISHED = " <unfinished ...>"
_TEXT = re.compile(r'"([0-9a-f]{32})\\"')
_DELIVERY = re.compile(r"dlv_[0-9a-f]{32}")
_SUCCEEDED = re.compile(r"\) += \d+$")


def calls(output: Path) -> Iterator[Call]:
    """Those that succeeded, in the order in which they ended."""
    under_way: dict[str, tuple[int, str, str]] = {}
    for number, line in enumerate(output.read_text(encoding="latin-1").splitlines()):
        if (resumed := _RESUMED.match(line)) is not None:
            begun, name, arguments = under_way.pop(resumed["pid"])
            rest, pid = arguments + resumed["rest"], resumed["pid"]
        elif (whole := _BEGUN.match(line)) is not None:
            begun, name, rest, pid = number, whole["name"], whole["rest"], whole["pid"]
            if rest.endswith(_UNFINISHED):
                under_way[pid] = begun, name, rest.removesuffix(_UNFINISHED)
                continue
        else:
            continue
        if _SUCCEEDED.search(rest):
            yield Call(begun=begun, ended=number, pid=int(pid), name=name, arguments=rest)


@dataclass(frozen=True, slots=True)
class Story:
    """What can be told of deliveries by a trace."""

    answered: frozenset[str]
    """Delivery ids that went out on a socket."""
    unwritten: frozenset[str]
    """Of those: whose body was in no write to the log before."""
    unsynced: frozenset[str]
    """Of those: without a sync of the log that began after that write and ended before the answer."""


def story(output: Path, log: str, bodies: Mapping[str, str]) -> Story:
    """`log` is the end of the log's path; `bodies` has for each delivery id 32 hexadecimal digits that are in its body
    alone, in quotes."""
    written: dict[str, Call] = {}
    answers: dict[str, Call] = {}
    syncs: list[Call] = []
    expected = {text: delivery for delivery, text in bodies.items()}
    for call in calls(output):
        if call.is_on(log):
            if call.name in ("fsync", "fdatasync"):
                syncs.append(call)
            else:
                for text in _TEXT.findall(call.arguments):
                    if text in expected:
                        written.setdefault(expected[text], call)
        elif call.name not in SYNCS:
            for delivery in _DELIVERY.findall(call.arguments):
                if delivery in bodies:
                    answers.setdefault(delivery, call)
    unwritten = {delivery for delivery, answer in answers.items() if not _before(written.get(delivery), answer)}
    unsynced = {
        delivery
        for delivery, answer in answers.items()
        if delivery not in unwritten
        and not any(_before(written[delivery], sync) and _before(sync, answer) for sync in syncs)
    }
    return Story(frozenset(answers), frozenset(unwritten), frozenset(unsynced))


def _before(first: Call | None, second: Call) -> bool:
    return first is not None and first.ended < second.begun
