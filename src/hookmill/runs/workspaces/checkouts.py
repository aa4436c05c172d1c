"""Checks out commits from mirrors, which are bare copies of repositories on this host.

A mirror is a cache: whatever is wrong with it, removing it is safe. There is one for each repository and depth, because
Git downloads again what a smaller depth has hidden. One process uses it at a time. A checkout shares nothing with its
mirror, and no Git command is executed in a checkout after its run has got it.

With a base, the checkout has enough history for the true merge base. A part of the history may have another one: if a
pull request merges an old commit, this may be the newest common ancestor in that part, and changes would be hidden.
"""

import fcntl
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from hookmill.domain.workspace import BASE_REF, FULL_DEPTH, CheckoutCommits, GitRef, RefKind, depths_to_fetch
from hookmill.runs.runner import Instruction
from hookmill.runs.workspaces.git import (
    Credential,
    FailureCause,
    GitError,
    GitOverworked,
    GitResult,
    protocol_of,
    run_git,
)
from hookmill.runs.workspaces.repository import RepositorySettings
from hookmill.sandbox.disk import UNMEASURABLE, DiskUse, disk_use
from hookmill.sandbox.reserve import SIZE_MIN, Resource
from hookmill.store.directories import remove_or_set_aside
from hookmill.store.private_file import open_lock_file

REPOSITORIES: Final = "repositories"
"""The directory of the mirrors in the data directory."""
INFINITE_DEPTH: Final = 2_147_483_647
"""Git's name for the whole history, which also completes a shallow mirror."""
PACKS_MAX: Final = 40
"""With more packs, a mirror is packed again, because Git searches each of them."""
ENTRY_BYTES: Final = 4_096
"""The minimum for which a file or directory counts, so that the number of empty ones has a limit, too."""
LEVELS_MAX: Final = 256
"""How deep the directories of a checkout may be nested. Deeper ones could exhaust open files of this process."""
PATH_BYTES_MAX: Final = 4_095
NAME_BYTES_MAX: Final = 255
"""The longest path and the longest name that Linux allows."""
UNUSED_SECONDS: Final = 30 * 86_400
"""After this time without use, a mirror is removed when a worker starts."""
LOCK_TICK_SECONDS: Final = 0.1
SHA256_DIGITS: Final = 64
REF_LINE_BYTES_MAX: Final = 65_536
MERGE_BASES_MAX: Final = 32
"""How many merge bases are considered. Merges in both directions can create any number."""
_COMMIT: Final = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_LEAST: Final = DiskUse(1, 1)
"""What a workspace needs at least."""
_DRAFT_SUFFIX: Final = ".new"
"""The suffix of a mirror that will replace another one, if it can be made."""
_LS_REMOTE_LINE: Final = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\t(\S+)\Z")


class WorkspaceRefused(Exception):
    """The run can't have the workspace that its automation names. The text has no value of a payload."""


class RefNotFound(WorkspaceRefused):
    """The repository does not have what the run asked for."""


class WorkspaceTooLarge(WorkspaceRefused):
    """The repository or the checkout has more bytes than the operator allows."""


class _MirrorTooLarge(WorkspaceTooLarge):
    """The mirror has more bytes than the operator allows. Earlier fetches may have brought them."""


class WorkspaceUnavailable(Exception):
    """The repository could not be read, for a reason that neither the automation nor the payload can change."""


class WorkspaceStopped(Exception):
    """A person has cancelled the run, or the worker stops."""

    def __init__(self, instruction: Instruction) -> None:
        super().__init__(instruction.name)
        self.instruction = instruction


class HostShortage(Exception):
    """This host lacks disk space or memory.

    `has_begun`: whether work had begun, so that the workspace may be the reason.
    """

    def __init__(self, message: str, *, has_begun: bool) -> None:
        super().__init__(message)
        self.has_begun = has_begun


class _DiskShortage(HostShortage):
    """The disk has too little room for the workspace."""


class _HistoryTooShort(Exception):
    """The mirror has too little history to be certain of the merge base."""


class _MirrorInDoubt(Exception):
    """Git failed with a mirror for no reason that the repository or the server explains. The text is Git's message."""


