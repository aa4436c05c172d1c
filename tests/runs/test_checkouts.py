"""Checkouts of real Git repositories: refs, depths, mirrors, limits, credentials, and what Git must not execute."""

import base64
import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from hookmill.domain import workspace as workspace_module
from hookmill.domain.secret import SecretValue
from hookmill.domain.workspace import BASE_REF, DEFAULT_REF, FULL_DEPTH, CheckoutCommits, GitRef, git_ref
from hookmill.runs.runner import Instruction
from hookmill.runs.workspaces import checkouts
from hookmill.runs.workspaces import git as git_module
from hookmill.runs.workspaces import repository as repository_module
from hookmill.runs.workspaces.checkouts import (
    Checkouts,
    HostShortage,
    RefNotFound,
    WorkspaceRefused,
    WorkspaceStopped,
    WorkspaceTooLarge,
    WorkspaceUnavailable,
    disk_bytes,
)
from hookmill.runs.workspaces.git import Credential, run_git
from hookmill.runs.workspaces.repository import RepositorySettings
from hookmill.sandbox.disk import UNMEASURABLE, DiskUse
from tests.support.git_server import SourceRepository, git, serve_over_http, tree_entry

MIB = 1024 * 1024
PASSWORD = "ghp_not-a-real-token-7Qq"


class Host:
    """A host with a data directory, and a source repository."""

    def __init__(self, directory: Path):
        self.data = directory / "data"
        self.source = SourceRepository.create(directory / "source")
        self.checkouts = Checkouts(self.data)
        self.commits = CheckoutCommits(commit="")
        """The commits of the latest checkout."""
        self._directory = directory
        self._count = 0

    def check_out(self, ref: GitRef = DEFAULT_REF, depth: int = 1, url: str | None = None, **options: Any) -> Path:
        """Check out to a new directory, and return the directory."""
        self._count += 1
        target = self._directory / f"workspace-{self._count}"
        settings = {name: options.pop(name) for name in ("disk_bytes_max", "time_limit_seconds") if name in options}
        repository = RepositorySettings(url=url or str(self.source.directory), **settings)
        self.commits = self.checkouts.check_out("app", repository, ref, depth, target, **options)
        assert git(target, "rev-parse", "HEAD") == self.commits.commit
        return target

    def mirrors(self) -> list[str]:
        return sorted(path.name for path in (self.data / "repositories").iterdir() if path.suffix != ".lock")

    def mirror_inode(self) -> int:
        """Another mirror in the place of this one has another inode."""
        [name] = self.mirrors()
        return (self.data / "repositories" / name).stat().st_ino


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def history(workspace: Path) -> list[str]:
    return git(workspace, "log", "--format=%s").splitlines()


def test_default_branch_is_checked_out(host):
    host.source.commit("first", README="one")
    host.source.commit("second", README="two", src__app="code")

    workspace = host.check_out()

    assert (workspace / "README").read_text() == "two"
    assert (workspace / "src" / "app").read_text() == "code"
    assert history(workspace) == ["second"]
    assert git(workspace, "status", "--porcelain") == ""
    assert git(workspace, "remote", "get-url", "origin") == str(host.source.directory)


@pytest.mark.parametrize(
    ("ref", "content"),
    [
        ("dev", "dev"),
        ("refs/heads/dev", "dev"),
        ("v1", "tagged"),
        ("refs/tags/v1", "tagged"),
        ("both", "branch"),
        ("refs/tags/both", "tagged"),
        ("deep/er", "dev"),
    ],
)
def test_branches_and_tags_are_checked_out(host, ref, content):
    host.source.commit(f="tagged")
    host.source.git("tag", "-a", "v1", "-m", "annotated")
    host.source.git("tag", "both")
    host.source.git("checkout", "-q", "-b", "both")
    host.source.commit(f="branch")
    host.source.git("checkout", "-q", "-b", "dev")
    host.source.commit(f="dev")
    host.source.git("branch", "deep/er")
    host.source.git("checkout", "-q", "main")

    assert (host.check_out(git_ref(ref)) / "f").read_text() == content


def test_commit_is_checked_out_by_its_id_and_depth_counts_from_it(host):
    commits = [host.source.commit(name, f=name) for name in ("a", "b", "c", "d")]

    assert history(host.check_out(git_ref(commits[2]))) == ["c"]
    assert history(host.check_out(git_ref(commits[2]), depth=2)) == ["c", "b"]
    assert history(host.check_out(git_ref(commits[2]), depth=FULL_DEPTH)) == ["c", "b", "a"]
    assert history(host.check_out(depth=FULL_DEPTH)) == ["d", "c", "b", "a"]
    assert history(host.check_out(git_ref(commits[1]))) == ["b"]


