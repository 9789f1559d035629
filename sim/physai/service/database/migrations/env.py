"""Run by alembic: applies the migrations over the connection that `open_database` gives it."""

from alembic import context

from physai.service.database.tables import ServiceTable

context.configure(connection=context.config.attributes["connection"], target_metadata=ServiceTable.metadata)
with context.begin_transaction():
    context.run_migrations()
