"""Lets pip install the libraries that are installed here into another environment, without a network.

pip gets wheels that contain only metadata, which decide what it installs. Then each library that it has installed gets
links to its files here. If pip copied and compiled these 130 MB, the test would take twice as long.
"""

import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from importlib.util import cache_from_source
from pathlib import Path


def write_wheels(names: set[str], directory: Path):
    """Write a wheel of each library into the directory, with only its metadata. Names are as in a lock file."""
    installed = {name.lower().replace("_", "-"): each for each in distributions() if (name := each.name)}
    for name in names:
        _write_wheel(installed[name], directory)


def link_files(site_packages: Path, *, except_of: str):
    """Give the libraries that pip has installed from such wheels their files, also the compiled ones."""
    here = {library.name: library for library in distributions()}
    for installed in distributions(path=[str(site_packages)]):
        if installed.name != except_of:
            for path, target in _files_of(here[installed.name]):
                link = site_packages / path
                if not link.exists():
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(target)


def base_python() -> str:
    """The Python from which the environment of the tests was created. It has pip, as `make` requires."""
    return str(Path(sys.executable).resolve())


def _write_wheel(library: Distribution, directory: Path):
    metadata = library.read_text("WHEEL")
    assert metadata is not None
    tags = [line.removeprefix("Tag: ") for line in metadata.splitlines() if line.startswith("Tag: ")]
    compressed_tags = ".".join(dict.fromkeys(tag.rpartition("-")[2] for tag in tags))
    python_and_abi = ".".join(dict.fromkeys(tag.split("-")[0] for tag in tags)) + "-" + tags[0].split("-")[1]
    file_name = f"{library.name.replace('-', '_')}-{library.version}-{python_and_abi}-{compressed_tags}.whl"
    # Descriptions follow the first empty line, and pip would parse each of them several times.
    requirements = str(library.read_text("METADATA")).partition("\n\n")[0]
    information = f"{file_name.rsplit('-', 3)[0]}.dist-info"
    with zipfile.ZipFile(directory / file_name, "w") as wheel:
        for name, text in (("METADATA", requirements), ("WHEEL", metadata), ("RECORD", "")):
            wheel.writestr(f"{information}/{name}", text)


def _files_of(library: Distribution) -> Iterator[tuple[Path, Path]]:
    """The files of the library and their compiled versions, relative to `site-packages` and absolute."""
    for path in map(Path, library.files or ()):
        # Programs are outside of `site-packages`, and nothing needs them.
        if path.parts[0] == "..":
            continue
        for each in (path, Path(cache_from_source(str(path)))) if path.suffix == ".py" else (path,):
            if (target := Path(str(library.locate_file(each)))).exists():
                yield each, target
