"""What the scripts of MySQL's Python drivers share, beside steps.py."""

import os

ENV = os.environ
# None without TLS, else the authority's certificate, against which the server's is checked.
CA = ENV.get("FENCEWIRE_MY_CA")
MARIADB = ENV["FENCEWIRE_MY_FLAVOUR"] == "mariadb"
WHERE = {
    "host": "127.0.0.1",
    "port": int(ENV["FENCEWIRE_MY_PORT"]),
    "user": "app",
    "password": "app",
    "database": ENV["FENCEWIRE_MY_DB"],
}

# A statement that stands still until it is stopped (a SLEEP alone would answer 1 then).
SLEEP = "SELECT count(*) FROM v WHERE n = 1 AND SLEEP(600) = 0"
BIG = 1_000_000
INTERRUPTED, DUPLICATE, SYNTAX = 1317, 1062, 1064
WRITE_FENCED = 9701
DENIED, NO_DATABASE, NO_RIGHT, LOCK_WAIT = 1045, 1049, 1044, 1205
# Of the client library's own, for a connection that has ended.
LOST = (2006, 2013, 2055)

TABLE = """CREATE TABLE v (n int PRIMARY KEY, t longtext, b longblob, d decimal(20, 4),
           at datetime(6), f double) DEFAULT CHARSET utf8mb4"""
PROCEDURE = """CREATE PROCEDURE twice(IN n int, OUT m int)
               BEGIN SET m = n * 2; SELECT n; SELECT 'second', m; END"""


def asleep(ask, error, thread):
    """Whether another session's statement stands still; `ask` answers a query's first value.

    MySQL fails (3854) while anybody on the server runs a statement whose bytes its list can't show:
    then nothing is known yet.
    """
    sql = "SELECT count(*) FROM information_schema.processlist WHERE id = {} AND state = 'User sleep'"
    try:
        return ask(sql.format(thread)) == 1
    except error as failed:
        assert "3854" in str(failed), failed
        return False


def lines(path):
    """A file of rows for LOAD DATA LOCAL; its path."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{n}\tline {n}\n" for n in range(1000, 3000))
    return path
