"""mysql-connector-python (its pure Python one): text and binary protocol."""

import datetime
import decimal
import os
import tempfile
import threading

import mysql.connector
import pymysql
from my_steps import (
    BIG, CA, DENIED, DUPLICATE, INTERRUPTED, LOCK_WAIT, LOST, MARIADB, NO_DATABASE, NO_RIGHT,
    PROCEDURE, SLEEP, SYNTAX, TABLE, WHERE, WRITE_FENCED, asleep, lines,
)
from mysql.connector import errors, pooling
from steps import raises, run, tell, until


def settings(autocommit=True):
    ssl = {"ssl_ca": CA, "ssl_verify_cert": True, "ssl_verify_identity": True} if CA else {
        "ssl_disabled": True}
    return {**WHERE, **ssl, "use_pure": True, "autocommit": autocommit,
            "allow_local_infile": True, "charset": "utf8mb4"}


def connect(autocommit=True, **more):
    return mysql.connector.connect(**{**settings(autocommit), **more})


def one(conn, sql, values=()):
    with conn.cursor() as cur:
        cur.execute(sql, values)
        return cur.fetchall()[0][0]


def do(conn, sql, values=()):
    with conn.cursor() as cur:
        cur.execute(sql, values)
        return cur.rowcount


def values(conn):
    do(conn, TABLE)
    row = (1, "it's \\ \"\U0001f42c\"", b"\x00\xff'\\", decimal.Decimal("7.1250"),
           datetime.datetime(2026, 12, 1, 2, 3, 4, 567890), 0.1)
    do(conn, "INSERT INTO v VALUES (%s, %s, %s, %s, %s, %s)", row)
    with conn.cursor() as cur:
        cur.execute("SELECT * FROM v WHERE n = %s", (1,))
        assert [tuple(got) for got in cur.fetchall()] == [row]
        cur.executemany("INSERT INTO v (n, t) VALUES (%s, %s)", [(n, "x") for n in range(2, 500)])
        assert cur.rowcount == 498
    wide = "w" * BIG
    do(conn, "INSERT INTO v (n, t) VALUES (0, %s)", (wide,))
    assert one(conn, "SELECT t FROM v WHERE n = 0") == wide
    assert raises(errors.ProgrammingError, lambda: do(conn, "SELECT 1 +")).errno == SYNTAX


def prepared(conn):
    with conn.cursor(prepared=True) as cur:
        for n in range(20):
            cur.execute("SELECT ? * 2, ?", (n, None))
            assert cur.fetchall() == [(n * 2, None)]
        row = (-9, "it's", b"\x00\xff", decimal.Decimal("1.5000"),
               datetime.datetime(2026, 12, 1, 2, 3, 4), -0.5)
        insert = "INSERT INTO v VALUES (?, ?, ?, ?, ?, ?)"
        cur.execute(insert, row)
        assert raises(errors.IntegrityError, lambda: cur.execute(insert, row)).errno == DUPLICATE
        cur.execute("SELECT * FROM v WHERE n = ?", (-9,))
        got = cur.fetchall()[0]
        assert (*got[:2], bytes(got[2]), *got[3:]) == row, got
        cur.execute("DELETE FROM v WHERE n = ?", (-9,))
    # Long data goes ahead of the execution in pieces.
    with conn.cursor(prepared=True) as cur:
        cur.execute("SELECT LENGTH(?)", ("w" * BIG,))
        assert cur.fetchall()[0][0] == BIG


def transactions():
    conn = connect(autocommit=False)
    conn.start_transaction()
    do(conn, "INSERT INTO v (n) VALUES (-1)")
    conn.rollback()
    conn.start_transaction(isolation_level="SERIALIZABLE")
    do(conn, "INSERT INTO v (n) VALUES (-2)")
    assert conn.in_transaction
    conn.commit()
    assert not conn.in_transaction
    assert one(conn, "SELECT min(n) FROM v") == -2
    do(conn, "DELETE FROM v WHERE n < 0")
    conn.commit()
    # The driver believes MariaDB's greeting, which says 5.5.5, and thinks that it can't.
    do(conn, "START TRANSACTION READ ONLY")
    assert raises(errors.Error, lambda: do(conn, "DELETE FROM v")).errno == 1792
    conn.rollback()
    conn.close()


def several(conn):
    with conn.cursor() as cur:
        cur.execute("SELECT 1; UPDATE v SET f = 2 WHERE n = 1; SELECT 'three', 3")
        got = [cur.fetchall()]
        while cur.nextset():
            got.append(cur.fetchall() if cur.with_rows else [])
        assert got == [[(1,)], [], [("three", 3)]], got
    do(conn, PROCEDURE)
    with conn.cursor() as cur:
        assert tuple(cur.callproc("twice", (21, 0))) == (21, 42)
        results = [result.fetchall() for result in cur.stored_results()]
        assert results == [[(21,)], [("second", 42)]]
    with conn.cursor(buffered=False) as cur:
        cur.execute("SELECT a.n FROM v a, v b LIMIT 20000")
        assert sum(1 for _ in cur) == 20000
    do(conn, "DROP PROCEDURE twice")


