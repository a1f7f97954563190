"""PyMySQL: the text protocol, values written into the statement."""

import datetime
import decimal
import os
import tempfile
import threading

import pymysql
from my_steps import (
    BIG, CA, DENIED, DUPLICATE, INTERRUPTED, LOCK_WAIT, LOST, NO_DATABASE, NO_RIGHT, PROCEDURE,
    SLEEP, SYNTAX, TABLE, WHERE, WRITE_FENCED, asleep, lines,
)
from pymysql import cursors, err
from pymysql.constants import CLIENT
from steps import raises, run, tell, until


def connect(autocommit=True, **more):
    ssl = {"ssl_ca": CA, "ssl_verify_cert": True, "ssl_verify_identity": True} if CA else {
        "ssl_disabled": True}
    settings = {**WHERE, **ssl, "charset": "utf8mb4", "autocommit": autocommit, **more}
    return pymysql.connect(**settings)


def one(conn, sql, values=None):
    with conn.cursor() as cur:
        cur.execute(sql, values)
        return cur.fetchone()[0]


def do(conn, sql, values=None):
    with conn.cursor() as cur:
        return cur.execute(sql, values)


def values(conn):
    do(conn, TABLE)
    row = (1, "it's \\ \"\U0001f42c\"", b"\x00\xff'\\", decimal.Decimal("7.1250"),
           datetime.datetime(2026, 12, 1, 2, 3, 4, 567890), 0.1)
    do(conn, "INSERT INTO v VALUES (%s, %s, %s, %s, %s, %s)", row)
    with conn.cursor() as cur:
        cur.execute("SELECT * FROM v WHERE n = %s", (1,))
        assert cur.fetchall() == (row,)
        assert cur.executemany("INSERT INTO v (n, t) VALUES (%s, %s)",
                               [(n, "x") for n in range(2, 500)]) == 498
    assert one(conn, "SELECT count(*) FROM v WHERE b IS NULL") == 498
    wide = "w" * BIG
    do(conn, "INSERT INTO v (n, t) VALUES (0, %s)", (wide,))
    assert one(conn, "SELECT t FROM v WHERE n = 0") == wide
    assert raises(err.ProgrammingError, lambda: do(conn, "SELECT 1 +")).args[0] == SYNTAX


def transactions():
    conn = connect(autocommit=False)
    do(conn, "INSERT INTO v (n) VALUES (-1)")
    conn.rollback()
    conn.begin()
    do(conn, "INSERT INTO v (n) VALUES (-2)")
    twice = raises(err.IntegrityError, lambda: do(conn, "INSERT INTO v (n) VALUES (-2)"))
    assert twice.args[0] == DUPLICATE
    do(conn, "SAVEPOINT s")
    do(conn, "INSERT INTO v (n) VALUES (-3)")
    do(conn, "ROLLBACK TO s")
    conn.commit()
    assert one(conn, "SELECT min(n) FROM v") == -2
    do(conn, "DELETE FROM v WHERE n < 0")
    conn.commit()
    do(conn, "START TRANSACTION READ ONLY")
    assert raises(err.MySQLError, lambda: do(conn, "DELETE FROM v")).args[0] == 1792
    conn.rollback()
    conn.close()


def several(conn):
    many = connect(client_flag=CLIENT.MULTI_STATEMENTS)
    with many.cursor() as cur:
        cur.execute("SELECT 1; UPDATE v SET f = 2 WHERE n = 1; SELECT 'three', 3")
        got = [cur.fetchall()]
        while cur.nextset():
            got.append(cur.fetchall())
        assert [list(rows) for rows in got] == [[(1,)], [], [("three", 3)]], got
        cur.execute("SELECT 1; SELECT nothing FROM v; SELECT 3")
        assert cur.fetchall() == ((1,),)
        assert raises(err.OperationalError, cur.nextset).args[0] == 1054
    assert one(many, "SELECT 4") == 4
    many.close()
    do(conn, PROCEDURE)
    with conn.cursor() as cur:
        cur.callproc("twice", (21, 0))
        assert cur.fetchall() == ((21,),)
        assert cur.nextset() and cur.fetchall() == (("second", 42),)
    assert one(conn, "SELECT @_twice_1") == 42
    with conn.cursor(cursors.SSCursor) as cur:
        cur.execute("SELECT a.n FROM v a, v b LIMIT 20000")
        assert sum(1 for _ in cur) == 20000
        cur.execute("SELECT n FROM v")
        cur.fetchone()
    assert one(conn, "SELECT 5") == 5


