"""The service that runs the jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column; the next service that starts fills it."""
    op.add_column("store", sa.Column("holder", sa.Text(), nullable=True))


def downgrade() -> None:
    """Drops it."""
    op.drop_column("store", "holder")
