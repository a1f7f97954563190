"""asyncpg: the extended protocol in binary, prepared statements under names, a pool that resets."""

import asyncio
import datetime
import decimal
import uuid

import asyncpg
from asyncpg import exceptions as errors
from steps import ASLEEP, BIG, SLEEP, run, tell


async def raises(kind, awaited):
    try:
        await awaited
    except kind as error:
        return error
    raise AssertionError(f"{kind} was expected")


async def values(conn):
    await conn.execute(
        "CREATE TABLE v (n int PRIMARY KEY, t text, b bytea, d numeric, a int[], "
        "at timestamptz, u uuid, j jsonb)")
    at = datetime.datetime(2026, 2, 28, 23, 59, 59, 999999, tzinfo=datetime.timezone.utc)
    row = (1, "it's \U0001f418", b"\x00\xff", decimal.Decimal("123456789.123456789"),
           [1, None, 3], at, uuid.UUID(int=2**127 + 1), '{"a": [1, null]}')
    await conn.execute("INSERT INTO v VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", *row)
    assert tuple(await conn.fetchrow("SELECT * FROM v WHERE n = $1", 1)) == row
    await conn.executemany("INSERT INTO v (n, t) VALUES ($1, $2)", [(n, "x") for n in range(2, 500)])
    assert await conn.fetchval("SELECT count(*) FROM v") == 499
    wide = "w" * BIG
    await conn.execute("INSERT INTO v (n, t) VALUES (0, $1)", wide)
    assert await conn.fetchval("SELECT t FROM v WHERE n = 0") == wide
    # A type of the user's own makes the driver look into the catalog.
    await conn.execute("CREATE TYPE mood AS ENUM ('calm', 'fine')")
    assert await conn.fetchval("SELECT ARRAY[$1::mood]", "fine") == ["fine"]


async def transactions(conn):
    class Stop(Exception):
        pass

    async def undone():
        async with conn.transaction():
            await conn.execute("INSERT INTO v (n) VALUES (-1)")
            raise Stop

    await raises(Stop, undone())
    async with conn.transaction():
        await conn.execute("INSERT INTO v (n) VALUES (-2)")

        async def nested():
            async with conn.transaction():
                await conn.execute("INSERT INTO v (n) VALUES (-2)")

        error = await raises(errors.UniqueViolationError, nested())
        assert error.sqlstate == "23505" and error.table_name == "v"
        assert await conn.fetchval("SELECT count(*) FROM v WHERE n < 0") == 1
        rows = [row[0] async for row in conn.cursor("SELECT generate_series(1, 500)", prefetch=50)]
        assert sum(rows) == 125250
    await conn.execute("DELETE FROM v WHERE n < 0")
    await raises(errors.DivisionByZeroError, conn.fetchval("SELECT 1 / $1::int", 0))
    assert await conn.fetchval("SELECT 1") == 1


async def prepared(conn):
    twice = await conn.prepare("SELECT $1::int * 2")
    for n in range(50):
        assert await twice.fetchval(n) == 2 * n
    await raises(errors.UndefinedTableError, conn.prepare("SELECT * FROM no_such"))
    assert await twice.fetchval(21) == 42


async def copies(conn):
    records = [(n, f"line {n}") for n in range(1000, 3000)]
    done = await conn.copy_records_to_table("v", records=records, columns=["n", "t"])
    assert done == "COPY 2000"
    taken = bytearray()

    async def take(data):
        taken.extend(data)

    await conn.copy_from_query("SELECT n, t FROM v WHERE n >= 1000 ORDER BY n", output=take)
    assert bytes(taken) == "".join(f"{n}\t{t}\n" for n, t in records).encode()
    again = conn.copy_records_to_table("v", records=records, columns=["n", "t"])
    await raises(errors.UniqueViolationError, again)
    assert await conn.fetchval("SELECT 1") == 1


async def notifications(conn):
    heard = asyncio.get_running_loop().create_future()
    await conn.add_listener("news", lambda *note: heard.set_result(note[3]))
    other = await asyncpg.connect()
    await other.execute("SELECT pg_notify('news', 'hello')")
    assert await asyncio.wait_for(heard, 60) == "hello"
    await other.close()


async def cancellation(conn):
    other = await asyncpg.connect()
    pid = conn.get_server_pid()
    sleeping = asyncio.ensure_future(conn.execute(SLEEP))
    for _ in range(3000):
        if await other.fetchval(ASLEEP.format(pid)):
            break
        await asyncio.sleep(0.02)
    sleeping.cancel()
    await raises(asyncio.CancelledError, sleeping)
    assert await asyncio.wait_for(conn.fetchval("SELECT 1"), 60) == 1
    await raises(asyncio.TimeoutError, conn.execute(SLEEP, timeout=0.05))
    assert await asyncio.wait_for(conn.fetchval("SELECT 2"), 60) == 2
    await other.close()


async def pools():
    async with asyncpg.create_pool(min_size=1, max_size=3) as pool:
        async def sleep(n):
            async with pool.acquire() as conn:
                return await conn.fetchval("SELECT $1::int", n)

        assert await asyncio.gather(*(sleep(n) for n in range(50))) == list(range(50))


async def working():
    conn = await asyncpg.connect()
    for part in (values, transactions, prepared, copies, notifications, cancellation):
        await part(conn)
    await pools()
    await conn.close()


async def refused(awaited):
    error = await raises(asyncpg.PostgresError, awaited)
    assert error.sqlstate == "ZF001", (error.sqlstate, str(error))
    return 1


async def in_block(conn):
    async with conn.transaction():
        assert await conn.fetchval("SELECT count(*) FROM f") == 1
        await conn.execute("UPDATE f SET n = 5")


async def fencing():
    pool = await asyncpg.create_pool(min_size=1, max_size=2)
    conn = await asyncpg.connect()
    await conn.execute("CREATE TABLE f (n int)")
    insert = await conn.prepare("INSERT INTO f VALUES ($1)")
    await insert.fetch(1)
    tell("ready")
    tries = await refused(conn.execute("INSERT INTO f VALUES (2)"))
    tries += await refused(conn.execute("INSERT INTO f VALUES ($1)", 2))
    tries += await refused(insert.fetch(3))
    tries += await refused(conn.executemany("INSERT INTO f VALUES ($1)", [(3,), (4,)]))
    tries += await refused(conn.copy_records_to_table("f", records=[(4,)]))
    tries += await refused(in_block(conn))
    assert await conn.fetchval("SELECT sum(n) FROM f") == 1
    # Each release resets the pool's connection; the second connection is made under the fence.
    for _ in range(3):
        async with pool.acquire() as first, pool.acquire() as second:
            for pooled in (first, second):
                assert await pooled.fetchval("SELECT sum(n) FROM f WHERE n > $1", 0) == 1
            tries += await refused(second.execute("INSERT INTO f VALUES (9)"))
    tell(tries)
    await insert.fetch(6)
    async with conn.transaction():
        await conn.execute("INSERT INTO f VALUES ($1)", 7)
    async with pool.acquire() as first, pool.acquire() as second:
        await first.execute("INSERT INTO f VALUES (8)")
        await second.execute("INSERT INTO f VALUES (9)")
    assert await conn.fetchval("SELECT sum(n) FROM f") == 31
    assert await conn.fetchval("SELECT pg_backend_pid()") == conn.get_server_pid()
    await pool.close()
    await conn.close()


run(lambda: asyncio.run(working()), lambda: asyncio.run(fencing()))
