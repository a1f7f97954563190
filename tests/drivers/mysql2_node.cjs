// mysql2: text protocol (query), binary protocol (execute), a pool, LOAD DATA LOCAL from a stream.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const { Readable } = require('node:stream');
const mysql = require('mysql2/promise');
const { until, tell, run, BIG } = require('./steps.cjs');

const ca = process.env.FENCEWIRE_MY_CA;
const where = {
  host: '127.0.0.1',
  port: Number(process.env.FENCEWIRE_MY_PORT),
  user: 'app',
  password: 'app',
  database: process.env.FENCEWIRE_MY_DB,
  charset: 'utf8mb4',
  ssl: ca ? { ca: fs.readFileSync(ca), rejectUnauthorized: true } : undefined,
};
const SLEEP = 'SELECT count(*) FROM v WHERE n = 1 AND SLEEP(600) = 0';
const ASLEEP =
  "SELECT count(*) AS n FROM information_schema.processlist WHERE id = ? AND state = 'User sleep'";

const connect = (more) => mysql.createConnection({ ...where, ...more });

async function one(client, sql, values) {
  const [rows] = await client.query({ sql, values, rowsAsArray: true });
  return rows[0][0];
}

// MySQL fails (3854) while anybody on the server runs a statement whose bytes its list can't show:
// then nothing is known yet.
async function asleep(client, thread) {
  try {
    return (await one(client, ASLEEP, [thread])) === 1;
  } catch (error) {
    assert.equal(error.errno, 3854);
    return false;
  }
}

async function fails(errno, action) {
  try {
    await (typeof action === 'function' ? action() : action);
  } catch (error) {
    assert.equal(error.errno, errno, `another error: ${error}`);
    return error;
  }
  throw new assert.AssertionError({ message: `no error came, ${errno} was expected` });
}

async function values(client) {
  await client.query(`CREATE TABLE v (n int PRIMARY KEY, t longtext, b longblob, d decimal(20, 4),
    at datetime(3), f double) DEFAULT CHARSET utf8mb4`);
  const at = new Date('2026-12-01T02:03:04.567Z');
  const row = [1, "it's \\ \"\u{1f42c}\"", Buffer.from([0, 255, 39, 92]), '7.1250', at, 0.1];
  await client.query('INSERT INTO v VALUES (?, ?, ?, ?, ?, ?)', row);
  await client.execute('INSERT INTO v VALUES (?, ?, ?, ?, ?, ?)', [2, ...row.slice(1)]);
  for (const ask of ['query', 'execute']) {
    const [rows] = await client[ask]({
      sql: 'SELECT * FROM v WHERE n < ? ORDER BY n', values: [3], rowsAsArray: true });
    assert.deepEqual(rows, [row, [2, ...row.slice(1)]]);
  }
  const more = Array.from({ length: 497 }, (_, n) => [n + 3, 'x']);
  const [inserted] = await client.query('INSERT INTO v (n, t) VALUES ?', [more]);
  assert.equal(inserted.affectedRows, 497);
  const wide = 'w'.repeat(BIG);
  await client.execute('INSERT INTO v (n, t) VALUES (?, ?)', [0, wide]);
  assert.equal(await one(client, 'SELECT t FROM v WHERE n = 0'), wide);
}

async function transactions(client) {
  await client.beginTransaction();
  await client.query('INSERT INTO v (n) VALUES (-1)');
  await client.rollback();
  await client.beginTransaction();
  await client.execute('INSERT INTO v (n) VALUES (?)', [-2]);
  const error = await fails(1062, client.execute('INSERT INTO v (n) VALUES (?)', [-2]));
  assert.equal(error.sqlState, '23000');
  await client.commit();
  assert.equal(await one(client, 'SELECT min(n) FROM v'), -2);
  await client.query('DELETE FROM v WHERE n < 0');
}

async function prepared(client) {
  const twice = await client.prepare('SELECT ? * 2 AS n');
  for (let n = 0; n < 20; n += 1) {
    const [rows] = await twice.execute([n]);
    assert.equal(Number(rows[0].n), 2 * n);
  }
  await twice.close();
  await fails(1146, client.execute('SELECT * FROM no_such'));
  // Many at once: the driver queues them on one connection.
  const many = Array.from({ length: 50 }, (_, n) => one(client, 'SELECT ?', [n]));
  assert.deepEqual(await Promise.all(many), Array.from({ length: 50 }, (_, n) => n));
}

async function several() {
  const client = await connect({ multipleStatements: true });
  const [got] = await client.query({
    sql: "SELECT 1; UPDATE v SET f = 2 WHERE n = 1; SELECT 'three', 3", rowsAsArray: true });
  assert.deepEqual([got[0], got[1].affectedRows, got[2]], [[[1]], 1, [['three', 3]]]);
  await fails(1054, client.query('SELECT 1; SELECT nothing FROM v; SELECT 3'));
  await client.query(`CREATE PROCEDURE twice(IN n int)
    BEGIN SELECT n; SELECT 'second', n * 2; END`);
  const [both] = await client.query({ sql: 'CALL twice(21)', rowsAsArray: true });
  assert.deepEqual(both.slice(0, 2), [[[21]], [['second', 42]]]);
  await client.end();
}