@dataclass(frozen=True, slots=True)
class Checkouts:
    """The mirrors in one data directory."""

    data: Path
    room: Callable[[], DiskUse] = lambda: UNMEASURABLE
    """What a workspace may use of the disk of the data directory. May raise `OSError`."""

    def check_out(
        self,
        name: str,
        repository: RepositorySettings,
        ref: GitRef,
        depth: int,
        target: Path,
        *,
        base: GitRef | None = None,
        credential: Credential | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> CheckoutCommits:
        """Check out what `ref` names to `target`, a new directory. Returns the ids of its commits.

        With a `base`, the checkout also has `BASE_REF`, and the history since the merge base.

        `tick` is called about ten times a second, and may raise to end the work. Raises `WorkspaceRefused` and
        `WorkspaceUnavailable`, and `HostShortage`, `OSError` or `MemoryError` for a fault of the host.
        """
        depths = depths_to_fetch(depth, has_base=base is not None)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (lacking := self._lacking_room(_LEAST)) is not None:
            raise _shortage(lacking, has_begun=False)
        growth = _Growth(self._lacking_room)

        def tick_with_room() -> None:
            tick()
            growth.check()

        work = _Checkout(name, repository, ref, base, depths[0], credential, tick_with_room, growth)
        try:
            refs = work.find_refs()
            for each_depth in depths:
                work = replace(work, depth=each_depth, is_deepened=each_depth != depths[0])
                mirror = self._directory / f"{_mirror_name(name, repository, each_depth, refs.id_digits)}.git"
                with _locked(mirror.with_suffix(".lock"), repository, tick) as lock:
                    growth.begin(mirror, target)
                    try:
                        return work.make(mirror, refs, target, lock)
                    except _HistoryTooShort:
                        continue
        except GitOverworked as error:
            raise WorkspaceRefused(
                f"{work.subject} has a commit that needs too much processor time: {error} Choose another commit, or "
                "ask the operator to raise time_limit_seconds."
            ) from None
        except GitError as error:
            raise WorkspaceUnavailable(f"{work.subject} could not be read: {error}") from None
        raise AssertionError("the whole history is never too short")

    def _lacking_room(self, needed: DiskUse) -> Resource | None:
        """What the disk lacks for so much, even without the mirrors that no run uses; None if it has enough."""
        if _lacking(self.room(), needed) is None:
            return None
        self.remove_least_used_mirrors(lambda: _lacking(self.room(), needed) is None)
        return _lacking(self.room(), needed)

    def remove_least_used_mirrors(self, has_enough: Callable[[], bool]) -> None:
        """Remove mirrors, those first that were not used for the longest time, until there is enough space.

        Kept are mirrors in use. One that can't be removed does not keep the others.
        """
        if not self._directory.is_dir():
            return
        for mirror in sorted(self._mirrors_and_drafts(), key=_used_at):
            if has_enough():
                return
            with suppress(OSError):
                _remove_if_unused(mirror)

    def remove_unused_mirrors(self, repositories: Collection[tuple[str, RepositorySettings]], now: float) -> None:
        """Remove the mirrors of repositories that the settings no longer have, and those that are long unused.

        `now`: seconds since 1970. Raises `OSError`.
        """
        if not self._directory.is_dir():
            return
        prefixes = tuple(_prefix_of(name, repository) for name, repository in repositories)
        for mirror in self._mirrors_and_drafts():
            is_in_use = mirror.name.startswith(prefixes) and now - _used_at(mirror) < UNUSED_SECONDS
            if not is_in_use or mirror.suffix == _DRAFT_SUFFIX:
                _remove_if_unused(mirror)

    def _mirrors_and_drafts(self) -> Iterable[Path]:
        return (*self._directory.glob("*.git"), *self._directory.glob(f"*{_DRAFT_SUFFIX}"))

    @property
    def _directory(self) -> Path:
        return self.data / REPOSITORIES


@dataclass(frozen=True, slots=True)
class _RemoteRefs:
    """What is fetched from the repository: full names of refs, or commit ids."""

    ref: str
    base: str | None
    id_digits: int
    """The number of digits of the repository's ids."""

    @property
    def refspecs(self) -> tuple[str, ...]:
        base_refspecs = (f"+{self.base}:{self.local_base}",) if self.base is not None else ()
        return (f"+{self.ref}:{self.local_ref}", *base_refspecs)

    @property
    def local_ref(self) -> str:
        return _local_name(self.ref)

    @property
    def local_base(self) -> str:
        """Another name than that of any `local_ref`: one fetch updates both."""
        assert self.base is not None
        return _local_name(self.base, "base-")


@dataclass(frozen=True, slots=True)
class _Checkout:
    name: str
    repository: RepositorySettings
    ref: GitRef
    base: GitRef | None
    depth: int
    credential: Credential | None
    tick: Callable[[], None]
    growth: "_Growth"
    is_deepened: bool = False
    """Whether the depth is larger than the workspace's, for the merge base."""

    @property
    def subject(self) -> str:
        return f"The repository {self.name!r} ({self.repository.place})"

    def find_refs(self) -> _RemoteRefs:
        """What the repository has under the names of the ref and the base."""
        names = (*self.ref.full_names, *(self.base.full_names if self.base is not None else ()))
        ids = self._ids_of(names) if names else {}
        ref = _remote_name(self.ref, ids)
        if ref is None:
            raise RefNotFound(self._missing(self.ref, "ref"))
        base = _remote_name(self.base, ids) if self.base is not None else None
        if self.base is not None and base is None:
            raise RefNotFound(self._missing(self.base, "base"))
        return _RemoteRefs(ref, base, len(ids.get(ref, ref)))

    def _ids_of(self, names: tuple[str, ...]) -> dict[str, str]:
        """The ids of the refs with these names, by name."""
        refs = _ListedRefs(frozenset(names))
        result = _ls_remote(
            self.repository,
            names,
            credential=self.credential,
            seconds=self.repository.time_limit_seconds,
            tick=self.tick,
            read_output=refs.read,
        )
        self._raise_if_content_or_host(result)
        if result.exit_status != 0:
            raise WorkspaceUnavailable(f"{self.subject} could not be read: {result.message}")
        return refs.ids

    def make(self, mirror: Path, refs: _RemoteRefs, target: Path, lock: int) -> CheckoutCommits:
        """Fetch into the mirror, and check out to `target`. Raises `_HistoryTooShort`.

        If the mirror may be damaged or has grown too large, a new one replaces it, but only if that one can be used.
        So no repository, commit or ref can cost the mirror that other runs use.
        """
        draft = mirror.with_suffix(_DRAFT_SUFFIX)
        remove_or_set_aside(draft)
        if mirror.exists():
            _remove_leftovers(mirror)
            try:
                return self._make(mirror, refs, target, lock)
            except (_MirrorInDoubt, _MirrorTooLarge):
                remove_or_set_aside(target)
            except _DiskShortage:
                # Earlier fetches may have brought what is too much.
                remove_or_set_aside(target)
                remove_or_set_aside(mirror)
                self.growth.begin(mirror, target)
            finally:
                _remove_leftovers(mirror)
        try:
            commits = self._make(draft, refs, target, lock)
            _replace(mirror, draft)
            return commits
        except _MirrorInDoubt as error:
            raise WorkspaceUnavailable(f"{self.subject} could not be fetched: {error}") from None
        except _HistoryTooShort:
            _replace(mirror, draft)
            raise
        finally:
            # After a success, there is none.
            remove_or_set_aside(draft)

    def _make(self, mirror: Path, refs: _RemoteRefs, target: Path, lock: int) -> CheckoutCommits:
        commits = self._fetch(mirror, refs, lock)
        self._check_size(mirror, commits.commit, target)
        self._copy(mirror, refs, commits, target, lock)
        return commits

    def _fetch(self, mirror: Path, refs: _RemoteRefs, lock: int) -> CheckoutCommits:
        self._create(mirror, refs.id_digits, "--bare")
        depth = INFINITE_DEPTH if self.depth == FULL_DEPTH else self.depth
        fetched = self._git(
            *("fetch", "--quiet", "--no-tags", "--force", "--no-write-fetch-head", f"--depth={depth}"),
            *("--end-of-options", self.repository.url, *refs.refspecs),
            git_directory=mirror,
            grows=mirror,
            too_large=_MirrorTooLarge,
            protocol=protocol_of(self.repository.url),
            credential=self.credential,
            lock=lock,
        )
        if fetched.cause is FailureCause.MISSING:
            if self.base is not None and refs.base is not None and refs.base in fetched.message:
                raise RefNotFound(self._missing(self.base, "base"))
            raise RefNotFound(self._missing(self.ref, "ref"))
        if fetched.cause is FailureCause.REMOTE:
            raise WorkspaceUnavailable(f"{self.subject} could not be fetched: {fetched.message}")
        _require_success(fetched)
        if len(list((mirror / "objects" / "pack").glob("*.pack"))) > PACKS_MAX:
            # This also removes commits that no ref leads to. Otherwise each fetch would list ever more commits whose
            # parents are missing.
            try:
                _require_success(self._git("gc", "--prune=now", "--quiet", git_directory=mirror, lock=lock))
            except (WorkspaceRefused, GitOverworked) as error:
                # Earlier fetches have brought what is too much.
                raise _MirrorInDoubt(str(error)) from None
        commit = self._commit_of(self.ref, "ref", mirror, refs.local_ref)
        if self.base is None:
            return CheckoutCommits(commit=commit)
        base_commit = self._commit_of(self.base, "base", mirror, refs.local_base)
        merge_base = self._merge_base(mirror, commit, base_commit)
        return CheckoutCommits(commit=commit, base_commit=base_commit, merge_base=merge_base)

    def _check_size(self, mirror: Path, commit: str, target: Path) -> None:
        """Raise `WorkspaceTooLarge` if the commit's files are too many, too large or nested too deeply.

        Git would first build a list of all files in memory, and a few small trees can name billions of them.
        """
        path_bytes_max = PATH_BYTES_MAX - len(os.fsencode(target)) - 1
        size = _TreeSize(self.repository.disk_bytes_max, path_bytes_max, self._too_large())
        listed = self._git(
            *("ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit), git_directory=mirror, read_output=size.read
        )
        _require_success(listed)
        self.growth.require_room_for(size.total)

    def _commit_of(self, ref: GitRef, noun: str, mirror: Path, local_name: str) -> str:
        parsed = self._git(
            *("rev-parse", "--verify", "--quiet", "--end-of-options", f"{local_name}^{{commit}}"), git_directory=mirror
        )
        commit = parsed.output.strip()
        if parsed.exit_status != 0 or not _COMMIT.match(commit):
            # The type of what a tag leads to.
            _require_success(self._git("cat-file", "-t", f"{local_name}^{{}}", git_directory=mirror))
            raise RefNotFound(f"{self.subject} has no commit there: the workspace's {noun} names something else.")
        if ref.kind is RefKind.COMMIT and commit != ref.text:
            raise RefNotFound(f"{self.subject} has no commit with the id of the workspace's {noun}, but a tag.")
        return commit

    def _merge_base(self, mirror: Path, commit: str, base_commit: str) -> str:
        """The newest common ancestor of the commits. Raises `_HistoryTooShort`, and `WorkspaceRefused` without one."""
        found = self._git("merge-base", "--all", commit, base_commit, git_directory=mirror)
        if found.exit_status != 1:
            _require_success(found)
        merge_bases = [line for line in found.output.splitlines() if _COMMIT.match(line)][:MERGE_BASES_MAX]
        if self.depth == FULL_DEPTH:
            if not merge_bases:
                raise WorkspaceRefused(f"{self.subject} has no common ancestor of the workspace's ref and base.")
            return merge_bases[0]
        if not merge_bases:
            raise _HistoryTooShort
        # Git treats a commit whose parents are missing as one without parents. If there is one that is no ancestor of a
        # merge base, another common ancestor, which is newer, may be missing.
        ends = self._git(
            *("rev-list", "--max-parents=0", "--max-count=1", commit, base_commit, "--not", *merge_bases),
            git_directory=mirror,
        )
        _require_success(ends)
        if ends.output:
            raise _HistoryTooShort
        return merge_bases[0]

    def _copy(self, mirror: Path, refs: _RemoteRefs, commits: CheckoutCommits, target: Path, lock: int) -> None:
        """Copy the commits from the mirror to a repository of its own, and check out the first."""
        self._create(target, len(commits.commit))
        depth = "--update-shallow" if self.depth == FULL_DEPTH else f"--depth={self.depth}"
        local_fetch = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", depth)
        local_names = (refs.local_ref, *((refs.local_base,) if refs.base is not None else ()))
        for arguments in (
            (*local_fetch, "--end-of-options", str(mirror), *local_names),
            *([("update-ref", BASE_REF, commits.base_commit)] if commits.base_commit is not None else ()),
            (f"--work-tree={target}", "checkout", "--quiet", "--detach", commits.commit, "--"),
            ("config", "remote.origin.url", self.repository.url),
            ("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
        ):
            result = self._git(
                *arguments, directory=target, git_directory=target / ".git", grows=target, protocol="file", lock=lock
            )
            _require_success(result)

    def _create(self, directory: Path, id_digits: int, *options: str) -> None:
        if directory.exists():
            return
        object_format = "sha256" if id_digits == SHA256_DIGITS else "sha1"
        created = self._git(
            *("init", "--quiet", "--template=", f"--object-format={object_format}", *options, str(directory))
        )
        if created.exit_status != 0:
            raise WorkspaceUnavailable(f"No repository could be created in {directory.parent}: {created.message}")

    def _git(
        self,
        *arguments: str,
        directory: Path | None = None,
        git_directory: Path | None = None,
        grows: Path | None = None,
        too_large: type[WorkspaceTooLarge] = WorkspaceTooLarge,
        protocol: str | None = None,
        credential: Credential | None = None,
        lock: int | None = None,
        read_output: Callable[[bytes], None] | None = None,
    ) -> GitResult:
        """Run Git. Raises `too_large` if `grows` exceeds the limit, and what `_raise_if_content_or_host` raises.

        `git_directory` is named, because Git would otherwise search for one in the parent directories.
        """
        bytes_max = self.repository.disk_bytes_max
        size_limit = _SizeLimit(grows, bytes_max) if grows is not None else None

        def tick() -> None:
            self.tick()
            if size_limit is not None and size_limit.is_exceeded():
                raise self._too_large(too_large)

        result = run_git(
            (f"--git-dir={git_directory}", *arguments) if git_directory is not None else arguments,
            directory=directory or git_directory,
            protocol=protocol,
            credential=credential,
            # If this process dies, the lock lasts as long as Git.
            open_descriptors=(lock,) if lock is not None else (),
            seconds=self.repository.time_limit_seconds,
            tick=tick,
            read_output=read_output,
            memory_bytes=self.repository.memory_bytes,
            # A file of this size is too large, and the measurement shows it.
            file_bytes=bytes_max + ENTRY_BYTES,
        )
        if grows is not None and disk_bytes(grows) > bytes_max:
            raise self._too_large(too_large)
        self._raise_if_content_or_host(result)
        return result

    def _raise_if_content_or_host(self, result: GitResult) -> None:
        """Raise `WorkspaceRefused` or `HostShortage` if the repository's content or this host is why Git failed."""
        match result.cause:
            case FailureCause.OUT_OF_MEMORY:
                raise WorkspaceRefused(
                    f"{self.subject} needs more than {self.repository.memory_bytes:,} bytes of memory, or has a "
                    f"commit that Git can't process within its limits: {result.message} Choose another commit, or ask "
                    "the operator to raise disk_bytes_max: the limit for memory is half of it, up to 4 GiB."
                )
            case FailureCause.MALFORMED:
                raise WorkspaceRefused(
                    f"{self.subject} has a malformed object, or a file name that this host can't use: {result.message}"
                )
            case FailureCause.KILLED:
                raise HostShortage(
                    "Git was killed while it made a workspace, probably because this host's memory was exhausted.",
                    has_begun=True,
                )

    def _too_large(self, error: type[WorkspaceTooLarge] = WorkspaceTooLarge) -> WorkspaceTooLarge:
        if self.is_deepened:
            return error(
                f"{self.subject} needs more than {self.repository.disk_bytes_max:,} bytes on this host's disk, because "
                "the newest common ancestor of the ref and the base is far back in the history. Ask the operator to "
                "raise disk_bytes_max."
            )
        return error(
            f"{self.subject} needs more than {self.repository.disk_bytes_max:,} bytes on this host's disk. Use a "
            "smaller depth, or ask the operator to raise disk_bytes_max."
        )

    def _missing(self, ref: GitRef, noun: str) -> str:
        if ref.kind is RefKind.COMMIT:
            return f"{self.subject} has no commit with the id of the workspace's {noun}, or does not give it out."
        if ref.kind is RefKind.DEFAULT:
            return f"{self.subject} has no default branch."
        return f"{self.subject} has no branch or tag with the name of the workspace's {noun}."


def _remote_name(ref: GitRef, ids: Collection[str]) -> str | None:
    """The full name of the ref among those of the repository, or its commit id; None if there is none."""
    if ref.kind is RefKind.COMMIT:
        return ref.text
    return next((name for name in ref.full_names if name in ids), None)


def _require_success(result: GitResult) -> None:
    if result.exit_status != 0:
        raise _MirrorInDoubt(result.message)


def _replace(mirror: Path, draft: Path) -> None:
    remove_or_set_aside(mirror)
    draft.rename(mirror)


def _remove_leftovers(mirror: Path) -> None:
    """Remove what a Git that was ended has left in the mirror: drafts of packs, and lock files."""
    for pattern in ("objects/pack/tmp_*", "objects/pack/.tmp-*", "objects/tmp_*", "*.lock", "refs/hookmill/*.lock"):
        for path in mirror.glob(pattern):
            remove_or_set_aside(path)


def _used_at(mirror: Path) -> float:
    """When the mirror was last used, in seconds since 1970; 0 if that is not known."""
    try:
        return mirror.with_suffix(".lock").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove_if_unused(mirror: Path) -> None:
    with open_lock_file(mirror.with_suffix(".lock")) as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_or_set_aside(mirror)


def _local_name(remote_name: str, prefix: str = "") -> str:
    # The names of branches would collide, such as a and a/b. The number of refs must stay small.
    return f"refs/hookmill/{prefix}{sha256(remote_name.encode()).hexdigest()[:2]}"


class _ListedRefs:
    """Picks refs with these names from the output of ls-remote, whose patterns also match the ends of other names."""

    def __init__(self, names: Collection[str]) -> None:
        self.ids: dict[str, str] = {}
        self._names = names
        self._rest = b""

    def read(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._rest = self._rest[:REF_LINE_BYTES_MAX]
        for line in lines:
            match = _LS_REMOTE_LINE.match(line.decode("utf-8", "replace"))
            if match is not None and match[2] in self._names:
                self.ids[match[2]] = match[1]


class _TreeSize:
    """Adds up what the files of a commit need on the disk, from the output of ls-tree."""

    def __init__(self, bytes_max: int, path_bytes_max: int, too_large: WorkspaceTooLarge) -> None:
        self._bytes_max = bytes_max
        self._path_bytes_max = path_bytes_max
        self._too_large = too_large
        self._bytes = 0
        self._files = 0
        self._rest = b""

    @property
    def total(self) -> DiskUse:
        return DiskUse(self._bytes, self._files)

    def read(self, chunk: bytes) -> None:
        """Raises `WorkspaceTooLarge` as soon as a limit is exceeded."""
        *entries, self._rest = (self._rest + chunk).split(b"\0")
        for entry in entries:
            metadata, _, path = entry.partition(b"\t")
            self._check_path(path)
            size = metadata.rpartition(b" ")[2]
            # Git's index has the path of each file, too.
            self._bytes += max(ENTRY_BYTES, int(size) if size.isdigit() else 0) + len(path)
            self._files += 1
            if self._bytes > self._bytes_max:
                raise self._too_large
        if len(self._rest) > 2 * PATH_BYTES_MAX:
            self._check_path(self._rest)

    def _check_path(self, path: bytes) -> None:
        if path.count(b"/") >= LEVELS_MAX:
            raise WorkspaceTooLarge(f"The workspace's commit has directories with more than {LEVELS_MAX} levels.")
        if len(path) > self._path_bytes_max or len(path.rpartition(b"/")[2]) > NAME_BYTES_MAX:
            raise WorkspaceTooLarge("The workspace's commit has a path that is too long for this host's file system.")


class _Growth:
    """What a checkout has added to the disk. Tells whether it is the reason if there is no longer any room."""

    def __init__(self, lacking_room: Callable[[DiskUse], Resource | None]) -> None:
        self._lacking_room = lacking_room
        self._mirror: Path | None = None
        self._target: Path | None = None
        self._mirror_before = DiskUse(0, 0)

    def begin(self, mirror: Path, target: Path) -> None:
        self._mirror, self._target = mirror, target
        self._mirror_before = disk_use([str(mirror)])

    def check(self) -> None:
        """Raises `WorkspaceTooLarge` or `HostShortage` if there is no longer any room."""
        if (lacking := self._lacking_room(_LEAST)) is not None:
            raise self._shortage(lacking, self._added())

    def require_room_for(self, needed: DiskUse) -> None:
        """Raises `WorkspaceTooLarge`, or `HostShortage` if so little is needed that it can't be the reason."""
        if (lacking := self._lacking_room(needed)) is not None:
            raise self._shortage(lacking, needed)

    def _shortage(self, lacking: Resource, use: DiskUse) -> Exception:
        used, before = (_amount(lacking, each) for each in (use, self._mirror_before))
        # A mirror that others made large is removed first.
        return _shortage(lacking, has_begun=True, is_reason=used >= SIZE_MIN[lacking] > before)

    def _added(self) -> DiskUse:
        if self._mirror is None or self._target is None:
            return DiskUse(0, 0)
        paths = (self._mirror, self._mirror.with_suffix(_DRAFT_SUFFIX), self._target)
        used = disk_use([str(path) for path in paths])
        return DiskUse(used.bytes - self._mirror_before.bytes, used.files - self._mirror_before.files)


def _amount(resource: Resource, use: DiskUse) -> int:
    return use.files if resource is Resource.INODES else use.bytes


def _lacking(room: DiskUse, needed: DiskUse) -> Resource | None:
    if room.bytes < needed.bytes:
        return Resource.DISK
    return Resource.INODES if room.files < needed.files else None


def _shortage(lacking: Resource, *, has_begun: bool, is_reason: bool = False) -> WorkspaceTooLarge | HostShortage:
    if is_reason:
        return WorkspaceTooLarge(
            f"The workspace needs more {lacking} than this host has above twice the reserve that runs must leave. "
            "Choose a smaller commit or depth, or ask the operator for a larger disk."
        )
    return _DiskShortage(
        f"A workspace needs more {lacking} than the data directory's disk has above free_space_min_mb and twice the "
        "reserve that runs must leave. Free disk space, or use a larger disk.",
        has_begun=has_begun,
    )


class _SizeLimit:
    """Measures a directory, and less often if that takes long."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._next_at = 0.0

    def is_exceeded(self) -> bool:
        now = time.monotonic()
        if now < self._next_at:
            return False
        size = disk_bytes(self._directory)
        self._next_at = time.monotonic() + 10 * (time.monotonic() - now)
        return size > self._bytes_max


def disk_bytes(directory: Path) -> int:
    """The space that a directory uses, with its content. Empty files and directories count, too."""
    use = disk_use([str(directory)])
    return max(use.bytes, use.files * ENTRY_BYTES)


def answer_of(repository: RepositorySettings, *, credential: Credential | None, seconds: float) -> GitResult:
    """What the repository answers to the question for its default branch. Raises `GitError`."""
    return _ls_remote(repository, ("HEAD",), credential=credential, seconds=seconds, tick=lambda: None)


def _ls_remote(
    repository: RepositorySettings,
    names: tuple[str, ...],
    *,
    credential: Credential | None,
    seconds: float,
    tick: Callable[[], None],
    read_output: Callable[[bytes], None] | None = None,
) -> GitResult:
    return run_git(
        ("ls-remote", "--quiet", "--end-of-options", repository.url, *names),
        protocol=protocol_of(repository.url),
        credential=credential,
        seconds=seconds,
        tick=tick,
        read_output=read_output,
    )


def _prefix_of(name: str, repository: RepositorySettings) -> str:
    # Another URL must not get the commits of an earlier one.
    return f"{name}-{sha256(repository.url.encode()).hexdigest()[:12]}-"


def _mirror_name(name: str, repository: RepositorySettings, depth: int, id_digits: int) -> str:
    return f"{_prefix_of(name, repository)}{depth or 'full'}{'-sha256' if id_digits == SHA256_DIGITS else ''}"


@contextmanager
def _locked(path: Path, repository: RepositorySettings, tick: Callable[[], None]) -> Iterator[int]:
    """Hold the lock, and yield its descriptor. Raises `GitError` if another process holds it for too long."""
    deadline = time.monotonic() + repository.time_limit_seconds
    with open_lock_file(path) as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                tick()
                if time.monotonic() > deadline:
                    raise GitError(
                        f"Other runs used its mirror for longer than {repository.time_limit_seconds} s."
                    ) from None
                time.sleep(LOCK_TICK_SECONDS)
        os.utime(lock.fileno())
        yield lock.fileno()
