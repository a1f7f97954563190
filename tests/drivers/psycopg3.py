"""psycopg 3 at its usual work, against whatever the PG* environment points at.

Ends with exit code 0 and "ok", or with the first assertion that failed. Every wait looks at a level
and has a deadline. The caller gives an empty database that the role may create tables in.
"""

import datetime
import decimal
import sys
import threading
import time
import uuid

import psycopg
from psycopg import errors
from psycopg.types.json import Jsonb


def connect(**options):
    return psycopg.connect("", **options)


def raises(kind, action):
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"{kind} was expected")


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "a condition didn't become true"
        time.sleep(0.02)


def values_in_both_formats(conn):
    row = (
        7, -(2**62), 1.5, decimal.Decimal("12345678901234567890.123456789"), "grüße \U0001f418",
        b"\x00\xff'\\", True, None, datetime.date(2026, 2, 28),
        datetime.datetime(2026, 2, 28, 23, 59, 59, 999999, tzinfo=datetime.timezone.utc),
        uuid.UUID(int=2**127 + 1), [1, None, 3], {"a": [1, {"b": None}]},
    )
    casts = (
        "int4", "int8", "float8", "numeric", "text", "bytea", "bool", "text", "date",
        "timestamptz", "uuid", "int4[]", "jsonb",
    )
    select = "SELECT " + ", ".join(f"%s::{cast}" for cast in casts)
    for binary in (False, True):
        with conn.cursor(binary=binary) as cur:
            got = cur.execute(select, (*row[:-1], Jsonb(row[-1]))).fetchone()
            assert got == row, (binary, got)
            assert cur.execute("SELECT repeat('x', 20000000)").fetchone()[0] == "x" * 20_000_000
            wide = "y" * 20_000_000
            assert cur.execute("SELECT length(%s)", (wide,)).fetchone()[0] == len(wide)


def transactions(conn):
    conn.execute("CREATE TABLE tx (n int PRIMARY KEY)")
    with conn.transaction():
        conn.execute("INSERT INTO tx VALUES (1)")
        error = raises(errors.UniqueViolation, lambda: in_savepoint(conn, 1))
        assert error.sqlstate == "23505" and error.diag.table_name == "tx"
        in_savepoint(conn, 2)

    class Stop(Exception):
        pass

    def undone():
        with conn.transaction():
            conn.execute("INSERT INTO tx VALUES (3)")
            raise Stop

    raises(Stop, undone)
    assert conn.execute("SELECT array_agg(n ORDER BY n) FROM tx").fetchone()[0] == [1, 2]

    with connect() as other:
        other.execute("INSERT INTO tx VALUES (4)")
        raises(errors.DivisionByZero, lambda: other.execute("SELECT 1/0"))
        raises(errors.InFailedSqlTransaction, lambda: other.execute("SELECT 1"))
        other.rollback()
        other.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        other.read_only = True
        raises(errors.ReadOnlySqlTransaction, lambda: other.execute("INSERT INTO tx VALUES (5)"))
        other.rollback()
    assert conn.execute("SELECT count(*) FROM tx").fetchone()[0] == 2


def in_savepoint(conn, n):
    with conn.transaction():
        conn.execute("INSERT INTO tx VALUES (%s)", (n,))


def prepared_statements(conn):
    for n in range(20):
        got = conn.execute("SELECT %s::int * 2", (n,), prepare=True).fetchone()[0]
        assert got == 2 * n
    names = "SELECT count(*) FROM pg_prepared_statements"
    assert conn.execute(names).fetchone()[0] >= 1
    conn.execute("DEALLOCATE ALL")
    assert conn.execute(names).fetchone()[0] == 0
    conn.execute("PREPARE twice (int) AS SELECT $1 * 2")
    assert conn.execute("EXECUTE twice (21)").fetchone()[0] == 42


def pipelines(conn):
    conn.execute("CREATE TABLE pipe (n int PRIMARY KEY)")
    with conn.pipeline() as pipeline:
        cursors = [conn.execute("SELECT %s::int", (n,)) for n in range(500)]
        pipeline.sync()
        assert [cur.fetchone()[0] for cur in cursors] == list(range(500))
        with conn.cursor() as cur:
            cur.executemany("INSERT INTO pipe VALUES (%s)", [(n,) for n in range(1000)])
    assert conn.execute("SELECT sum(n) FROM pipe").fetchone()[0] == 499500

    # An error ends the pipeline up to the next Sync: what came before in it isn't committed.
    def broken():
        with conn.pipeline():
            conn.execute("INSERT INTO pipe VALUES (-1)")
            conn.execute("INSERT INTO pipe VALUES (5)")
            conn.execute("INSERT INTO pipe VALUES (-2)")

    raises(errors.UniqueViolation, broken)
    assert conn.execute("SELECT count(*) FROM pipe WHERE n < 0").fetchone()[0] == 0


