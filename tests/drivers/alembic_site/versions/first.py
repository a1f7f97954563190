"""A table, and a row."""

import sqlalchemy as sa
from alembic import op

revision = "first"
down_revision = None


def upgrade():
    item = op.create_table(
        "item",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(100), nullable=False))
    op.bulk_insert(item, [{"id": 1, "name": "made by a migration"}])


def downgrade():
    op.drop_table("item")
