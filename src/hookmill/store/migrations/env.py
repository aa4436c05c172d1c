"""Runs the migrations on a connection that `store.migrate` has prepared."""

from alembic import context

from hookmill.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True, render_as_batch=False)
context.run_migrations()