def test_new_commits_and_forced_branches_are_fetched(host):
    host.source.commit("first")
    host.check_out()
    host.source.commit("second")
    assert history(host.check_out()) == ["second"]

    host.source.git("commit", "--amend", "--allow-empty", "-q", "-m", "rewritten")

    assert history(host.check_out()) == ["rewritten"]
    assert len(host.mirrors()) == 1


def test_repository_with_sha256_ids_is_checked_out(tmp_path):
    host = Host(tmp_path)
    source = SourceRepository.create(tmp_path / "sha256", "--object-format=sha256")
    commit = source.commit("only", f="x")

    by_name = host.check_out(url=str(source.directory))
    by_id = host.check_out(git_ref(commit), url=str(source.directory))

    assert git(by_name, "rev-parse", "HEAD") == git(by_id, "rev-parse", "HEAD") == commit


@pytest.mark.parametrize(
    ("ref", "problem"),
    [
        (git_ref("missing"), "has no branch or tag with the name of the workspace's ref"),
        (git_ref("heads/main"), "has no branch or tag"),
        (git_ref("0123456789" * 4), "has no commit with the id"),
        (git_ref("0123456789abcdef" * 4), "has no commit with the id"),
    ],
)
def test_missing_ref_is_refused(host, ref, problem):
    host.source.commit()

    with pytest.raises(RefNotFound, match=problem) as refused:
        host.check_out(ref)

    assert str(ref.text) not in str(refused.value)


def test_empty_repository_has_no_default_branch(host):
    with pytest.raises(RefNotFound, match="has no default branch"):
        host.check_out()


@pytest.mark.parametrize("kind", ["tree", "blob", "tag"])
def test_id_of_another_object_is_no_commit(host, kind):
    host.source.commit(f="x")
    host.source.git("tag", "-a", "v1", "-m", "annotated")
    objects = {"tree": "HEAD^{tree}", "blob": "HEAD:f", "tag": "v1"}

    with pytest.raises(RefNotFound):
        host.check_out(git_ref(host.source.git("rev-parse", objects[kind])))


def test_repository_that_does_not_answer_is_no_fault_of_the_run(host):
    with pytest.raises(WorkspaceUnavailable, match="could not be read"):
        host.check_out(url="http://127.0.0.1:1/app.git")
    with pytest.raises(WorkspaceUnavailable, match=r"could not be read: .*does not appear to be a git repository"):
        host.check_out(url="/nonexistent/app.git")


def test_damaged_mirror_is_replaced(host):
    host.source.commit("first")
    host.check_out()
    mirror = host.data / "repositories" / host.mirrors()[0]
    host.source.commit("second")
    (mirror / "shallow.lock").touch()

    assert history(host.check_out()) == ["second"]

    (mirror / "HEAD").unlink()
    assert history(host.check_out()) == ["second"]


@pytest.mark.parametrize(
    ("file", "start", "end"),
    [
        ("objects/pack/*.pack", 12, 60),
        ("objects/pack/*.pack", 40, None),
        ("objects/pack/*.idx", 0, None),
        ("refs/hookmill/*", 0, 20),
        ("config", 0, 20),
    ],
)
def test_mirror_with_a_damaged_file_is_replaced(host, file, start, end):
    host.source.commit("only", f="x" * 1_000)
    host.check_out()
    mirror = host.mirror_inode()
    [path] = (host.data / "repositories" / host.mirrors()[0]).glob(file)
    content = path.read_bytes()
    damaged = content[:start] + (b"" if end is None else bytes(end - start) + content[end:])
    path.chmod(0o600)
    path.write_bytes(damaged)

    assert history(host.check_out()) == ["only"]
    assert host.mirror_inode() != mirror


def test_unreachable_server_does_not_cost_the_mirror(host):
    commit = host.source.commit()
    with serve_over_http(host.source.directory / ".git") as server:
        host.check_out(git_ref(commit), url=server.url)
    [mirror] = host.mirrors()
    inode = (host.data / "repositories" / mirror).stat().st_ino

    with pytest.raises(WorkspaceUnavailable):
        host.check_out(git_ref("0123456789" * 4), url=server.url)

    assert (host.data / "repositories" / mirror).stat().st_ino == inode


@pytest.mark.parametrize("is_compressible", [False, True], ids=["mirror", "checkout"])
def test_repository_above_the_limit_is_refused_and_removed(host, is_compressible):
    content = "0" * 3_000_000 if is_compressible else os.urandom(1_500_000).hex()
    host.source.commit(f=content)

    with pytest.raises(WorkspaceTooLarge, match=r"needs more than 1,048,576 bytes"):
        host.check_out(disk_bytes_max=1_048_576)

    assert disk_bytes(host.data) < 500_000


def test_mirror_that_grew_above_the_limit_begins_again(host):
    for number in range(3):
        host.source.commit(f=os.urandom(250_000).hex())
        workspace = host.check_out(disk_bytes_max=1_048_576)
        assert len(history(workspace)) == 1, number


