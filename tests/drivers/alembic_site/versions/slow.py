"""Beside the second one: two tables, and the caller decides when it goes on between them."""

import os
import sys

import sqlalchemy as sa
from alembic import op

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

from steps import tell  # noqa: E402

revision = "slow"
down_revision = "first"


def upgrade():
    op.create_table("before_it", sa.Column("id", sa.Integer, primary_key=True))
    op.execute("INSERT INTO before_it VALUES (1)")
    tell("half way")
    op.create_table("behind_it", sa.Column("id", sa.Integer, primary_key=True))
    op.execute("INSERT INTO behind_it VALUES (1)")


def downgrade():
    op.drop_table("behind_it")
    op.drop_table("before_it")
