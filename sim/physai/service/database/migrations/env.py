"""Run by alembic: applies the migrations over the connection that `open_database` gives it."""

from alembic import context

from physai.service.database.tables import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
with context.begin_transaction():
    context.run_migrations()