def test_mirror_with_many_packs_is_packed_and_forgets_old_commits(host, monkeypatch):
    monkeypatch.setattr(checkouts, "PACKS_MAX", 2)
    for number in range(5):
        host.source.commit(f=str(number))
        assert (host.check_out() / "f").read_text() == str(number)

    mirror = host.data / "repositories" / host.mirrors()[0]
    assert len(list((mirror / "objects" / "pack").glob("*.pack"))) <= 3
    assert len((mirror / "shallow").read_text().splitlines()) <= 3


def test_work_ends_when_the_tick_raises(host):
    host.source.commit()

    def tick():
        raise WorkspaceStopped(Instruction.ABANDON)

    with pytest.raises(WorkspaceStopped):
        host.check_out(tick=tick)


def test_wait_for_a_mirror_in_use_has_a_deadline(host):
    commit = host.source.commit()
    host.check_out()
    lock = host.data / "repositories" / host.mirrors()[0].replace(".git", ".lock")

    with lock.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(WorkspaceUnavailable, match="Other runs used its mirror for longer than 1 s"):
            # By its id: to find a branch, Git would need a part of this second.
            host.check_out(git_ref(commit), time_limit_seconds=1)


def test_mirror_is_private_and_shares_nothing_with_a_checkout(host):
    host.source.commit(f="x")

    workspace = host.check_out()

    assert (host.data / "repositories").stat().st_mode & 0o777 == 0o700
    assert not (workspace / ".git" / "objects" / "info" / "alternates").exists()
    files = [path for path in (workspace / ".git").rglob("*") if path.is_file()]
    assert files
    assert all(path.stat().st_nlink == 1 for path in files)
    assert not (workspace / ".git" / "hooks").exists()


def test_unused_mirrors_are_removed(host):
    host.source.commit()
    host.check_out()
    repository = RepositorySettings(url=str(host.source.directory))
    day = 86_400.0
    mirror = host.data / "repositories" / host.mirrors()[0]
    now = mirror.stat().st_mtime
    # A killed worker leaves such a draft.
    mirror.with_suffix(".new").mkdir()

    host.checkouts.remove_unused_mirrors([("app", repository)], now + day)
    kept = host.mirrors()
    host.checkouts.remove_unused_mirrors([("app", repository)], now + 31 * day)
    after_a_month = host.mirrors()
    host.check_out()
    host.checkouts.remove_unused_mirrors([("other", repository)], now + day)

    assert (len(kept), after_a_month, host.mirrors()) == (1, [], [])


# Bases


def diff(workspace: Path) -> list[str]:
    """The names of the files that the documented command shows as changed."""
    return git(workspace, "diff", "--name-only", "hookmill/base...HEAD", "--").splitlines()


def small_depths(monkeypatch: pytest.MonkeyPatch, *depths: int):
    monkeypatch.setattr(workspace_module, "BASE_DEPTHS", depths)


def test_changes_since_the_base_are_compared_without_later_ones_of_the_base(host):
    fork = host.source.commit("base", old="x")
    host.source.git("checkout", "-q", "-b", "topic")
    head = host.source.commit("change", new="x")
    host.source.git("checkout", "-q", "main")
    base = host.source.commit("meanwhile", other="x")

    workspace = host.check_out(git_ref(head), base=git_ref("main"))

    assert host.commits == CheckoutCommits(commit=head, base_commit=base, merge_base=fork)
    assert git(workspace, "rev-parse", BASE_REF) == base
    assert diff(workspace) == ["new"]
    assert git(workspace, "log", "--format=%s", "hookmill/base..HEAD") == "change"
    assert git(workspace, "for-each-ref", "--format=%(refname)") == BASE_REF


def test_changes_of_the_base_that_were_merged_into_the_topic_are_not_shown(host):
    host.source.commit("base", old="x")
    host.source.git("branch", "topic")
    merged = host.source.commit("meanwhile", other="x")
    host.source.git("checkout", "-q", "topic")
    host.source.commit("change", new="x")
    host.source.git("merge", "-q", "--no-edit", "main")

    workspace = host.check_out(git_ref("topic"), base=git_ref("main"))

    assert host.commits.merge_base == merged
    assert diff(workspace) == ["new"]


@pytest.mark.parametrize("is_commit_id", [False, True], ids=["tag", "commit"])
def test_base_is_a_commit_even_if_an_annotated_tag_names_it(host, is_commit_id):
    commit = host.source.commit(old="x")
    host.source.git("tag", "-a", "v1", "-m", "annotated")
    host.source.commit(new="x")

    workspace = host.check_out(base=git_ref(commit if is_commit_id else "v1"))

    assert (host.commits.base_commit, host.commits.merge_base) == (commit, commit)
    assert git(workspace, "cat-file", "-t", BASE_REF) == "commit"
    assert diff(workspace) == ["new"]


