"""Runs the migrations on a connection that `store.migrate` has prepared."""

from alembic import context

from hookmill.store.schema import metadata

connection = context.config.attributes["connection"]
# Without a prefix: the template imports the names.
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True, sqlalchemy_module_prefix="")
context.run_migrations()
