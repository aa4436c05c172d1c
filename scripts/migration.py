"""Writes the migration from the existing migrations to `store/schema.py`: `python -m scripts.migration "What changes"`.

Read the file before you use it: Alembic sees a renamed column as a removed and a new one, and copies no values. If
there is no migration, it writes the first one, which creates the whole schema.
"""

import re
import subprocess
import sys
from pathlib import Path

from alembic import command
from sqlalchemy import create_engine

from hookmill.store.migrate import alembic_config, upgrade
from hookmill.store.revision import VERSIONS


def main(title: str, versions: Path = VERSIONS) -> None:
    """Write the migration into the directory `versions`, which has the existing ones."""
    existing = len(list(versions.glob("[0-9]*_*.py")))
    with create_engine("sqlite://").begin() as connection:
        if existing:
            upgrade(connection, versions)
        config = alembic_config(connection, versions)
        script = command.revision(config, title, autogenerate=True, rev_id=f"{existing + 1:04}")
    assert script is not None
    assert not isinstance(script, list)
    path = Path(script.path)
    written = "".join(line for line in path.read_text().splitlines(True) if "# ###" not in line)
    # Alembic writes these defaults, which make a migration longer.
    written = re.sub(r", nullable=True|, unique=False|\(\)(?=[,)])", "", written)
    path.write_text(written)
    for arguments in (["check", "--quiet", "--fix", "--select=F401,I"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *arguments, str(path)], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