def test_file_that_is_named_like_the_comparison_does_not_prevent_it(host):
    base = host.source.commit(old="x")
    host.source.commit(**{"hookmill/base...HEAD": "x"})

    workspace = host.check_out(base=git_ref(base))

    assert diff(workspace) == ["hookmill/base...HEAD"]


def test_base_and_ref_may_be_the_same(host):
    commit = host.source.commit(f="x")

    workspace = host.check_out(git_ref("main"), base=git_ref("main"))

    assert host.commits == CheckoutCommits(commit=commit, base_commit=commit, merge_base=commit)
    assert diff(workspace) == []


def test_history_is_fetched_until_the_merge_base_is_certain(host, monkeypatch):
    small_depths(monkeypatch, 2, 4)
    fork = host.source.commit(old="x")
    for number in range(3):
        host.source.commit(**{f"base{number}": "x"})
    host.source.git("branch", "topic", fork)

    near = host.check_out(git_ref("main"), base=git_ref("main"))
    host.source.git("checkout", "-q", "topic")
    host.source.commit(new="x")
    far = host.check_out(git_ref("topic"), base=git_ref("main"))
    host.source.git("checkout", "-q", "main")
    host.source.commit(late="x")
    farther = host.check_out(git_ref("topic"), base=git_ref("main"))

    assert (len(history(near)), diff(far), diff(farther)) == (2, ["new"], ["new"])
    assert [name.rpartition("-")[2] for name in host.mirrors()] == ["2.git", "4.git", "full.git"]


def test_merge_of_an_old_commit_hides_no_change(host, monkeypatch):
    """A part of the history would show the old commit as the merge base, and so hide that a fix is undone."""
    small_depths(monkeypatch, 3, 4)
    old = host.source.commit("old", code="with the fault")
    fork = host.source.commit("fix", code="fixed")
    host.source.git("checkout", "-q", "-b", "topic")
    for number in range(4):
        host.source.commit(f"filler {number}", filler=str(number))
    head = host.source.git("commit-tree", f"{old}^{{tree}}", "-p", "HEAD", "-p", old, "-m", "merge")
    host.source.git("checkout", "-q", "main")

    workspace = host.check_out(git_ref(head), base=git_ref("main"))

    assert host.commits.merge_base == fork
    assert "code" in diff(workspace)


def test_checkout_without_a_common_ancestor_is_refused(host):
    host.source.commit(f="x")
    host.source.git("checkout", "-q", "--orphan", "unrelated")
    host.source.commit(g="x")

    with pytest.raises(WorkspaceRefused, match="no common ancestor of the workspace's ref and base"):
        host.check_out(git_ref("unrelated"), base=git_ref("main"))


@pytest.mark.parametrize("base", ["missing", "0123456789" * 4, "0123456789abcdef" * 4])
@pytest.mark.parametrize("is_by_id", [False, True], ids=["branch", "commit"])
def test_missing_base_is_refused_and_never_another_one(host, base, is_by_id):
    commit = host.source.commit()

    with pytest.raises(RefNotFound, match="the workspace's base") as refused:
        host.check_out(git_ref(commit if is_by_id else "main"), base=git_ref(base))

    assert base not in str(refused.value)


def test_missing_ref_is_not_taken_for_a_missing_base(host):
    host.source.commit()

    with pytest.raises(RefNotFound, match="the workspace's ref"):
        host.check_out(git_ref("0123456789" * 4), base=git_ref("main"))


def test_history_that_is_too_large_for_the_merge_base_is_refused(host, monkeypatch):
    small_depths(monkeypatch, 1)
    host.source.commit()
    host.source.git("branch", "topic")
    host.source.commit(large=os.urandom(1_100_000).hex())
    (host.source.directory / "large").unlink()
    host.source.commit()

    with pytest.raises(WorkspaceTooLarge, match="the newest common ancestor of the ref and the base is far back"):
        host.check_out(git_ref("topic"), base=git_ref("main"), disk_bytes_max=1_048_576)


# What Git must not execute or follow


def executing_config(marker: Path) -> str:
    command = f"touch {marker}"
    return "\n".join(
        (
            "[core]",
            f"  fsmonitor = {command}",
            f"  sshCommand = {command}",
            f"  hooksPath = {marker.parent}/hooks",
            "[uploadpack]",
            f"  packObjectsHook = {command}",
            '[filter "lfs"]',
            f"  smudge = {command}",
            f"  process = {command}",
            "  required = true",
            "[credential]",
            f"  helper = !{command}",
            "[alias]",
            f"  fetch = !{command}",
        )
    )


