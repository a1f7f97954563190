//! Scripts of statements: each is told under every profile of capabilities.

use crate::support::MyFlavour;

/// A name and its statements.
type Script = (&'static str, &'static [&'static str]);

/// The scripts for a flavour.
pub fn scripts(flavour: MyFlavour) -> Vec<Script> {
    let own = match flavour {
        MyFlavour::MariaDb => MARIADB,
        MyFlavour::MySql => MYSQL,
    };
    BOTH.iter().chain(own).copied().collect()
}

static BOTH: &[Script] = &[
    ("text: rows", &["SELECT n, s, b FROM r ORDER BY n", "SELECT 1, NULL, 'x', 1.5, 1e3"]),
    (
        "text: every kind of value",
        &["SELECT CAST(1 AS SIGNED), CAST(2 AS UNSIGNED), CAST('2026-01-02' AS DATE), \
         CAST('2026-01-02 03:04:05.678' AS DATETIME(3)), CAST('-12:34:56' AS TIME), \
         CAST(1.25 AS DECIMAL(10,4)), x'00ff', b'101', TRUE, CAST('a' AS BINARY(3))"],
    ),
    ("text: no rows", &["SELECT n FROM r WHERE FALSE", "SELECT * FROM v WHERE n > 9"]),
    (
        "text: errors",
        &[
            "SELEC 1",
            "SELECT * FROM nowhere",
            "SELECT nothing FROM r",
            "INSERT INTO r (n) VALUES (1)",
            "SELECT 1/0, 'a' + 1",
            "SHOW WARNINGS",
            "SELECT (SELECT n FROM r)",
        ],
    ),
    ("text: empty and comments only", &["", " ", ";", "-- x", "/* x */", "# x"]),
    (
        "text: several statements",
        &[
            "SELECT 1; SELECT n FROM r ORDER BY n; DO 1; SELECT 3",
            "SET @a = 1; SET @b = 2; SELECT @a, @b",
            "SELECT 1;",
            "SELECT 1;;SELECT 2",
        ],
    ),
    (
        "text: an error in the middle",
        &[
            "SELECT 1; SELECT * FROM nowhere; SELECT 2",
            "SELECT 1; SELEC 2; SELECT 3",
            "BEGIN; INSERT INTO w VALUES (1, 'x'); INSERT INTO w VALUES (1, 'x'); COMMIT",
            "ROLLBACK",
        ],
    ),
    (
        "text: a transaction in one string",
        &[
            "BEGIN; DELETE FROM w; INSERT INTO w VALUES (1, 'x'); COMMIT; SELECT * FROM w",
            "BEGIN; INSERT INTO w VALUES (2, 'y'); SELECT count(*) FROM w; ROLLBACK; \
             SELECT * FROM w",
            "DELETE FROM w",
        ],
    ),
    (
        "transactions: begin, write, commit",
        &[
            "BEGIN",
            "INSERT INTO w VALUES (11, 'a')",
            "SELECT * FROM w WHERE n = 11",
            "COMMIT",
            "DELETE FROM w WHERE n = 11",
        ],
    ),
    (
        "transactions: rollback and savepoints",
        &[
            "START TRANSACTION",
            "INSERT INTO w VALUES (12, 'a')",
            "SAVEPOINT p",
            "INSERT INTO w VALUES (13, 'a')",
            "ROLLBACK TO p",
            "RELEASE SAVEPOINT p",
            "ROLLBACK TO q",
            "SELECT n FROM w WHERE n IN (12, 13)",
            "ROLLBACK",
            "ROLLBACK",
        ],
    ),
    (
        "transactions: read only",
        &[
            "START TRANSACTION READ ONLY",
            "SELECT count(*) FROM r",
            "INSERT INTO w VALUES (14, 'a')",
            "COMMIT",
            "SET SESSION TRANSACTION READ ONLY",
            "INSERT INTO w VALUES (14, 'a')",
            "BEGIN",
            "SELECT 1",
            "COMMIT",
            "SET SESSION TRANSACTION READ WRITE",
        ],
    ),
    (
        "transactions: autocommit off",
        &[
            "SET autocommit = 0",
            "SELECT 1",
            "SELECT count(*) FROM r",
            "COMMIT",
            "INSERT INTO w VALUES (15, 'a')",
            "ROLLBACK",
            "INSERT INTO m VALUES (1)",
            "SET autocommit = 1",
            "DELETE FROM m",
        ],
    ),
    (
        "transactions: chains and second begins",
        &[
            "BEGIN",
            "BEGIN",
            "INSERT INTO w VALUES (16, 'a')",
            "COMMIT AND CHAIN",
            "DELETE FROM w WHERE n = 16",
            "COMMIT AND NO CHAIN NO RELEASE",
            "SELECT @@in_transaction",
        ],
    ),
    (
        "transactions: DDL that fails commits",
        &[
            "BEGIN",
            "INSERT INTO w VALUES (17, 'a')",
            "ALTER TABLE nowhere ADD x INT",
            "ROLLBACK",
            "SELECT n FROM w WHERE n = 17",
            "DELETE FROM w WHERE n = 17",
        ],
    ),
    (
        "transactions: XA",
        &[
            "XA START 'DB.x'",
            "INSERT INTO w VALUES (18, 'a')",
            "SELECT 1 FROM nowhere",
            "COMMIT",
            "XA END 'DB.x'",
            "XA ROLLBACK 'DB.x'",
            "XA ROLLBACK 'DB.y'",
        ],
    ),
    ("transactions: release", &["BEGIN", "COMMIT RELEASE", "SELECT 1"]),
    (
        "writes: counts and numbers",
        &[
            "INSERT INTO r (s) VALUES ('x'), ('y')",
            "SELECT LAST_INSERT_ID() > 3, ROW_COUNT()",
            "UPDATE r SET s = 'z' WHERE n > 3",
            "UPDATE r SET s = 'z' WHERE n > 3",
            "DELETE FROM r WHERE n > 3",
            "ALTER TABLE r AUTO_INCREMENT = 4",
            "REPLACE INTO w VALUES (20, 'a'), (20, 'b')",
            "INSERT INTO w VALUES (20, 'c') ON DUPLICATE KEY UPDATE s = 'd'",
            "DELETE FROM w",
        ],
    ),
    (
        "writes: warnings",
        &[
            "SET SESSION sql_mode = ''",
            "INSERT INTO w VALUES (30, REPEAT('x', 30))",
            "SHOW WARNINGS",
            "SHOW COUNT(*) WARNINGS",
            "INSERT IGNORE INTO w VALUES (30, 'x')",
            "SHOW WARNINGS",
            "DELETE FROM w",
        ],
    ),
    (
        "writes: tables come and go",
        &[
            "CREATE TABLE c (n INT)",
            "CREATE TABLE c (n INT)",
            "CREATE TABLE IF NOT EXISTS c (n INT)",
            "INSERT INTO c SELECT n FROM r",
            "ALTER TABLE c ADD s TEXT",
            "TRUNCATE c",
            "RENAME TABLE c TO d",
            "DROP TABLE c",
            "DROP TABLE d",
            "DROP TABLE IF EXISTS d",
        ],
    ),
    (
        "writes: temporary tables",
        &[
            "CREATE TEMPORARY TABLE c (n INT)",
            "INSERT INTO c VALUES (1), (2)",
            "SELECT sum(n) FROM c",
            "DROP TEMPORARY TABLE c",
        ],
    ),
    ("procedures: results", &["CALL two()", "CALL two(); SELECT 2", "DO 1"]),
    ("procedures: parameters", &["SET @c = 4", "CALL outs(1, @b, @c)", "SELECT @b, @c"]),
    ("procedures: errors", &["CALL fails()", "CALL nowhere()", "CALL outs(1)", "CALL two(1)"]),
    ("functions", &["SELECT twice(n) FROM r ORDER BY n", "SELECT nowhere(1)", "DO twice(2)"]),
    (
        "settings",
        &[
            "SET @x = 1, @y = 'two'",
            "SET NAMES latin1",
            "SELECT 'caf\u{e9}'",
            "SET NAMES utf8mb4",
            "SELECT @x, @y, @@character_set_client",
            "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
            "SELECT '\\'",
            "SET SESSION sql_mode = DEFAULT",
            "SET time_zone = '+02:00'",
            "SET nothing = 1",
        ],
    ),
    (
        "settings: charset of a client",
        &[
            "SET NAMES gbk",
            "SELECT '\u{bf}\\' OR 1=1 -- '",
            "SET CHARACTER SET utf8mb4",
            "SET NAMES nonsense",
        ],
    ),
    (
        "schemas",
        &[
            "SELECT DATABASE()",
            "USE information_schema",
            "SELECT DATABASE()",
            "USE nowhere",
            "SELECT n FROM DB.r ORDER BY n LIMIT 1",
            "USE DB. ",
        ],
    ),
    (
        "locks",
        &[
            "LOCK TABLES r READ, w WRITE",
            "INSERT INTO w VALUES (40, 'a')",
            "INSERT INTO r (s) VALUES ('no')",
            "SELECT count(*) FROM f",
            "DELETE FROM w",
            "UNLOCK TABLES",
            "SELECT n FROM r ORDER BY n LIMIT 1 FOR UPDATE",
            "HANDLER r OPEN",
            "HANDLER r READ FIRST",
            "HANDLER r READ NEXT LIMIT 5",
            "HANDLER r CLOSE",
        ],
    ),
    (
        "prepared by SQL",
        &[
            "PREPARE p FROM 'SELECT n FROM r WHERE n > ? ORDER BY n'",
            "SET @n = 1",
            "EXECUTE p USING @n",
            "EXECUTE p",
            "EXECUTE q",
            "DEALLOCATE PREPARE p",
            "DEALLOCATE PREPARE p",
        ],
    ),
    (
        "looks",
        &[
            "SHOW TABLES LIKE 'r'",
            "SHOW COLUMNS FROM r",
            "DESCRIBE r s",
            "SHOW CREATE TABLE w",
            "SHOW VARIABLES LIKE 'autocommit'",
            "SHOW ERRORS",
            "CHECK TABLE w",
            "CHECKSUM TABLE r",
            "HELP 'nonsense'",
        ],
    ),
    (
        "queries of several kinds",
        &[
            "WITH x AS (SELECT n FROM r) SELECT sum(n) FROM x",
            "SELECT n FROM r UNION ALL SELECT n FROM v ORDER BY 1 LIMIT 4",
            "SELECT s, count(*) FROM r GROUP BY s WITH ROLLUP",
            "SELECT n INTO @into FROM r WHERE n = 1",
            "SELECT n INTO @into FROM r",
            "SELECT @into := n FROM r ORDER BY n",
            "SELECT SQL_CALC_FOUND_ROWS n FROM r LIMIT 1",
            "SELECT FOUND_ROWS()",
            "(SELECT 1) UNION (SELECT 2)",
            "VALUES ROW(1, 2)",
            "TABLE r",
        ],
    ),
    (
        "executable comments",
        &[
            "SELECT 1 /*!40000 + 1 */",
            "SELECT /*!99999 nonsense */ 2",
            "/*!50000 SELECT */ 3",
            "SELECT 1 -- x",
            "SELECT 5--1",
        ],
    ),
    (
        "signals",
        &[
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'of our own', MYSQL_ERRNO = 5001",
            "SIGNAL SQLSTATE '01000'",
            "GET DIAGNOSTICS @n = NUMBER",
            "SELECT @n",
            "RESIGNAL",
        ],
    ),
    (
        "rights",
        &[
            "SET GLOBAL max_connections = 5",
            "SELECT * FROM mysql.user",
            "CREATE DATABASE not_mine",
            "SELECT * FROM mysql.db INTO OUTFILE '/nowhere/x'",
            "FLUSH TABLES",
            "SHUTDOWN",
            "KILL 999999",
        ],
    ),
    (
        "session state",
        &[
            "SET SESSION session_track_schema = ON",
            "SET SESSION session_track_system_variables = '*'",
            "SET SESSION session_track_state_change = ON",
            "SET SESSION session_track_transaction_info = 'CHARACTERISTICS'",
            "SET @tracked = 1",
            "SET autocommit = 0",
            "SELECT count(*) FROM r",
            "INSERT INTO w VALUES (50, 'x')",
            "ROLLBACK",
            "SET autocommit = 1",
            "USE information_schema",
            "BEGIN",
            "SELECT 1",
            "COMMIT",
        ],
    ),
    (
        "json and wide text",
        &[
            "SELECT JSON_OBJECT('a', 1), JSON_EXTRACT('[1,2]', '$[1]')",
            "SELECT REPEAT('x', 250), REPEAT('y', 251), REPEAT('z', 65536)",
        ],
    ),
    ("a wait", &["DO SLEEP(0.01)", "SELECT SLEEP(0), RELEASE_LOCK('no')"]),
];

static MARIADB: &[Script] = &[
    (
        "mariadb: returning",
        &[
            "INSERT INTO w VALUES (60, 'a'), (61, 'b') RETURNING n, s",
            "REPLACE INTO w VALUES (60, 'c') RETURNING s",
            "DELETE FROM w RETURNING n",
            "DELETE FROM w RETURNING nothing",
        ],
    ),
    (
        "mariadb: sequences",
        &[
            "CREATE SEQUENCE q",
            "SELECT NEXTVAL(q), NEXT VALUE FOR q, LASTVAL(q)",
            "SELECT SETVAL(q, 10)",
            "DROP SEQUENCE q",
        ],
    ),
    (
        "mariadb: compound statements",
        &[
            "BEGIN NOT ATOMIC SELECT 1; SELECT 2; END",
            "SET STATEMENT max_statement_time = 10 FOR SELECT 1",
            "EXECUTE IMMEDIATE 'SELECT ?' USING 5",
            "IF 1 THEN SELECT 'yes'; END IF",
            "ANALYZE FORMAT=JSON SELECT nothing",
            "SELECT /*M! 1 + */ 2",
        ],
    ),
    (
        "mariadb: a statement that takes too long",
        &["SET STATEMENT max_statement_time = 0.05 FOR SELECT SLEEP(20)", "SELECT 1"],
    ),
    (
        "mariadb: types of its own",
        &[
            "SELECT CAST('::1' AS INET6), UUID() IS NOT NULL, CAST('a' AS CHAR)",
            "CREATE TEMPORARY TABLE own (i INET6, u UUID, j JSON)",
            "INSERT INTO own VALUES ('::1', '00000000-0000-0000-0000-000000000001', '{}')",
            "SELECT * FROM own",
        ],
    ),
];

static MYSQL: &[Script] = &[
    (
        "mysql: a statement that takes too long",
        &[
            "SELECT /*+ MAX_EXECUTION_TIME(50) */ count(*) FROM information_schema.columns a, \
         information_schema.columns b, information_schema.columns c",
            "SELECT 1",
        ],
    ),
    (
        "mysql: explain and hints",
        &[
            "EXPLAIN FORMAT=TREE SELECT 1",
            "EXPLAIN SELECT nothing",
            "SELECT /*+ SET_VAR(sort_buffer_size = 100000) */ @@sort_buffer_size",
        ],
    ),
    (
        "mysql: with and writes",
        &[
            "INSERT INTO w VALUES (70, 'a')",
            "WITH x AS (SELECT 70 AS n) DELETE FROM w WHERE n IN (SELECT n FROM x)",
            "SELECT * FROM r FOR SHARE NOWAIT",
            "SELECT mysql_query_attribute_string('none')",
        ],
    ),
    (
        "mysql: metadata on request",
        &[
            "SET resultset_metadata = NONE",
            "SELECT n FROM r ORDER BY n",
            "CALL two()",
            "SET resultset_metadata = FULL",
            "SELECT n FROM r ORDER BY n",
        ],
    ),
    ("mysql: gtids", &["SELECT @@gtid_next", "SET gtid_next = 'AUTOMATIC'", "SELECT UUID() = 1"]),
];
