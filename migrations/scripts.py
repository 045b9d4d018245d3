"""SQL scripts in migrations."""

from alembic import op


def run(script: str) -> None:
    """Run every statement of `script`.

    asyncpg prepares one statement at a time, so it is split at semicolons that end a line, outside $$ bodies.
    """
    body, quoted = "", False
    for line in script.strip().splitlines():
        body += line + "\n"
        quoted ^= line.count("$$") % 2 == 1
        if line.endswith(";") and not quoted:
            op.get_bind().exec_driver_sql(body.strip())
            body = ""