def test_no_hook_filter_or_submodule_is_executed(host, tmp_path, monkeypatch):
    marker = tmp_path / "executed"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
        (hooks / name).chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(executing_config(marker))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_SSH_COMMAND", f"touch {marker}")
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(tmp_path))
    inner = SourceRepository.create(tmp_path / "inner")
    inner.commit(f="inner")
    host.source.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.directory), "sub")
    host.source.commit(**{".gitattributes": "* filter=lfs diff=lfs\n", "large": "version https://lfs\n"})

    workspace = host.check_out()

    assert not marker.exists()
    assert (workspace / "large").read_text() == "version https://lfs\n"
    assert list((workspace / "sub").iterdir()) == []


def test_links_in_a_checkout_are_kept_and_not_followed(host, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (host.source.directory / "link").symlink_to(outside)
    (host.source.directory / "loop").symlink_to(".")
    host.source.commit()

    workspace = host.check_out()

    assert (workspace / "link").readlink() == outside
    assert disk_bytes(workspace) < 1_000_000
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("path", ["a/" * 300 + "f", f"{'x' * 200}/" * 20 + "f"], ids=["deep", "long"])
def test_deep_directories_and_long_paths_are_refused(host, path):
    blob = host.source.commit(f="x") and host.source.git("rev-parse", "HEAD:f")
    host.source.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
    host.source.git("commit", "-q", "-m", "deep")
    target = host.data.parent / "workspace-1"

    with pytest.raises(WorkspaceTooLarge):
        host.check_out()

    assert not target.exists()


@pytest.mark.parametrize("url", ["ext::sh -c touch% {marker}", "file://{source}", "https://127.0.0.1:1/x"])
def test_other_protocols_are_not_used(host, tmp_path, url):
    host.source.commit()
    marker = tmp_path / "executed"
    address = url.format(marker=marker, source=host.source.directory)

    result = run_git(("ls-remote", "--end-of-options", address), seconds=10, protocol="ssh")

    assert result.exit_status != 0
    assert "not allowed" in result.message
    assert not marker.exists()


def test_ssh_asks_nothing(host, tmp_path, monkeypatch):
    host.source.commit("over SSH")
    programs = tmp_path / "programs"
    programs.mkdir()
    # The last argument is the command for the server.
    (programs / "ssh").write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/record\nfor last; do :; done\neval "exec $last"\n'
    )
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    workspace = host.check_out(url=f"git@git.example.com:{host.source.directory}/.git")

    assert history(workspace) == ["over SSH"]
    for line in (tmp_path / "record").read_text().splitlines():
        assert line.startswith("-o BatchMode=yes -o ConnectTimeout=20 ")
        assert " git@git.example.com git-upload-pack " in line


MALFORMED_TREES = {
    ".git": [("100644", ".git", "blob")],
    ".GIT as a directory": [("40000", ".GIT", "tree")],
    "git~1": [("100644", "git~1", "blob")],
    ".": [("100644", ".", "blob")],
    "..": [("40000", "..", "tree")],
    "a slash in a name": [("100644", "../x", "blob")],
    "an empty name": [("100644", "", "blob")],
    "the same name twice": [("100644", "a", "blob"), ("100644", "a", "blob")],
    "names that are not sorted": [("100644", "b", "blob"), ("100644", "a", "blob")],
    "a mode that is no number": [("1006x4", "a", "blob")],
    "no mode": [("", "a", "blob")],
    "the id 0": [("100644", "a", "zero")],
    "a file that is a directory": [("40000", "a", "blob")],
    "a directory that is a file": [("100644", "a", "tree")],
    ".gitmodules as a link": [("120000", ".gitmodules", "blob")],
    "a path outside for a submodule": [("100644", ".gitmodules", "modules")],
}


@pytest.mark.parametrize("entries", MALFORMED_TREES.values(), ids=MALFORMED_TREES)
def test_malformed_commit_is_refused_and_costs_no_mirror(host, entries):
    commit = host.source.commit(f="x")
    objects = {
        "blob": host.source.git("rev-parse", "HEAD:f"),
        "tree": host.source.git("rev-parse", "HEAD^{tree}"),
        "zero": "0" * 40,
        "modules": host.source.store("blob", b'[submodule "../../x"]\n\tpath = x\n\turl = https://git.example.com/x\n'),
    }
    tree = b"".join(tree_entry(mode, name, objects[kind]) for mode, name, kind in entries)
    host.source.branch("bad", host.source.store("tree", tree))
    host.check_out()
    mirror = host.mirror_inode()

    with pytest.raises(WorkspaceRefused, match="has a malformed object") as refused:
        host.check_out(git_ref("bad"))

    assert not isinstance(refused.value, RefNotFound)
    assert host.mirror_inode() == mirror
    assert git(host.check_out(), "rev-parse", "HEAD") == commit


def test_truncated_tree_is_refused(host):
    host.source.commit(f="x")
    host.source.branch("bad", host.source.store("tree", b"100644 a\0short"))

    with pytest.raises(WorkspaceRefused, match="has a malformed object"):
        host.check_out(git_ref("bad"))


