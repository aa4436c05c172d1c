"""What a running service has loaded. A process that starts with this module hands it on to all that it forks."""

# ruff: noqa: F401

import gc

import anyio._backends._asyncio
import dbos
import dbos._sys_db_postgres
import dbos._sys_db_sqlite
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.dialects.sqlite

import hookmill.app.effective_settings
import hookmill.app.serve
import hookmill.cli
import hookmill.cli.service
import hookmill.runs.dispatcher
import hookmill.runs.runners
import hookmill.store.migrate
import hookmill.web.api
import hookmill.web.dashboard
import tests.support.loaded

hookmill.cli._build_command()
# What is loaded is never garbage: looking for it would copy what all of them share.
gc.collect()
gc.freeze()
