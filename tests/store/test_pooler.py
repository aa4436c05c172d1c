"""Connection poolers between the service and PostgreSQL: only those that keep sessions are accepted."""

from urllib.parse import urlsplit

import pytest

from hookmill.domain.errors import Invalid
from hookmill.store import metadata
from hookmill.store.database import open_database
from hookmill.store.migrate import migrate
from tests.support.pooler import Options, Pooler


def url_through(pooler: Pooler, url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{pooler.port}")).geturl()


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


@pytest.mark.parametrize(
    ("shares_sessions", "options", "reason"),
    [
        (True, Options.ARE_PASSED_ON, "lets several clients share a session"),
        (True, Options.ARE_IGNORED, "ignores the settings of a session"),
        (True, Options.ARE_REFUSED, "refuses the settings of a session"),
        (False, Options.ARE_IGNORED, "ignores the settings of a session"),
        (False, Options.ARE_REFUSED, "refuses the settings of a session"),
    ],
)
def test_pooler_that_loses_sessions_is_refused(postgres_url, shares_sessions, options, reason):
    with Pooler(port_of(postgres_url), shares_sessions=shares_sessions, options=options) as pooler:
        with open_database(url_through(pooler, postgres_url)) as database:
            with pytest.raises(Invalid, match=f"{reason}.* Connect to PostgreSQL directly: "):
                migrate(database)

    with open_database(postgres_url) as database, database.read() as tx:
        assert not metadata.table_exists(tx)


def test_pooler_that_keeps_sessions_is_accepted(postgres_url):
    with Pooler(port_of(postgres_url), shares_sessions=False, options=Options.ARE_PASSED_ON) as pooler:
        with open_database(url_through(pooler, postgres_url)) as database:
            assert migrate(database) is True