@pytest.mark.parametrize(
    "person", ["Ada 1 +0000", "Ada <ada 1 +0000", "<> 1 +0000", "Ada <a> x +0000", "Ada <a> 1 +051800"]
)
@pytest.mark.parametrize("depth", [1, FULL_DEPTH])
def test_old_commit_without_a_usual_author_is_checked_out(host, person, depth):
    host.source.commit(f="x")
    tree = host.source.git("rev-parse", "HEAD^{tree}")
    old = host.source.branch("old", tree, f"author {person}", f"committer {person}")
    usual = [f"{name} Ada <ada@example.com> 1767225600 +0000" for name in ("author", "committer")]
    host.source.branch("new", tree, f"parent {old}", *usual)

    for branch in ("old", "new"):
        assert (host.check_out(git_ref(branch), depth) / "f").read_text() == "x"


# Limits for what a commit may contain


def test_commit_that_names_billions_of_files_is_refused(host):
    """Each of ten trees has the previous one ten times. Git would list all files in memory before it writes one."""
    host.source.commit(f="x")
    mode, entry = "100644", host.source.git("rev-parse", "HEAD:f")
    for _ in range(10):
        entry = host.source.store("tree", b"".join(tree_entry(mode, str(name), entry) for name in range(10)))
        mode = "40000"
    host.source.branch("bomb", entry)
    host.check_out(disk_bytes_max=50_000_000)
    mirror = host.mirror_inode()

    with pytest.raises(WorkspaceTooLarge, match="needs more than 50,000,000 bytes"):
        host.check_out(git_ref("bomb"), disk_bytes_max=50_000_000)

    assert host.mirror_inode() == mirror
    assert disk_bytes(host.data) < 500_000


def test_file_that_needs_too_much_memory_is_refused(host, monkeypatch):
    host.source.commit("small", f="x")
    host.source.git("branch", "small")
    host.source.commit("large", large="0" * 30_000_000)
    monkeypatch.setattr(repository_module, "MEMORY_BYTES", 20_000_000)
    host.check_out(git_ref("small"), disk_bytes_max=30_000_000)
    mirror = host.mirror_inode()

    with pytest.raises(WorkspaceRefused, match="needs more than 20,000,000 bytes of memory"):
        host.check_out(disk_bytes_max=30_000_000)

    assert host.mirror_inode() == mirror
    assert history(host.check_out(git_ref("small"), disk_bytes_max=30_000_000)) == ["small"]


def test_commit_that_is_too_large_costs_no_mirror(host):
    host.source.commit("small", f="x")
    host.source.git("branch", "small")
    host.source.commit("large", large=os.urandom(1_500_000).hex())
    host.check_out(git_ref("small"), disk_bytes_max=1_048_576)
    mirror = host.mirror_inode()

    with pytest.raises(WorkspaceTooLarge):
        host.check_out(disk_bytes_max=1_048_576)

    assert host.mirror_inode() == mirror
    assert disk_bytes(host.data) < 500_000


@pytest.mark.parametrize("calls_with_room", [0, 1])
def test_git_ends_before_the_reserve_of_the_disk_is_used(host, calls_with_room):
    host.source.commit()
    calls = iter(range(100))
    full = Checkouts(host.data, lambda: UNMEASURABLE if next(calls) < calls_with_room else DiskUse(0, 0))
    repository = RepositorySettings(url=str(host.source.directory))

    with pytest.raises(HostShortage, match="free_space_min_mb") as ended:
        full.check_out("app", repository, DEFAULT_REF, 1, host.data.parent / "workspace")

    assert ended.value.has_begun == (calls_with_room > 0)
    assert history(host.check_out()) == ["change"]


def room_of(host: Host, bytes_of_disk: int) -> Callable[[], DiskUse]:
    """The room of a disk that only mirrors use."""
    return lambda: DiskUse(bytes_of_disk - disk_bytes(host.data / "repositories"), 1_000_000)


def test_longest_unused_mirror_gives_way_to_a_workspace(host):
    for name in ("old", "new", "used"):
        host.source.commit(f=os.urandom(500_000).hex())
        repository = RepositorySettings(url=str(host.source.directory))
        host.checkouts.check_out(name, repository, DEFAULT_REF, 1, host.data.parent / name)
    locks = sorted((host.data / "repositories").glob("*.lock"))
    for lock, used_at in zip(locks, (2, 1, 0), strict=True):
        os.utime(lock, (used_at, used_at))
    host.checkouts = Checkouts(host.data, room_of(host, disk_bytes(host.data / "repositories") - 100_000))

    host.source.commit(f="small")

    with locks[2].open() as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        host.check_out()

    assert [name.split("-")[0] for name in host.mirrors()] == ["app", "new", "used"]


