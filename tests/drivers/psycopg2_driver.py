"""psycopg2: libpq's simple protocol, values written into the text."""

import io
import select
import threading

import psycopg2
from psycopg2 import errors, extensions, extras
from steps import ASLEEP, BIG, SLEEP, raises, run, tell, until


def connect(autocommit=True):
    conn = psycopg2.connect("")
    conn.autocommit = autocommit
    return conn


def one(conn, sql, values=None):
    with conn.cursor() as cur:
        cur.execute(sql, values)
        return cur.fetchone()[0]


def do(conn, sql, values=None):
    with conn.cursor() as cur:
        cur.execute(sql, values)
        return cur.rowcount


def values(conn):
    do(conn, "CREATE TABLE v (n int PRIMARY KEY, t text, b bytea, j jsonb)")
    row = (1, "it's \\ \U0001f418", b"\x00\xff'\\", extras.Json({"a": [1, None]}))
    do(conn, "INSERT INTO v VALUES (%s, %s, %s, %s)", row)
    with conn.cursor() as cur:
        cur.execute("SELECT * FROM v WHERE n = %s", (1,))
        n, t, b, j = cur.fetchone()
    assert (n, t, bytes(b), j) == (1, row[1], row[2], {"a": [1, None]})
    with conn.cursor() as cur:
        extras.execute_values(cur, "INSERT INTO v (n, t) VALUES %s", [(n, "x") for n in range(2, 500)])
    assert one(conn, "SELECT count(*) FROM v") == 499
    wide = "w" * BIG
    do(conn, "INSERT INTO v (n, t) VALUES (0, %s)", (wide,))
    assert one(conn, "SELECT t FROM v WHERE n = 0") == wide


def transactions():
    conn = connect(autocommit=False)
    do(conn, "INSERT INTO v (n) VALUES (-1)")
    conn.rollback()
    do(conn, "INSERT INTO v (n) VALUES (-2)")
    error = raises(errors.UniqueViolation, lambda: do(conn, "INSERT INTO v (n) VALUES (-2)"))
    assert error.pgcode == "23505" and error.diag.table_name == "v"
    raises(errors.InFailedSqlTransaction, lambda: one(conn, "SELECT 1"))
    conn.rollback()
    assert one(conn, "SELECT count(*) FROM v WHERE n < 0") == 0
    conn.rollback()
    with conn, conn.cursor(name="walk") as cur:
        cur.itersize = 50
        cur.execute("SELECT generate_series(1, 500)")
        assert sum(n for n, in cur) == 125250
    conn.set_session(isolation_level="SERIALIZABLE", readonly=True)
    raises(errors.ReadOnlySqlTransaction, lambda: do(conn, "INSERT INTO v (n) VALUES (-3)"))
    conn.close()


def prepared(conn):
    do(conn, "PREPARE twice (int) AS SELECT $1 * 2")
    for n in range(20):
        assert one(conn, "EXECUTE twice (%s)", (n,)) == 2 * n
    do(conn, "DEALLOCATE twice")


def copies(conn):
    text = "".join(f"{n}\tline {n}\n" for n in range(1000, 3000))
    with conn.cursor() as cur:
        cur.copy_expert("COPY v (n, t) FROM STDIN", io.StringIO(text))
        assert cur.rowcount == 2000
        out = io.StringIO()
        cur.copy_expert("COPY (SELECT n, t FROM v WHERE n >= 1000 ORDER BY n) TO STDOUT", out)
        assert out.getvalue() == text
        broken = io.StringIO("not a number\tx\n")
        copy = "COPY v (n, t) FROM STDIN"
        raises(errors.InvalidTextRepresentation, lambda: cur.copy_expert(copy, broken))
    assert one(conn, "SELECT 1") == 1


def notifications(conn):
    do(conn, "LISTEN news")
    do(connect(), "SELECT pg_notify('news', 'hello')")
    assert select.select([conn], [], [], 60)[0], "no notification came"
    conn.poll()
    assert [(n.channel, n.payload) for n in conn.notifies] == [("news", "hello")]


def cancellation(conn):
    caught = []
    sleeper = threading.Thread(
        target=lambda: caught.append(raises(errors.QueryCanceled, lambda: do(conn, SLEEP))))
    pid = conn.info.backend_pid
    sleeper.start()
    other = connect()
    until(lambda: one(other, ASLEEP.format(pid)) == 1)
    conn.cancel()
    sleeper.join(60)
    assert caught and caught[0].pgcode == "57014", caught
    assert one(conn, "SELECT 1") == 1


def resets(conn):
    do(conn, "SET application_name = 'changed'")
    conn.reset()
    assert conn.get_transaction_status() == extensions.TRANSACTION_STATUS_IDLE
    assert one(conn, "SHOW application_name") != "changed"


def work():
    conn = connect()
    values(conn)
    transactions()
    prepared(conn)
    copies(conn)
    notifications(conn)
    cancellation(conn)
    resets(conn)


def refused(action):
    error = raises(psycopg2.DatabaseError, action)
    assert error.pgcode == "ZF001", (error.pgcode, str(error))
    return 1


def fence():
    conn, block = connect(), connect(autocommit=False)
    do(conn, "CREATE TABLE f (n int)")
    do(conn, "PREPARE ins (int) AS INSERT INTO f VALUES ($1)")
    do(conn, "INSERT INTO f VALUES (1)")
    pids = [c.info.backend_pid for c in (conn, block)]
    tell("ready")
    tries = refused(lambda: do(conn, "INSERT INTO f VALUES (%s)", (2,)))
    tries += refused(lambda: do(conn, "EXECUTE ins (3)"))
    with conn.cursor() as cur:
        data = io.StringIO("4\n")
        tries += refused(lambda: cur.copy_expert("COPY f FROM STDIN", data))
    assert one(block, "SELECT count(*) FROM f") == 1
    tries += refused(lambda: do(block, "UPDATE f SET n = 5"))
    raises(errors.InFailedSqlTransaction, lambda: one(block, "SELECT 1"))
    block.rollback()
    for c in (conn, block, connect()):
        assert one(c, "SELECT sum(n) FROM f") == 1
    block.rollback()
    # What poolers of this driver send when a connection comes back.
    conn.reset()
    conn.autocommit = True
    assert one(conn, "SELECT sum(n) FROM f") == 1
    # What was prepared is gone with the reset. PREPARE in SQL is judged by what it prepares.
    prepare = "PREPARE ins (int) AS INSERT INTO f VALUES ($1)"
    tries += refused(lambda: do(conn, prepare))
    tell(tries)
    do(conn, "INSERT INTO f VALUES (6)")
    do(conn, prepare)
    do(conn, "EXECUTE ins (7)")
    do(block, "UPDATE f SET n = n + 1")
    block.commit()
    assert one(conn, "SELECT sum(n) FROM f") == 17
    assert pids == [one(c, "SELECT pg_backend_pid()") for c in (conn, block)]


run(work, fence)
