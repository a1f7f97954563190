// postgres.js: pipelines everything, prepares by itself, a pool under every call.
'use strict';

const assert = require('node:assert/strict');
const { pipeline } = require('node:stream/promises');
const { Readable } = require('node:stream');
const postgres = require('postgres');
const { SLEEP, BIG, tls, rejects, until, tell, run } = require('./steps.cjs');

const quiet = { onnotice: () => {} };
const connect = (options = {}) => postgres({ ssl: tls(), max: 1, ...quiet, ...options });

async function values(sql) {
  await sql`CREATE TABLE v (n int PRIMARY KEY, t text, b bytea, j jsonb, a int[])`;
  const row = { n: 1, t: "it's \\ \u{1f418}", b: Buffer.from([0, 255, 39]), j: { a: [1, null] },
    a: [1, 3] };
  await sql`INSERT INTO v ${sql({ ...row, j: sql.json(row.j) })}`;
  assert.deepEqual([...await sql`SELECT * FROM v WHERE n = ${1}`], [row]);
  const more = Array.from({ length: 400 }, (_, n) => ({ n: n + 2, t: 'x' }));
  await sql`INSERT INTO v ${sql(more, 'n', 't')}`;
  const wide = 'w'.repeat(BIG);
  await sql`INSERT INTO v (n, t) VALUES (0, ${wide})`;
  assert.equal((await sql`SELECT t FROM v WHERE n = 0`)[0].t, wide);
  const both = await sql`SELECT 1 AS a; SELECT 'x' AS b`.simple();
  assert.deepEqual(both.map((rows) => [...rows]), [[{ a: 1 }], [{ b: 'x' }]]);
}

async function transactions(sql) {
  const undone = sql.begin(async (tx) => {
    await tx`INSERT INTO v (n) VALUES (-1)`;
    throw Object.assign(new Error('undone'), { code: 'STOP' });
  });
  await rejects('STOP', undone);
  await sql.begin(async (tx) => {
    await tx`INSERT INTO v (n) VALUES (-2)`;
    const twice = tx.savepoint((inner) => inner`INSERT INTO v (n) VALUES (${-2})`);
    const error = await rejects('23505', twice);
    assert.ok(error instanceof postgres.PostgresError && error.table_name === 'v');
  });
  // Pipelined behind BEGIN: the driver sends all of it at once.
  const [, got] = await sql.begin((tx) => [
    tx`INSERT INTO v (n) VALUES (-3)`,
    tx`SELECT count(*)::int AS n FROM v WHERE n < 0`,
  ]);
  assert.equal(got[0].n, 2);
  await rejects('22012', sql`SELECT 1 / ${0}::int`);
  assert.equal((await sql`SELECT 1 AS n`)[0].n, 1);
}

async function prepared(sql) {
  const many = Array.from({ length: 300 }, (_, n) => sql`SELECT ${n}::int * 2 AS n`);
  const got = (await Promise.all(many)).map((rows) => rows[0].n);
  assert.deepEqual(got, Array.from({ length: 300 }, (_, n) => 2 * n));
  // Some of what is in flight fails; each answer still finds its question.
  const mixed = Array.from({ length: 60 }, (_, n) =>
    n % 3 === 0 ? sql`SELECT 1 / ${0}::int AS n` : sql`SELECT ${n}::int AS n`);
  const settled = await Promise.allSettled(mixed);
  settled.forEach((one, n) => {
    if (n % 3 === 0) assert.equal(one.reason?.code, '22012');
    else assert.equal(one.value?.[0].n, n);
  });
  let sum = 0;
  await sql`SELECT generate_series(1, 500) AS n`.cursor(50, (rows) => {
    for (const row of rows) sum += row.n;
  });
  assert.equal(sum, 125250);
}

async function copies(sql) {
  const lines = Array.from({ length: 2000 }, (_, n) => `${n + 1000}\tline ${n}\n`);
  await pipeline(Readable.from(lines), await sql`COPY v (n, t) FROM STDIN`.writable());
  // On a connection of its own: behind a COPY it was slow to take, this driver (3.4) may leave its
  // socket paused, without a proxy too.
  const own = connect();
  const out = await own`COPY (SELECT n, t FROM v WHERE n >= 1000 ORDER BY n) TO STDOUT`.readable();
  let got = '';
  for await (const chunk of out) got += chunk;
  assert.equal(got, lines.join(''));
  await own.end({ timeout: 1 });
}

async function notifications(sql) {
  let hear;
  const heard = new Promise((wake) => { hear = wake; });
  await sql.listen('news', hear);
  await sql.notify('news', 'hello');
  assert.equal(await heard, 'hello');
}

async function cancellation(sql) {
  const other = connect();
  const [{ pid }] = await sql`SELECT pg_backend_pid() AS pid`;
  const query = sql.unsafe(SLEEP);
  const sleeping = rejects('57014', query);
  await until(async () => {
    const [row] = await other`SELECT wait_event AS on FROM pg_stat_activity WHERE pid = ${pid}`;
    return row.on === 'PgSleep';
  });
  query.cancel();
  await sleeping;
  assert.equal((await sql`SELECT 1 AS n`)[0].n, 1);
  await other.end();
}

async function work() {
  const sql = connect();
  const parts = { values, transactions, prepared, copies, notifications, cancellation };
  for (const [name, part] of Object.entries(parts)) {
    console.error(name); // Shown when the script fails.
    await part(sql);
  }
  await sql.end();
}

async function refused(action) {
  const error = await rejects('ZF001', action);
  assert.ok(error instanceof postgres.PostgresError, `not the driver's own error: ${error}`);
  return 1;
}

async function fence() {
  const sql = connect();
  await sql`CREATE TABLE f (n int)`;
  const insert = (n) => sql`INSERT INTO f VALUES (${n})`;
  await insert(1);
  const [{ pid }] = await sql`SELECT pg_backend_pid() AS pid`;
  await tell('ready');
  let tries = await refused(sql`INSERT INTO f VALUES (2)`);
  tries += await refused(insert(3));
  tries += await refused(sql.unsafe('DELETE FROM f'));
  tries += await refused(sql.begin(async (tx) => {
    assert.equal((await tx`SELECT count(*)::int AS n FROM f`)[0].n, 1);
    await tx`UPDATE f SET n = ${6}`;
  }));
  // Writes and reads in flight together: the reads come back, each write is refused by itself.
  const mixed = Array.from({ length: 20 }, (_, n) =>
    n % 2 === 0 ? refused(insert(n)) : sql`SELECT ${n}::int AS n`);
  const got = await Promise.all(mixed);
  got.forEach((one, n) => (n % 2 === 0 ? (tries += one) : assert.equal(one[0].n, n)));
  const fresh = connect();
  for (const reader of [sql, fresh]) {
    assert.equal((await reader`SELECT sum(n)::int AS n FROM f WHERE n > ${0}`)[0].n, 1);
  }
  await tell(tries);
  await insert(7);
  await sql.begin((tx) => tx`UPDATE f SET n = n + ${1}`);
  assert.equal((await sql`SELECT sum(n)::int AS n FROM f`)[0].n, 10);
  assert.equal((await sql`SELECT pg_backend_pid() AS pid`)[0].pid, pid);
  await fresh.end();
  await sql.end();
}

run({ work, fence });
