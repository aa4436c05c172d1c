"""Management: an audit log, API keys, members, replays, and factories that files define."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("factories", sa.Column("defined_by_files", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("secrets", sa.Column("deleted_at", sa.BigInteger(), nullable=True))
    op.add_column("secrets", sa.Column("factory_id", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("replay", sa.Integer(), nullable=False, server_default="0"))
    _let_runs_be_replayed()
    op.create_table(
        "audit_log",
        sa.Column("id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor_id", sa.Text(), nullable=False),
        sa.Column("actor_name", sa.Text(), nullable=False),
        sa.Column("door", sa.Text(), nullable=False),
        sa.Column("client", sa.Text(), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject_kind", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("subject_name", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
        comment="Every act of management, written with it. Nothing changes or removes a row. `details` is JSON text.",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_audit_log_factory_id", "audit_log", ["factory_id", "id"])
    op.create_index("ix_audit_log_team_id", "audit_log", ["team_id", "id"])
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_api_keys_team_id")),
        sa.ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_api_keys_factory_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
        comment="API keys by the SHA-256 of their token, which is 256 random bits and kept nowhere.",
    )
    op.create_table(
        "members",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("team_id", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_members_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_members")),
    )
    op.create_index(
        "uq_members_email",
        "members",
        ["team_id", "email"],
        unique=True,
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "member_roles",
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("factory_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_member_roles_member_id")),
        sa.ForeignKeyConstraint(["factory_id"], ["factories.id"], name=op.f("fk_member_roles_factory_id")),
        sa.PrimaryKeyConstraint("member_id", "factory_id", name=op.f("pk_member_roles")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idempotency_keys")),
        comment="Answers that are given again when a request is repeated. They may hold a secret that is shown once.",
    )
    op.create_index(op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"])


_INDEXES = {
    "ix_runs_waiting": (["factory_id", "id"], "finished_at IS NULL AND handed_at IS NULL"),
    "ix_runs_in_hand": (["executor"], "finished_at IS NULL AND executor IS NOT NULL"),
    "ix_runs_webhook_no": (["webhook_no", "id"], None),
}


def _let_runs_be_replayed() -> None:
    """SQLite recreates the table to change a constraint, and would lose the conditions of its partial indexes."""
    before, after = "uq_runs_delivery_id_automation_id", "uq_runs_delivery_id_automation_id_replay"
    columns = ["delivery_id", "automation_id", "replay"]
    if op.get_bind().dialect.name != "sqlite":
        op.drop_constraint(before, "runs")
        op.create_unique_constraint(after, "runs", columns)
        return
    for name in _INDEXES:
        op.drop_index(name, "runs")
    with op.batch_alter_table("runs", table_kwargs={"sqlite_with_rowid": False}) as runs:
        runs.drop_constraint(before, type_="unique")
        runs.create_unique_constraint(after, columns)
    for name, (indexed, where) in _INDEXES.items():
        op.create_index(name, "runs", indexed, sqlite_where=sa.text(where) if where else None)
