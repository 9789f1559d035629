"""Signed documents about robots, and the recordings that robots upload."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the tables."""
    counter = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "unit_documents",
        sa.Column("id", counter, autoincrement=True, nullable=False),
        sa.Column("robot", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("signer", sa.String(length=64), nullable=False),
        sa.Column("issued", sa.Float(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("received", sa.Float(), nullable=False),
        sa.Column("received_by", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("robot", "kind", "digest"),
    )
    op.create_index("unit_documents_by_rank", "unit_documents", ["robot", "kind", "rank", "id"], unique=False)
    op.create_table(
        "unit_recordings",
        sa.Column("id", counter, autoincrement=True, nullable=False),
        sa.Column("robot", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.Float(), nullable=False),
        sa.Column("received_by", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("robot", "sha256"),
    )


def downgrade() -> None:
    """Drops the tables."""
    op.drop_table("unit_recordings")
    op.drop_table("unit_documents")