def loads(conn):
    with tempfile.TemporaryDirectory() as folder:
        path = lines(os.path.join(folder, "rows.tsv"))
        assert do(conn, f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE v (n, t)") == 2000
    assert one(conn, "SELECT t FROM v WHERE n = 2999") == "line 2999"


def sessions(conn):
    conn.ping(reconnect=False)
    do(conn, "SET @mine = 7")
    assert one(conn, "SELECT @mine") == 7
    conn.cmd_reset_connection()
    assert one(conn, "SELECT @mine") is None
    # A reset sets the client's character set back to the server's own.
    conn.set_charset_collation("utf8mb4")
    conn.autocommit = True
    conn.cmd_init_db("information_schema")
    assert one(conn, "SELECT DATABASE()") == "information_schema"
    conn.cmd_change_user(WHERE["user"], WHERE["password"], WHERE["database"])
    assert one(conn, "SELECT DATABASE()") == WHERE["database"]
    assert "Uptime" in conn.cmd_statistics() or conn.cmd_statistics()
    conn.autocommit = True


def pools():
    # The pool resets a session when it comes back.
    pool = pooling.MySQLConnectionPool(pool_size=2, pool_name="pool", **settings())
    for _ in range(5):
        conn = pool.get_connection()
        assert one(conn, "SELECT @mine") is None
        do(conn, "SET @mine = 1")
        conn.close()


def cancellation(conn):
    caught = []
    sleeper = threading.Thread(
        target=lambda: caught.append(raises(errors.Error, lambda: one(conn, SLEEP))))
    number = conn.connection_id
    sleeper.start()
    other = connect()
    until(lambda: asleep(lambda sql: one(other, sql), errors.Error, number))
    do(other, f"KILL QUERY {number}")
    sleeper.join(60)
    assert caught and caught[0].errno == INTERRUPTED, caught
    assert one(conn, "SELECT 1") == 1
    assert number == one(conn, "SELECT CONNECTION_ID()")
    other.close()


def known():
    """Without TLS the driver can't ask MySQL for its key, and gets in only where the server knows
    the password already. Another driver's login sees to that."""
    if not MARIADB and not CA:
        pymysql.connect(**WHERE, ssl_disabled=True).close()


def work():
    known()
    conn = connect()
    values(conn)
    prepared(conn)
    transactions()
    several(conn)
    loads(conn)
    sessions(conn)
    pools()
    cancellation(conn)
    conn.close()


def refused(action):
    error = raises(errors.Error, action)
    assert (error.errno, error.sqlstate) == (WRITE_FENCED, "ZF001"), error
    return 1


def lock_wait(conn, block):
    """1205, as long as there is no fence."""
    one(block, "SELECT n FROM w FOR UPDATE")
    do(conn, "SET SESSION innodb_lock_wait_timeout = 1")
    timeout = raises(errors.Error, lambda: do(conn, "UPDATE w SET n = 2"))
    assert timeout.errno == LOCK_WAIT, timeout
    block.rollback()


def other_errors(conn):
    """Under a fence everything else that fails does so under its own number."""
    if MARIADB or CA:
        # Else the driver doesn't get as far as being told.
        wrong = raises(errors.Error, lambda: connect(password="wrong"))
        assert wrong.errno == DENIED, wrong
    missing = raises(errors.Error, lambda: connect(database="no_such_database"))
    assert missing.errno in (NO_DATABASE, NO_RIGHT), missing
    killed = connect()
    do(conn, f"KILL {killed.connection_id}")
    # A cursor would look first, and find it gone by itself.
    gone = raises(errors.Error, lambda: killed.cmd_query("SELECT 1"))
    assert gone.errno in LOST, gone


def fence():
    known()
    conn, block = connect(), connect(autocommit=False)
    do(conn, "CREATE TABLE w (n int)")
    do(conn, "INSERT INTO w VALUES (1)")
    lock_wait(conn, block)
    do(conn, "CREATE TABLE f (n int)")
    insert = conn.cursor(prepared=True)
    insert.execute("INSERT INTO f VALUES (?)", (1,))
    ids = [conn.connection_id, block.connection_id]
    tell("ready")
    other_errors(conn)
    tries = refused(lambda: do(conn, "INSERT INTO f VALUES (%s)", (2,)))
    tries += refused(lambda: insert.execute("INSERT INTO f VALUES (?)", (3,)))
    block.start_transaction()
    assert one(block, "SELECT count(*) FROM f") == 1
    tries += refused(lambda: do(block, "UPDATE f SET n = 5"))
    # The transaction is still there, and so is the session.
    assert one(block, "SELECT count(*) FROM f") == 1
    block.rollback()
    conn.ping(reconnect=False)
    for reader in (conn, block, connect()):
        assert one(reader, "SELECT sum(n) FROM f") == 1
    block.rollback()
    tries += refused(lambda: do(conn, "DELETE FROM f"))
    tell(tries)
    do(conn, "INSERT INTO f VALUES (6)")
    insert.execute("INSERT INTO f VALUES (?)", (7,))
    do(block, "UPDATE f SET n = n + 1")
    block.commit()
    assert one(conn, "SELECT sum(n) FROM f") == 17
    assert ids == [one(c, "SELECT CONNECTION_ID()") for c in (conn, block)]


run(work, fence)
