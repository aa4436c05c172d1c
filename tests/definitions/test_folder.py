"""Which files of a folder are definitions. Nothing outside it is opened, and nothing in it is overlooked."""

import os
from pathlib import Path

import pytest

from hookmill.definitions.folder import read_folder
from hookmill.domain.errors import NotFound
from tests.definitions.conftest import Folder

WEBHOOK = "secretName: S\n"


def said(root: Path) -> list[str]:
    return [str(problem) for problem in read_folder(root).problems]


def test_definitions_are_found_by_their_paths(folder: Folder):
    root = folder({"webhooks/b.yaml": "b", "webhooks/a-1.yaml": "a", "automations/x/automation.md": "x"})

    files = read_folder(root)

    assert files.webhook_contents == {"webhooks/a-1.yaml": b"a", "webhooks/b.yaml": b"b"}
    assert files.automation_contents == {"automations/x/automation.md": b"x"}
    assert files.problems == ()


def test_what_belongs_beside_definitions_is_left_alone(folder: Folder):
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
        }
    )

    assert said(root) == []


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("webhooks/a.yml", "webhooks/a.yml:1:1: Files of webhooks end in .yaml. Rename it."),
        ("webhooks/a.yaml.orig", "webhooks/a.yaml.orig:1:1: This is not a webhook's file: those end in .yaml."),
        ("webhooks/a.yaml~", "webhooks/a.yaml~:1:1: This is not a webhook's file: those end in .yaml."),
        ("webhooks/a.json", "webhooks/a.json:1:1: This is not a webhook's file: those end in .yaml."),
        ("webhooks/sub/a.yaml", "webhooks/sub:1:1: This is a folder. Webhooks are files"),
        ("automations/triage.md", "automations/triage.md:1:1: This is not a folder."),
        ("automations/x/notes.txt", "automations/x/notes.txt:1:1: Only automation.md and a README may be here."),
        ("automations/x/automation.md/y", "automations/x/automation.md:1:1: Only automation.md and a README may be"),
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
        ("webhooks/a\n.yaml", "webhooks/a\\n.yaml:1:1: Names have"),
    ],
)
def test_a_file_that_is_no_definition_is_reported(folder: Folder, path: str, problem: str):
    (found,) = said(folder({path: "x"}))

    assert found.startswith(problem)


def test_a_bad_name_is_refused_with_a_good_one(folder: Folder):
    (found,) = said(folder({"webhooks/GitHub: main.yaml": WEBHOOK}))

    assert "Rename it to github-main. To keep the displayed name, add a line that begins with name: to it." in found


def test_a_name_that_is_no_text_is_refused(folder: Folder):
    root = folder({})
    (Path(os.fsdecode(os.fsencode(root) + b"/webhooks/\xff.yaml"))).write_text(WEBHOOK)

    (found,) = said(root)

    assert found.startswith("webhooks/")
    found.encode()


def test_a_link_to_a_file_is_refused_unread(folder: Folder, tmp_path: Path):
    (tmp_path / "outside.yaml").write_text(WEBHOOK)
    root = folder({})
    (root / "webhooks" / "a.yaml").symlink_to(tmp_path / "outside.yaml")

    files = read_folder(root)

    assert [str(problem) for problem in files.problems] == [
        "webhooks/a.yaml:1:1: This is a symbolic link, which is not followed. Put the file itself here."
    ]
    assert files.webhook_contents == {}


@pytest.mark.parametrize("linked", ["webhooks", "automations", "automations/x", "automations/x/automation.md"])
def test_a_link_anywhere_on_the_way_is_refused_unread(folder: Folder, tmp_path: Path, linked: str):
    root = folder({"webhooks/a.yaml": WEBHOOK, "automations/x/automation.md": "x"})
    (root / linked).rename(tmp_path / "outside")
    (root / linked).symlink_to(tmp_path / "outside")

    files = read_folder(root)

    assert [problem.file for problem in files.problems] == [linked]
    assert all(not path.startswith(linked) for path in (*files.webhook_contents, *files.automation_contents))


def test_the_folder_itself_may_be_reached_by_a_link(folder: Folder, tmp_path: Path):
    root = folder({"webhooks/a.yaml": WEBHOOK})
    (tmp_path / "link").symlink_to(root)

    assert list(read_folder(tmp_path / "link").webhook_contents) == ["webhooks/a.yaml"]


def test_a_pipe_is_not_waited_for(folder: Folder):
    root = folder({})
    os.mkfifo(root / "webhooks" / "a.yaml")

    assert said(root) == ["webhooks/a.yaml:1:1: This is not a regular file. Definitions are regular files."]


def test_a_folder_without_definitions_is_not_an_empty_factory(tmp_path: Path):
    (found,) = said(tmp_path)

    assert found.startswith(f"There is neither a folder webhooks nor a folder automations in {tmp_path}.")


def test_the_working_directory_is_called_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    (found,) = said(Path())

    assert found.startswith("There is neither a folder webhooks nor a folder automations here.")


def test_a_path_that_is_no_folder_is_reported(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(NotFound, match="There is no folder nowhere"):
        read_folder(Path("nowhere"))
    with pytest.raises(NotFound, match="file is not a folder"):
        read_folder(tmp_path / "file")


def test_one_of_the_two_folders_is_enough(tmp_path: Path):
    (tmp_path / "webhooks").mkdir()

    assert said(tmp_path) == []


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path):
    (tmp_path / "webhooks").write_text("")

    assert said(tmp_path) == ["webhooks:1:1: This can't be read: Not a directory."]


@pytest.mark.parametrize(("path", "most"), [("webhooks/a.yaml", 65_536), ("automations/x/automation.md", 524_288)])
def test_a_file_is_read_up_to_its_greatest_size(folder: Folder, path: str, most: int):
    assert said(folder({path: b"x" * most})) == []
    assert said(folder({path: b"x" * (most + 1)})) == [
        f"{path}:1:1: The file is larger than the limit of {most // 1024} KB."
    ]


def test_a_folder_of_very_many_files_is_refused_unread(folder: Folder):
    root = folder({f"webhooks/w{number}.yaml": "" for number in range(1001)})

    assert said(root) == ["webhooks:1:1: The folder has 1,001 entries; at most 1,000 are read. Is it the right folder?"]
