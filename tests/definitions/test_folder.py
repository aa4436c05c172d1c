"""Which files of a folder are definitions. No file outside the folder is opened, and no misspelt name is ignored."""

import os
from pathlib import Path

import pytest

from hookmill.definitions.folder import read_folder, stem_of
from hookmill.domain.errors import NotFound

WEBHOOK = "secretName: S\n"


def problems_in(root: Path) -> list[str]:
    return [str(problem) for problem in read_folder(root).problems]


def test_definitions_are_found_by_their_paths(folder):
    root = folder({"webhooks/b.yaml": "b", "webhooks/a-1.yaml": "a", "automations/x/automation.md": "x"})

    files = read_folder(root)

    assert files.webhook_contents == {"webhooks/a-1.yaml": b"a", "webhooks/b.yaml": b"b"}
    assert files.automation_contents == {"automations/x/automation.md": b"x"}
    assert files.problems == ()


def test_unrelated_files_are_ignored(folder, tmp_path):
    root = folder(
        {
            "README.md": "",
            "src/main.py": "",
            "webhooks/README.md": "",
            "webhooks/.gitkeep": "",
            "webhooks/.a.yaml.swp": "\0",
            "automations/readme": "",
            "automations/.hidden/notes.txt": "",
            "automations/x/README.txt": "",
            "automations/x/automation.md": "x",
            "automations/x/notes.md": "",
            "automations/x/automation.md.orig": "",
            "automations/x/scripts/check.sh": "",
            "automations/Notes.md": "# Notes",
            "automations/Shared scripts/check.sh": "",
            "webhooks/sample.json": "{}",
            "webhooks/samples/push.json": "{}",
        }
    )
    (root / "automations" / "AGENTS.md").symlink_to(tmp_path)
    (root / "webhooks" / "sample").symlink_to(tmp_path)

    files = read_folder(root)

    assert files.problems == ()
    assert list(files.webhook_contents) == []
    assert list(files.automation_contents) == ["automations/x/automation.md"]


def test_automation_may_be_a_single_file(folder):
    root = folder({"automations/nightly.md": "---\n", "automations/triage/automation.md": "---\n"})

    files = read_folder(root)

    assert files.problems == ()
    assert [stem_of(path) for path in files.automation_contents] == ["nightly", "triage"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("webhooks/a.yml", "webhooks/a.yml:1:1: Files of webhooks end in .yaml. Rename it."),
        ("webhooks/a.yaml.orig", "webhooks/a.yaml.orig:1:1: This is not a webhook's file: those end in .yaml."),
        ("webhooks/a.yaml~", "webhooks/a.yaml~:1:1: This is not a webhook's file: those end in .yaml."),
        ("webhooks/a.YAML", "webhooks/a.YAML:1:1: This is not a webhook's file: those end in .yaml."),
        ("webhooks/sub/a.yaml", "webhooks/sub:1:1: This is a folder. Webhooks are files"),
        ("automations/x/Automation.md", "automations/x:1:1: The folder has no file automation.md."),
        ("automations/x/automation.yaml", "automations/x:1:1: The folder has no file automation.md."),
        ("automations/x/prompt.md", "automations/x:1:1: The folder has no file automation.md."),
        ("automations/x/automation.md/y", "automations/x/automation.md:1:1: This is not a regular file."),
        ("automations/x/.keep", "automations/x:1:1: The folder has no file automation.md."),
        (
            "webhooks/GitHub main.yaml",
            "webhooks/GitHub main.yaml:1:1: Names have lower-case letters",
        ),
        ("webhooks/a..b.yaml", "webhooks/a..b.yaml:1:1: Names have"),
        ("webhooks/-a.yaml", "webhooks/-a.yaml:1:1: Names have"),
        ("webhooks/ä.yaml", "webhooks/ä.yaml:1:1: Names have"),
        (f"webhooks/{'a' * 64}.yaml", f"webhooks/{'a' * 64}.yaml:1:1: Names have"),
        ("automations/X/automation.md", "automations/X:1:1: Names have"),
        ("automations/X.md", "automations/X.md:1:1: Names have"),
        ("webhooks/a\n.yaml", "webhooks/a\\n.yaml:1:1: Names have"),
    ],
)
def test_file_that_is_not_a_definition_is_reported(folder, path, message):
    (problem,) = problems_in(folder({path: "---"}))

    assert problem.startswith(message)


