"""Alembic's entry: runs the migrations on the connection that `perdure.store.migrate` hands over."""

from alembic import context

from perdure.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=False)
context.run_migrations()
