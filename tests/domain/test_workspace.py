"""Which repositories and refs a workspace may have, and which refs a payload may choose."""

import json
import subprocess
from typing import Any

import pytest
from msgspec import to_builtins

from hookmill.domain.errors import Invalid
from hookmill.domain.payload import Parsed, parse
from hookmill.domain.spec import read
from hookmill.domain.workspace import (
    DEFAULT_REF,
    FULL_DEPTH,
    REF_CHARACTERS_MAX,
    CheckedOut,
    CheckoutCommits,
    GitRef,
    RefFromPayload,
    RefKind,
    Workspace,
    depths_to_fetch,
    git_ref,
)

SHA1 = "0123456789abcdef0123456789abcdef01234567"
SHA256 = SHA1 + "0123456789abcdef01234567"


def payload(body: bytes) -> Parsed:
    parsed = parse(body)
    assert isinstance(parsed, Parsed)
    return parsed


@pytest.mark.parametrize(
    ("text", "kind", "full_names"),
    [
        (SHA1, RefKind.COMMIT, ()),
        (SHA256, RefKind.COMMIT, ()),
        (SHA1[:39], RefKind.NAME, (f"refs/heads/{SHA1[:39]}", f"refs/tags/{SHA1[:39]}")),
        ("main", RefKind.NAME, ("refs/heads/main", "refs/tags/main")),
        ("feature/a.b_c-d+1", RefKind.NAME, ("refs/heads/feature/a.b_c-d+1", "refs/tags/feature/a.b_c-d+1")),
        ("größe", RefKind.NAME, ("refs/heads/größe", "refs/tags/größe")),
        ("user@work/#12", RefKind.NAME, ("refs/heads/user@work/#12", "refs/tags/user@work/#12")),
        ("feat(scope)-x", RefKind.NAME, ("refs/heads/feat(scope)-x", "refs/tags/feat(scope)-x")),
        ("refs/heads/main", RefKind.NAME, ("refs/heads/main",)),
        ("refs/tags/v1.0", RefKind.NAME, ("refs/tags/v1.0",)),
    ],
)
def test_ref_is_a_commit_id_a_branch_or_a_tag(text, kind, full_names):
    assert git_ref(text) == GitRef(kind=kind, text=text)
    assert git_ref(text).full_names == full_names


def test_commit_id_is_written_in_lower_case():
    assert git_ref(SHA1.upper()) == git_ref(SHA1)


@pytest.mark.parametrize(
    "name",
    [
        *("feat(scope)-x", "fix!", "it's", 'say-"hi"', "R&D", "50%", "a;b|c", "a<b>c", "$(id)", "`id`", "{x}", "a]"),
        *("a./b", "a/-b", "a@b", "@a", "a.lockx", "größe", "分支", "🚀", "a" * 900),
    ],
)
def test_every_name_that_git_accepts_may_be_a_branch(name):
    assert subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True).returncode == 0

    assert git_ref(name).full_names == (f"refs/heads/{name}", f"refs/tags/{name}")


HOSTILE_REFS = [
    "",
    "-",
    "-b",
    "--upload-pack=touch /tmp/x",
    "--upload-pack=x",
    "-c core.sshCommand=x",
    "--output=/etc/passwd",
    "..",
    "a..b",
    "../main",
    "refs/../..",
    "refs/heads/../../config",
    "refs/heads/",
    "refs/heads/-x",
    "refs/tags/",
    "refs/pull/7/head",
    "refs/heads/refs/heads/main",
    "/etc/passwd",
    "/",
    "main/",
    "a//b",
    ".git",
    "a/.hidden",
    "main.lock",
    "a.lock/b",
    "main.",
    "@",
    "HEAD",
    "refs/heads/HEAD",
    "main@{1}",
    "@{u}",
    "main^{commit}",
    "main~3",
    "main^",
    ":main",
    "main:refs/heads/other",
    "+main:x",
    "^main",
    "ma*n",
    "ma?n",
    "[m]ain",
    "a\\b",
    "two words",
    "main\n",
    SHA1 + "\n",
    "main\x00",
    "\x1b[31m",
    "ext::sh -c x",
    "file:///etc",
    "https://evil.example/x",
    "\u202emain",
    "\ud800",
    "a" * (REF_CHARACTERS_MAX + 1),
]