def test_commit_that_is_larger_than_the_disk_is_refused_before_its_checkout(host):
    host.source.commit(f="0" * 40 * MIB)
    host.checkouts = Checkouts(host.data, lambda: DiskUse(35 * MIB, 1_000))

    with pytest.raises(WorkspaceTooLarge, match="more disk space than this host has"):
        host.check_out()

    assert not list(host.data.parent.glob("workspace-*"))


def test_mirror_that_others_made_large_costs_no_run_its_workspace(host):
    host.source.commit(f="x")
    host.check_out()
    mirror = host.mirror_inode()
    with (host.data / "repositories" / host.mirrors()[0] / "large").open("wb") as large:
        os.posix_fallocate(large.fileno(), 0, 40 * MIB)
    host.source.commit(f="y" * MIB)
    host.checkouts = Checkouts(host.data, room_of(host, disk_bytes(host.data / "repositories") + 2 * 4096))

    host.check_out()

    assert host.mirror_inode() != mirror
    assert disk_bytes(host.data) < 10 * MIB


def test_run_whose_fetch_uses_up_the_disk_is_refused(host):
    host.source.commit(f="x")
    host.source.git("branch", "small")
    host.source.commit(f=os.urandom(40 * MIB).hex())
    host.checkouts = Checkouts(host.data, room_of(host, 36 * MIB))

    with pytest.raises(WorkspaceTooLarge, match="more disk space than this host has"):
        host.check_out()

    assert (host.check_out(git_ref("small")) / "f").read_text() == "x"


def test_ref_is_found_among_many_that_end_like_it(host):
    """All names that end so match Git's pattern, and precede the branch in the answer."""
    commit = host.source.commit()
    refs = "".join(f"create refs/heads/{number:04}/refs/heads/main {commit}\n" for number in range(2_000))
    updates = host.data.parent / "updates"
    updates.write_text(refs)
    with updates.open() as file:
        subprocess.run(["git", "update-ref", "--stdin"], stdin=file, cwd=host.source.directory, check=True)

    assert git(host.check_out(git_ref("main")), "rev-parse", "HEAD") == commit


# Limits of a Git command


def test_git_has_a_deadline(tmp_path, monkeypatch):
    fake_git(tmp_path, monkeypatch, "sleep 60 & sleep 60")

    with pytest.raises(git_module.GitError, match=r"took longer than 0\.2 s"):
        run_git(("fetch",), seconds=0.2)


def test_commit_that_keeps_git_busy_until_its_deadline_is_refused(host, tmp_path, monkeypatch):
    host.source.commit(f="x")
    fake_git(tmp_path, monkeypatch, "while :; do :; done", only="checkout")
    monkeypatch.setattr(git_module, "OVERWORKED_SHARE", 0.02)

    with pytest.raises(WorkspaceRefused, match=r"needs too much processor time: Git took longer than 3 s"):
        host.check_out(time_limit_seconds=3)


def test_output_of_git_is_capped(tmp_path, monkeypatch):
    fake_git(
        tmp_path, monkeypatch, "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; echo fatal: no >&2; exit 3"
    )

    result = run_git(("fetch",), seconds=20)

    assert (result.exit_status, len(result.output)) == (3, git_module.OUTPUT_BYTES_MAX)
    assert len(result.message) <= git_module.MESSAGE_CHARACTERS_MAX


def test_missing_git_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(git_module.GitError, match="git is not installed"):
        run_git(("version",), seconds=5)


def test_processes_of_git_are_limited(tmp_path, monkeypatch):
    limits = "for limit in c d f t n s; do ulimit -$limit; done"
    fake_git(tmp_path, monkeypatch, f"{limits}; cat /proc/self/oom_score_adj; cat; ls /proc/self/fd")

    result = run_git(("fetch",), seconds=20, memory_bytes=102_400_000, file_bytes=51_200)

    assert result.output.split()[:7] == ["0", "100000", "100", "25", "1024", "8192", "1000"]


def test_full_disk_is_a_fault_of_the_host(host):
    host.source.commit(f="x")

    with pytest.raises(OSError, match="No space left on device"):
        run_git(("archive", "--output=/dev/full", "--format=tar", "HEAD"), seconds=20, directory=host.source.directory)


LOCAL_FAULTS = ["No space left on device", "Out of memory, malloc failed", "index-pack died of signal 9"]


@pytest.mark.parametrize("text", LOCAL_FAULTS)
@pytest.mark.parametrize("subcommand", ["ls-remote", "fetch"])
def test_error_output_of_git_is_no_fact_about_this_host(host, tmp_path, monkeypatch, text, subcommand):
    """A program for SSH, for example, writes there what the server says."""
    host.source.commit()
    fake_git(tmp_path, monkeypatch, f"echo 'fatal: write error: {text}' >&2; exit 128", only=subcommand)

    with pytest.raises(WorkspaceUnavailable, match=text):
        host.check_out()