async function loads(client) {
  const lines = Array.from({ length: 2000 }, (_, n) => `${n + 1000}\tline ${n + 1000}\n`);
  const [loaded] = await client.query({
    sql: "LOAD DATA LOCAL INFILE 'rows' INTO TABLE v (n, t)",
    infileStreamFactory: () => Readable.from(lines.map((line) => Buffer.from(line))),
  });
  assert.equal(loaded.affectedRows, 2000);
  let count = 0;
  const stream = client.connection.query('SELECT n FROM v WHERE n >= 1000').stream();
  for await (const row of stream) { assert.ok(row.n >= 1000); count += 1; }
  assert.equal(count, 2000);
}

async function sessions(client) {
  await client.ping();
  await client.query('SET @mine = 7');
  await client.changeUser({ database: where.database });
  assert.equal(await one(client, 'SELECT @mine'), null);
  await client.query('USE information_schema');
  assert.equal(await one(client, 'SELECT DATABASE()'), 'information_schema');
  await client.changeUser({ database: where.database });
  const pool = mysql.createPool({ ...where, connectionLimit: 2 });
  await Promise.all(Array.from({ length: 20 }, (_, n) => pool.query('SELECT ? AS n', [n])));
  await pool.end();
}

async function cancellation(client) {
  const other = await connect();
  const sleeping = fails(1317, client.query(SLEEP));
  await until(() => asleep(other, client.threadId));
  await other.query(`KILL QUERY ${client.threadId}`);
  await sleeping;
  assert.equal(await one(client, 'SELECT CONNECTION_ID()'), client.threadId);
  await other.end();
}

async function work() {
  const client = await connect();
  await values(client);
  await transactions(client);
  await prepared(client);
  await several();
  await loads(client);
  await sessions(client);
  await cancellation(client);
  await client.end();
}

async function refused(action) {
  const error = await fails(9701, action);
  assert.equal(error.sqlState, 'ZF001');
  return 1;
}

// 1205, as long as there is no fence.
async function lockWait(client) {
  const block = await connect();
  await client.query('CREATE TABLE w (n int)');
  await client.query('INSERT INTO w VALUES (1)');
  await block.beginTransaction();
  await block.query('SELECT n FROM w FOR UPDATE');
  await client.query('SET SESSION innodb_lock_wait_timeout = 1');
  await fails(1205, client.query('UPDATE w SET n = 2'));
  await block.rollback();
  await block.end();
}

// Under a fence everything else that fails does so under its own number.
async function otherErrors(client) {
  await fails(1045, () => connect({ password: 'wrong' }));
  const missing = await connect({ database: 'no_such_database' }).catch((error) => error);
  assert.ok([1044, 1049].includes(missing.errno), `another error: ${missing}`);
  const killed = await connect();
  killed.on('error', () => {});
  await client.query(`KILL ${killed.threadId}`);
  const gone = await one(killed, 'SELECT 1').catch((error) => error);
  assert.ok(gone instanceof Error, 'an answer from a killed session');
  assert.ok(gone.errno === undefined || gone.errno < 0, `an error of a server: ${gone.errno}`);
}

async function fence() {
  const client = await connect();
  await lockWait(client);
  const pool = mysql.createPool({ ...where, connectionLimit: 1 });
  await client.query('CREATE TABLE f (n int)');
  const insert = await client.prepare('INSERT INTO f VALUES (?)');
  await insert.execute([1]);
  const pooled = await one(pool, 'SELECT CONNECTION_ID()');
  await tell('ready');
  await otherErrors(client);
  let tries = await refused(client.query('INSERT INTO f VALUES (2)'));
  tries += await refused(insert.execute([3]));
  tries += await refused(client.execute('INSERT INTO f VALUES (?)', [4]));
  await client.beginTransaction();
  assert.equal(await one(client, 'SELECT count(*) FROM f'), 1);
  tries += await refused(client.query('UPDATE f SET n = 5'));
  assert.equal(await one(client, 'SELECT count(*) FROM f'), 1);
  await client.rollback();
  for (const reader of [client, pool, await connect()]) {
    assert.equal(Number(await one(reader, 'SELECT sum(n) FROM f')), 1);
  }
  tries += await refused(pool.query('DELETE FROM f'));
  // The pool has kept its connection.
  assert.equal(await one(pool, 'SELECT CONNECTION_ID()'), pooled);
  await tell(tries);
  await insert.execute([7]);
  await pool.query('INSERT INTO f VALUES (8)');
  await client.beginTransaction();
  await client.query('UPDATE f SET n = n + 1');
  await client.commit();
  assert.equal(Number(await one(client, 'SELECT sum(n) FROM f')), 19);
  assert.equal(await one(client, 'SELECT CONNECTION_ID()'), client.threadId);
  await pool.end();
  await client.end();
}

run({ work, fence });