@pytest.mark.parametrize("text", HOSTILE_REFS, ids=ascii)
def test_text_that_git_could_misread_is_no_ref(text: str):
    workspace = Workspace(repository="app", ref=RefFromPayload(pointer="/text"), base=RefFromPayload(pointer="/text"))
    body = payload(json.dumps({"text": text}).encode())

    for name, text_in in (("ref", workspace.ref_in), ("base", workspace.base_in)):
        with pytest.raises(Invalid) as literal:
            read(Workspace, {"repository": "app", name: text}, "/workspace")
        with pytest.raises(Invalid) as from_payload:
            text_in(body)

        assert literal.value.faults[0].pointer == f"/workspace/{name}"
        assert str(from_payload.value).startswith(f"The {name} of the workspace, at /text in the payload,")
        if len(text) > 2:
            assert text not in str(from_payload.value)


@pytest.mark.parametrize("value", [b"7", b"null", b"true", b'["main"]', b'{"pointer": "/x"}'])
def test_payload_value_that_is_no_string_is_no_ref(value: bytes):
    workspace = Workspace(repository="app", ref=RefFromPayload(pointer="/ref"), base=RefFromPayload(pointer="/ref"))

    for ref_in in (workspace.ref_in, workspace.base_in):
        with pytest.raises(Invalid, match="is not a string"):
            ref_in(payload(b'{"ref": %s}' % value))


def test_missing_ref_never_becomes_the_default_branch():
    workspace = Workspace(repository="app", ref=RefFromPayload(pointer="/pull_request/head/sha"))

    with pytest.raises(Invalid, match="at /pull_request/head/sha in the payload, is missing"):
        workspace.ref_in(payload(b"{}"))
    with pytest.raises(Invalid, match="this run has no payload"):
        workspace.ref_in(None)


def test_missing_base_is_not_the_same_as_no_base():
    workspace = Workspace(repository="app", base=RefFromPayload(pointer="/pull_request/base/ref"))

    with pytest.raises(Invalid, match="The base of the workspace, at /pull_request/base/ref in the payload, is"):
        workspace.base_in(payload(b"{}"))
    with pytest.raises(Invalid, match="this run has no payload"):
        workspace.base_in(None)
    assert Workspace(repository="app").base_in(None) is None


def test_ref_of_the_payload_is_marked():
    body = payload(b'{"pull_request": {"head": {"sha": "%s"}}, "ref": "refs/heads/main"}' % SHA1.encode())

    by_pointer = Workspace(repository="app", ref=RefFromPayload(pointer="/pull_request/head/sha")).ref_in(body)
    literal = Workspace(repository="app", ref="main").ref_in(body)
    default = Workspace(repository="app").ref_in(None)
    base_by_pointer = Workspace(repository="app", base=RefFromPayload(pointer="/ref")).base_in(body)
    literal_base = Workspace(repository="app", base="main").base_in(body)

    assert by_pointer == GitRef(kind=RefKind.COMMIT, text=SHA1, is_from_payload=True)
    assert literal == GitRef(kind=RefKind.NAME, text="main")
    assert (default, default.full_names) == (DEFAULT_REF, ("HEAD",))
    assert base_by_pointer == GitRef(kind=RefKind.NAME, text="refs/heads/main", is_from_payload=True)
    assert literal_base == literal


@pytest.mark.parametrize(
    ("source", "workspace"),
    [
        ({"repository": "app"}, Workspace(repository="app")),
        ({"repository": "app", "ref": "main"}, Workspace(repository="app", ref="main")),
        (
            {"repository": "app", "ref": {"pointer": "/a~1b"}},
            Workspace(repository="app", ref=RefFromPayload(pointer="/a~1b")),
        ),
        ({"repository": "app", "base": "main"}, Workspace(repository="app", base="main")),
        (
            {"repository": "app", "base": {"pointer": "/a"}},
            Workspace(repository="app", base=RefFromPayload(pointer="/a")),
        ),
        ({"repository": "app", "depth": 50}, Workspace(repository="app", depth=50)),
        ({"repository": "app", "depth": "full"}, Workspace(repository="app", depth=0)),
    ],
)
def test_workspace_is_the_same_after_a_round_trip(source: dict[str, Any], workspace: Workspace):
    assert read(Workspace, source) == workspace
    assert read(Workspace, workspace.as_json()) == workspace
    # The form in which the API shows it.
    assert read(Workspace, to_builtins(workspace)) == workspace


