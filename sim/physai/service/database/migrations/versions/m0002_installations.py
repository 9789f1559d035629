"""Installations on robots, as reported by those who flash them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the table."""
    op.create_table(
        "installations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("unit", sa.String(length=300), nullable=False),
        sa.Column("bundle", sa.String(length=64), nullable=False),
        sa.Column("policy", sa.String(length=64), nullable=False),
        sa.Column("task", sa.String(length=64), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("runs", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("time", sa.Float(), nullable=False),
        sa.Column("reported_by", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("installations_by_unit", "installations", ["unit", "id"], unique=False)


def downgrade() -> None:
    """Drops the table."""
    op.drop_table("installations")
