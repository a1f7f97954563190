"""Each revision in a transaction of its own, as far as the engine has such."""

from alembic import context

with context.config.attributes["engine"].connect() as connection:
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
