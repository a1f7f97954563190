"""psycopg 3 in the two ways that steps.py describes: pipelines and prepared statements included.

Its usual work is that of psycopg3.py, which tests/tools_pg.rs runs by itself.
"""

import psycopg
from psycopg import errors
from psycopg3 import connect, main as work, raises
from steps import run, tell


def refused(action):
    error = raises(psycopg.DatabaseError, action)
    assert error.sqlstate == "ZF001", (error.sqlstate, str(error))
    return 1


def one(conn, sql):
    return conn.execute(sql).fetchone()[0]


def piped(conn, write):
    with conn.pipeline():
        conn.execute("SELECT 1")
        conn.execute(*write)
        conn.execute("SELECT 2")


def copied(conn):
    with conn.cursor() as cur, cur.copy("COPY f FROM STDIN") as copy:
        copy.write_row((4,))


def fence():
    conn, block = connect(autocommit=True), connect()
    insert = "INSERT INTO f VALUES (%s)"
    conn.execute("CREATE TABLE f (n int)")
    conn.execute(insert, (1,), prepare=True)
    assert one(conn, "SELECT count(*) FROM pg_prepared_statements") == 1
    pids = [c.info.backend_pid for c in (conn, block)]
    tell("ready")
    tries = refused(lambda: conn.execute(insert, (2,)))
    tries += refused(lambda: conn.execute("INSERT INTO f SELECT %s::int", (2,), prepare=True))
    tries += refused(lambda: piped(conn, (insert, (3,))))
    tries += refused(lambda: piped(conn, ("UPDATE f SET n = 3",)))
    tries += refused(lambda: copied(conn))
    with conn.pipeline() as pipeline:
        # What isn't behind a refusal in its own part of the pipeline goes on.
        before = conn.execute("SELECT 10")
        pipeline.sync()
        tries += refused(lambda: conn.execute("DELETE FROM f").fetchone())
        pipeline.sync()
        behind = conn.execute("SELECT 11")
        pipeline.sync()
        assert (before.fetchone(), behind.fetchone()) == ((10,), (11,))
    assert one(block, "SELECT count(*) FROM f") == 1
    tries += refused(lambda: block.execute("UPDATE f SET n = 5"))
    raises(errors.InFailedSqlTransaction, lambda: block.execute("SELECT 1"))
    block.rollback()
    for c in (conn, block):
        assert one(c, "SELECT sum(n) FROM f") == 1
    block.rollback()
    tell(tries)
    conn.execute(insert, (6,))
    piped(conn, (insert, (7,)))
    block.execute("UPDATE f SET n = n + 1")
    block.commit()
    assert one(conn, "SELECT sum(n) FROM f") == 17
    assert pids == [c.info.backend_pid for c in (conn, block)]
    assert pids == [one(c, "SELECT pg_backend_pid()") for c in (conn, block)]


run(work, fence)