def server_side_cursors(conn):
    with conn.transaction():
        with conn.cursor(name="series", scrollable=True) as cur:
            cur.itersize = 100
            cur.execute("SELECT generate_series(1, 2500)")
            assert sum(row[0] for row in cur) == 2500 * 2501 // 2
            cur.scroll(0, mode="absolute")
            assert cur.fetchmany(3) == [(1,), (2,), (3,)]


def copies(conn):
    conn.execute("CREATE TABLE copied (n int, t text, b bytea)")
    rows = [(n, None if n % 7 == 0 else f"tab\tnewline\n{n}", bytes([n % 256])) for n in range(5000)]
    with conn.cursor() as cur:
        with cur.copy("COPY copied FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        assert cur.rowcount == 5000
        with cur.copy("COPY copied FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "text", "bytea"])
            for row in rows:
                copy.write_row(row)
        for form in ("text", "binary"):
            with cur.copy(f"COPY copied TO STDOUT (FORMAT {form})") as copy:
                copy.set_types(["int4", "text", "bytea"])
                got = sorted(copy.rows(), key=lambda row: row[0])
            assert got == [row for row in rows for _ in range(2)], form

        def given_up():
            with cur.copy("COPY copied FROM STDIN") as copy:
                copy.write_row((-1, "", b""))
                raise ValueError("given up")

        # Which of the two depends on the driver's version.
        raises((ValueError, errors.QueryCanceled), given_up)
        raises(errors.BadCopyFileFormat, lambda: copy_text(cur, "1\t2\n"))
        assert cur.execute("SELECT count(*) FROM copied WHERE n < 0").fetchone()[0] == 0


def copy_text(cur, text):
    with cur.copy("COPY copied FROM STDIN") as copy:
        copy.write(text)


def notifications(conn):
    conn.execute("LISTEN news")
    with connect(autocommit=True) as other:
        for n in range(3):
            other.execute("SELECT pg_notify('news', %s)", (str(n),))
    got = []
    generator = conn.notifies()
    for note in generator:
        got.append(note.payload)
        if len(got) == 3:
            generator.close()
    assert got == ["0", "1", "2"], got
    conn.execute("UNLISTEN news")

    notices = []
    conn.add_notice_handler(lambda diag: notices.append(diag.message_primary))
    conn.execute("DO $$ BEGIN RAISE NOTICE 'hello'; END $$")
    assert notices == ["hello"], notices


def cancellation(conn):
    pid = conn.info.backend_pid
    caught = []

    def sleep():
        caught.append(raises(errors.QueryCanceled, lambda: conn.execute("SELECT pg_sleep(600)")))

    thread = threading.Thread(target=sleep)
    thread.start()
    with connect(autocommit=True) as other:
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
        until(lambda: other.execute(asleep, (pid,)).fetchone()[0] == 1)
    conn.cancel()
    thread.join(60)
    assert not thread.is_alive() and caught[0].sqlstate == "57014", caught
    assert conn.execute("SELECT 1").fetchone()[0] == 1


def session_state(conn):
    conn.execute("SET application_name = 'driver test'")
    assert conn.info.parameter_status("application_name") == "driver test"
    conn.execute("SET TimeZone = 'Asia/Kathmandu'")
    assert str(conn.info.timezone) == "Asia/Kathmandu"
    conn.execute("CREATE TEMP TABLE mine (n int)")
    conn.execute("RESET ALL")
    raises(errors.UndefinedTable, lambda: connect(autocommit=True).execute("TABLE mine"))
    many = conn.execute("SELECT generate_series(1, 200000)").fetchall()
    assert len(many) == 200_000 and many[-1] == (200_000,)


def main():
    with connect(autocommit=True) as conn:
        for part in (
            values_in_both_formats, transactions, prepared_statements, pipelines,
            server_side_cursors, copies, notifications, cancellation, session_state,
        ):
            try:
                part(conn)
            except BaseException:
                print(f"failed in {part.__name__}", file=sys.stderr)
                raise


if __name__ == "__main__":
    main()
    print("ok")