def loads():
    conn = connect(local_infile=True)
    with tempfile.TemporaryDirectory() as folder:
        path = lines(os.path.join(folder, "rows.tsv"))
        sql = f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE v (n, t)"
        assert do(conn, sql) == 2000
        missing = f"LOAD DATA LOCAL INFILE '{folder}/none' INTO TABLE v (n, t)"
        assert raises(err.OperationalError, lambda: do(conn, missing)).args[0] == 1017
    assert one(conn, "SELECT t FROM v WHERE n = 2999") == "line 2999"
    conn.close()


def sessions(conn):
    conn.ping(reconnect=False)
    do(conn, "SET @mine = 7")
    conn.select_db("information_schema")
    assert one(conn, "SELECT DATABASE()") == "information_schema"
    conn.select_db(WHERE["database"])
    conn.set_character_set("latin1")
    assert one(conn, "SELECT @@character_set_client") == "latin1"
    conn.set_character_set("utf8mb4")
    assert one(conn, "SELECT @mine") == 7


def cancellation(conn):
    caught = []
    sleeper = threading.Thread(
        target=lambda: caught.append(raises(err.OperationalError, lambda: do(conn, SLEEP))))
    sleeper.start()
    other = connect()
    until(lambda: asleep(lambda sql: one(other, sql), err.MySQLError, conn.thread_id()))
    do(other, f"KILL QUERY {conn.thread_id()}")
    sleeper.join(60)
    assert caught and caught[0].args[0] == INTERRUPTED, caught
    assert one(conn, "SELECT 1") == 1
    assert conn.thread_id() == one(conn, "SELECT CONNECTION_ID()")
    conn.kill(other.thread_id())
    raises(err.MySQLError, lambda: one(other, "SELECT 1"))


def work():
    conn = connect()
    values(conn)
    transactions()
    several(conn)
    loads()
    sessions(conn)
    cancellation(conn)
    conn.close()


def refused(action):
    error = raises(err.OperationalError, action)
    assert error.args[0] == WRITE_FENCED, error
    return 1


def lock_wait(conn, block):
    """1205, as long as there is no fence."""
    do(block, "SELECT n FROM w FOR UPDATE")
    do(conn, "SET SESSION innodb_lock_wait_timeout = 1")
    timeout = raises(err.OperationalError, lambda: do(conn, "UPDATE w SET n = 2"))
    assert timeout.args[0] == LOCK_WAIT, timeout
    block.rollback()


def other_errors(conn):
    """Under a fence everything else that fails does so under its own number."""
    wrong = raises(err.OperationalError, lambda: connect(password="wrong"))
    assert wrong.args[0] == DENIED, wrong
    missing = raises(err.OperationalError, lambda: connect(database="no_such_database"))
    assert missing.args[0] in (NO_DATABASE, NO_RIGHT), missing
    killed = connect()
    do(conn, f"KILL {killed.thread_id()}")
    gone = raises(err.OperationalError, lambda: one(killed, "SELECT 1"))
    assert gone.args[0] in LOST, gone


def fence():
    conn, block = connect(), connect(autocommit=False)
    do(conn, "CREATE TABLE w (n int)")
    do(conn, "INSERT INTO w VALUES (1)")
    lock_wait(conn, block)
    do(conn, "CREATE TABLE f (n int)")
    do(conn, "INSERT INTO f VALUES (1)")
    block.commit()
    ids = [one(c, "SELECT CONNECTION_ID()") for c in (conn, block)]
    block.commit()
    tell("ready")
    other_errors(conn)
    tries = refused(lambda: do(conn, "INSERT INTO f VALUES (%s)", (2,)))
    with conn.cursor() as cur:
        rows = [(3,), (4,)]
        tries += refused(lambda: cur.executemany("INSERT INTO f VALUES (%s)", rows))
    assert one(block, "SELECT count(*) FROM f") == 1
    tries += refused(lambda: do(block, "UPDATE f SET n = 5"))
    # The transaction is still there, and so is the session.
    assert one(block, "SELECT count(*) FROM f") == 1
    block.rollback()
    for c in (conn, block, connect()):
        assert one(c, "SELECT sum(n) FROM f") == 1
    block.rollback()
    conn.ping(reconnect=False)
    tries += refused(lambda: do(conn, "DELETE FROM f"))
    tell(tries)
    do(conn, "INSERT INTO f VALUES (6)")
    do(block, "UPDATE f SET n = n + 1")
    block.commit()
    assert one(conn, "SELECT sum(n) FROM f") == 9
    assert ids == [one(c, "SELECT CONNECTION_ID()") for c in (conn, block)]


run(work, fence)
