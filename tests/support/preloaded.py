"""Imports the modules that a running service has loaded, for a fork server: its forks have them from the start."""

# ruff: noqa: F401

import gc

import anyio._backends._asyncio
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

for _ in hookmill.cli._build_command().commands.values():  # type: ignore[attr-defined]
    pass
# Modules are never garbage. If a fork searched them for garbage, it would copy the memory that it shares.
gc.collect()
gc.freeze()