@pytest.mark.parametrize("text", LOCAL_FAULTS)
@pytest.mark.parametrize("kind", ["error line", "error lines", "status"])
@pytest.mark.parametrize("ref", ["branch", "commit"])
def test_words_of_a_server_are_no_facts_about_this_host(host, text, kind, ref):
    commit = host.source.commit()
    line = {"error line": f"ERR {text}", "error lines": f"ERR no\nfatal: write error: {text}\n"}.get(kind)
    host.check_out(git_ref("main" if ref == "branch" else commit))
    mirrors = host.mirrors()

    with answering(packet("# service=git-upload-pack\n") + b"0000" + packet(line) if line else None, text) as url:
        with pytest.raises(WorkspaceUnavailable) as refused:
            host.check_out(git_ref("main" if ref == "branch" else commit), url=url)

    assert text in str(refused.value) or kind == "status"
    assert host.mirrors() == mirrors


def packet(line: str) -> bytes:
    return f"{len(line) + 4:04x}{line}".encode()


@contextmanager
def answering(body: bytes | None, text: str) -> Iterator[str]:
    """A server of Git that answers each request with this body; without one, with the status 507 and a text."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any): ...

        def do_GET(self):
            self.send_response(200 if body is not None else 507, text if body is None else None)
            kind = "application/x-git-upload-pack-advertisement" if body is not None else "text/plain"
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body if body is not None else f"fatal: write error: {text}\n".encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/app.git"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("name", "error"), [("SEGV", WorkspaceRefused), ("XFSZ", WorkspaceRefused), ("KILL", HostShortage)]
)
def test_signal_that_ends_git_is_no_fault_of_the_server(host, tmp_path, monkeypatch, name, error):
    host.source.commit()
    fake_git(tmp_path, monkeypatch, f"kill -{name} $$", only="fetch")
    # The memory of the worker is not that of Git.
    monkeypatch.setattr(repository_module, "MEMORY_BYTES", 20_000_000)

    with pytest.raises(error):
        host.check_out(disk_bytes_max=30_000_000)


def fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, *, only: str | None = None):
    """Put a program named git before the real one. `only`: the subcommand for which it replaces the real one."""
    real_path = os.environ["PATH"]
    programs = tmp_path / "programs"
    programs.mkdir()
    condition = f'case " $* " in *" {only} "*) ;; *) PATH={real_path} exec git "$@";; esac\n' if only else ""
    (programs / "git").write_text(f"#!/bin/sh\n{condition}{script}\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{real_path}")


# Credentials


@pytest.fixture
def credential_for():
    return lambda url: Credential(url=url, username="x-access-token", password=SecretValue(PASSWORD))


def test_password_reaches_the_server_and_nothing_else(host, tmp_path, monkeypatch, credential_for):
    host.source.commit("only", f="x")
    # A record of the arguments and the environment of each Git process that is started.
    record = tmp_path / "record"
    real_path = os.environ["PATH"]
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >> {record}\nenv >> {record}\nPATH={real_path} exec git "$@"\n'
    )
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{real_path}")

    with serve_over_http(host.source.directory / ".git", password=PASSWORD) as server:
        workspace = host.check_out(url=server.url, credential=credential_for(server.url))

    assert history(workspace) == ["only"]
    assert set(server.users) == {"x-access-token"}
    assert set(server.refused) <= {""}
    for path in (record, *host.data.rglob("*"), *workspace.rglob("*")):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes(), path
    assert git(workspace, "config", "--get", "remote.origin.url") == server.url


def test_wrong_password_is_reported_without_it(host, credential_for):
    host.source.commit()

    with (
        serve_over_http(host.source.directory / ".git", password="another") as server,
        pytest.raises(WorkspaceUnavailable, match="Authentication failed") as refused,
    ):
        host.check_out(url=server.url, credential=credential_for(server.url))

    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        f"No access for {PASSWORD[:18]}",
        f"No access for {PASSWORD[:9]} {PASSWORD[9:]}",
        f"Authorization: Basic {base64.b64encode(f'x-access-token:{PASSWORD}'.encode()).decode()}",
    ],
    ids=["part", "divided", "header"],
)
def test_server_that_repeats_the_password_is_not_quoted(host, credential_for, words):
    host.source.commit()

    with (
        serve_over_http(host.source.directory / ".git", password=PASSWORD, refusal=words) as server,
        pytest.raises(WorkspaceUnavailable, match="its text contains a part of the credential") as refused,
    ):
        host.check_out(url=server.url, credential=credential_for(server.url))

    assert words not in str(refused.value)


def test_server_of_another_origin_does_not_get_the_password(host, credential_for):
    host.source.commit()

    with (
        serve_over_http(host.source.directory / ".git", password=PASSWORD) as server,
        pytest.raises(WorkspaceUnavailable),
    ):
        host.check_out(url=server.url, credential=credential_for("http://127.0.0.1:1/app.git"))

    assert server.users == []
    assert set(server.refused) == {""}