def test_invalid_file_name_is_refused_with_a_valid_one(folder):
    (problem,) = problems_in(folder({"webhooks/GitHub: main.yaml": WEBHOOK}))

    assert "Rename it to github-main. To keep the displayed name, add a line that begins with name: to it." in problem


def test_file_name_that_is_not_utf_8_is_refused(folder):
    root = folder({})
    (Path(os.fsdecode(os.fsencode(root) + b"/webhooks/\xff.yaml"))).write_text(WEBHOOK)

    (problem,) = problems_in(root)

    assert problem.startswith("webhooks/")
    problem.encode()


def test_symbolic_link_to_a_file_is_refused_unread(folder, tmp_path):
    (tmp_path / "outside.yaml").write_text(WEBHOOK)
    root = folder({})
    (root / "webhooks" / "a.yaml").symlink_to(tmp_path / "outside.yaml")

    files = read_folder(root)

    assert [str(problem) for problem in files.problems] == [
        "webhooks/a.yaml:1:1: This is a symbolic link, which is not followed. Put the file itself here."
    ]
    assert files.webhook_contents == {}


@pytest.mark.parametrize(
    "linked", ["webhooks", "automations", "automations/x", "automations/x/automation.md", "automations/y.md"]
)
def test_symbolic_link_in_a_path_is_refused_unread(folder, tmp_path, linked):
    root = folder({"webhooks/a.yaml": WEBHOOK, "automations/x/automation.md": "x", "automations/y.md": "---"})
    (root / linked).rename(tmp_path / "outside")
    (root / linked).symlink_to(tmp_path / "outside")

    files = read_folder(root)

    assert [problem.file for problem in files.problems] == [linked]
    assert all(not path.startswith(linked) for path in (*files.webhook_contents, *files.automation_contents))


def test_folder_itself_may_be_a_symbolic_link(folder, tmp_path):
    root = folder({"webhooks/a.yaml": WEBHOOK})
    (tmp_path / "link").symlink_to(root)

    assert list(read_folder(tmp_path / "link").webhook_contents) == ["webhooks/a.yaml"]


def test_named_pipe_is_refused_unread(folder):
    root = folder({})
    os.mkfifo(root / "webhooks" / "a.yaml")

    assert problems_in(root) == ["webhooks/a.yaml:1:1: This is not a regular file. Definitions are regular files."]


def test_folder_without_both_subfolders_is_refused(tmp_path):
    (problem,) = problems_in(tmp_path)

    assert problem.startswith(f"There is neither a folder webhooks nor a folder automations in {tmp_path}.")


def test_folder_above_the_definitions_is_refused_with_their_path(tmp_path):
    (tmp_path / "factory" / "webhooks").mkdir(parents=True)

    (problem,) = problems_in(tmp_path)

    assert problem.endswith(f"contains them: is it {tmp_path}/factory?")


def test_folder_with_only_a_factory_file_has_no_definitions(tmp_path):
    (tmp_path / "factory.yaml").write_text("name: demo\n")

    assert problems_in(tmp_path) == []


def test_message_about_the_working_directory_says_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    (problem,) = problems_in(Path())

    assert problem.startswith("There is neither a folder webhooks nor a folder automations here.")


def test_path_that_is_not_a_folder_is_not_found(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(NotFound, match="There is no folder missing"):
        read_folder(Path("missing"))
    with pytest.raises(NotFound, match="file is not a folder"):
        read_folder(tmp_path / "file")


def test_one_of_the_two_subfolders_is_enough(tmp_path):
    (tmp_path / "webhooks").mkdir()

    assert problems_in(tmp_path) == []


def test_file_instead_of_a_subfolder_is_refused(tmp_path):
    (tmp_path / "webhooks").write_text("")

    assert problems_in(tmp_path) == ["webhooks:1:1: This can't be read: Not a directory."]


@pytest.mark.parametrize(("path", "size_max"), [("webhooks/a.yaml", 65_536), ("automations/x/automation.md", 524_288)])
def test_file_over_its_maximum_size_is_refused(folder, path, size_max):
    assert problems_in(folder({path: b"x" * size_max})) == []
    assert problems_in(folder({path: b"x" * (size_max + 1)})) == [
        f"{path}:1:1: The file is larger than the limit of {size_max // 1024} KB."
    ]


def test_folder_with_more_than_1000_files_is_refused_unread(folder):
    root = folder({f"webhooks/w{number}.yaml": "" for number in range(1001)})

    assert problems_in(root) == [
        "webhooks:1:1: The folder has 1,001 entries; at most 1,000 are read. Is it the right folder?"
    ]
