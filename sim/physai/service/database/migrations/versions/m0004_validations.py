"""Jobs are found by their policy, and listed in an order without ties."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column, fills it from the specifications, and adds two indices."""
    op.add_column("jobs", sa.Column("policy", sa.String(length=64), nullable=True))
    jobs = sa.table("jobs", sa.column("id", sa.String), sa.column("spec", sa.Text), sa.column("policy", sa.String))
    connection = op.get_bind()
    for identifier, spec in connection.execute(sa.select(jobs.c.id, jobs.c.spec)).all():
        policy = json.loads(spec).get("policy")
        if policy is not None:
            connection.execute(jobs.update().where(jobs.c.id == identifier).values(policy=policy))
    op.create_index("jobs_by_time", "jobs", ["created", "id"], unique=False)
    op.create_index("jobs_by_policy", "jobs", ["policy", "kind", "state"], unique=False)


def downgrade() -> None:
    """Drops them."""
    op.drop_index("jobs_by_policy", "jobs")
    op.drop_index("jobs_by_time", "jobs")
    op.drop_column("jobs", "policy")
