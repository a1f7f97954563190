"""A column, an index, another table, and rows moved over."""

import sqlalchemy as sa
from alembic import op

revision = "second"
down_revision = "first"


def upgrade():
    op.add_column("item", sa.Column("price", sa.Integer, server_default="0"))
    op.create_index("by_price", "item", ["price"])
    op.create_table(
        "note",
        sa.Column("item_id", sa.Integer, sa.ForeignKey("item.id"), primary_key=True),
        sa.Column("text", sa.Text))
    op.execute("INSERT INTO note SELECT id, name FROM item")


def downgrade():
    op.drop_table("note")
    op.drop_index("by_price", "item")
    op.drop_column("item", "price")