@pytest.mark.parametrize(
    ("source", "pointer"),
    [
        (None, "/workspace"),
        ("app", "/workspace"),
        ([], "/workspace"),
        ({}, "/workspace/repository"),
        ({"repository": {"pointer": "/repository/name"}}, "/workspace/repository"),
        ({"repository": "https://evil.example/x.git"}, "/workspace/repository"),
        ({"repository": "../app"}, "/workspace/repository"),
        ({"repository": "/srv/git/app.git"}, "/workspace/repository"),
        ({"repository": "-app"}, "/workspace/repository"),
        ({"repository": "App"}, "/workspace/repository"),
        ({"repository": "a" * 65}, "/workspace/repository"),
        ({"repository": 7}, "/workspace/repository"),
        ({"repository": "app", "url": "https://evil.example/x.git"}, "/workspace/url"),
        ({"repository": "app", "ref": 7}, "/workspace/ref"),
        ({"repository": "app", "ref": {}}, "/workspace/ref/pointer"),
        ({"repository": "app", "ref": {"pointer": "/a", "default": "main"}}, "/workspace/ref/default"),
        ({"repository": "app", "ref": {"pointer": "a"}}, "/workspace/ref/pointer"),
        ({"repository": "app", "base": {"pointer": "a"}}, "/workspace/base/pointer"),
        ({"repository": "app", "base": 7}, "/workspace/base"),
        ({"repository": "app", "base": {"url": "https://evil.example/x.git"}}, "/workspace/base/url"),
        ({"repository": "app", "depth": -1}, "/workspace/depth"),
        ({"repository": "app", "depth": 1_000_001}, "/workspace/depth"),
        ({"repository": "app", "depth": True}, "/workspace/depth"),
        ({"repository": "app", "depth": 1.0}, "/workspace/depth"),
        ({"repository": "app", "depth": "1"}, "/workspace/depth"),
    ],
)
def test_invalid_workspace_is_refused_with_its_place(source, pointer):
    with pytest.raises(Invalid) as refused:
        read(Workspace, source, "/workspace")

    assert refused.value.faults[0].pointer == pointer


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        (DEFAULT_REF, {"value": None, "trust": "trusted"}),
        (git_ref("main"), {"value": "main", "trust": "trusted"}),
        (git_ref("main", is_from_payload=True), {"value": "main", "trust": "untrusted"}),
        (None, {"value": None, "trust": "untrusted"}),
    ],
)
def test_envelope_says_whether_the_ref_is_trusted(ref, expected):
    described = CheckedOut(repository="app", ref=ref, commits=CheckoutCommits(commit=SHA1)).as_json()

    assert described == {"repository": "app", "ref": expected, "commit": SHA1}


def test_envelope_names_the_commits_of_the_base():
    base = git_ref("main", is_from_payload=True)
    commits = CheckoutCommits(commit="a" * 40, base_commit="b" * 40, merge_base="c" * 40)
    ref = {"ref": {"value": None, "trust": "trusted"}}

    described = CheckedOut(repository="app", ref=DEFAULT_REF, base=base, has_base=True, commits=commits).as_json()
    unusable = CheckedOut(repository="app", ref=DEFAULT_REF, has_base=True, commits=None).as_json()

    assert described == {
        "repository": "app",
        **ref,
        "commit": "a" * 40,
        "base": {"value": "main", "trust": "untrusted"},
        "base_commit": "b" * 40,
        "merge_base": "c" * 40,
    }
    assert unusable == {
        "repository": "app",
        **ref,
        "commit": None,
        "base": {"value": None, "trust": "untrusted"},
        "base_commit": None,
        "merge_base": None,
    }


@pytest.mark.parametrize(
    ("depth", "has_base", "depths"),
    [
        (1, False, (1,)),
        (FULL_DEPTH, False, (FULL_DEPTH,)),
        (FULL_DEPTH, True, (FULL_DEPTH,)),
        (1, True, (100, 1_000, FULL_DEPTH)),
        (500, True, (500, 1_000, FULL_DEPTH)),
        (1_000, True, (1_000, FULL_DEPTH)),
        (5_000, True, (5_000, FULL_DEPTH)),
    ],
)
def test_more_of_the_history_is_fetched_if_there_is_a_base(depth, has_base, depths):
    assert depths_to_fetch(depth, has_base=has_base) == depths
