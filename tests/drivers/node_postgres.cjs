// node-postgres (pg): simple and extended protocol, named statements, a pool, COPY streams.
'use strict';

const assert = require('node:assert/strict');
const { pipeline } = require('node:stream/promises');
const { Readable } = require('node:stream');
const { Client, Pool, DatabaseError } = require('pg');
const { from: copyFrom, to: copyTo } = require('pg-copy-streams');
const { SLEEP, ASLEEP, BIG, tls, rejects, until, tell, run } = require('./steps.cjs');

async function connect() {
  const client = new Client({ ssl: tls() });
  await client.connect();
  return client;
}

async function one(client, text, values) {
  const { rows } = await client.query({ text, values, rowMode: 'array' });
  return rows[0][0];
}

async function values(client) {
  await client.query('CREATE TABLE v (n int PRIMARY KEY, t text, b bytea, j jsonb, a int[])');
  const row = [1, "it's \\ \u{1f418}", Buffer.from([0, 255, 39]), { a: [1, null] }, [1, null, 3]];
  await client.query('INSERT INTO v VALUES ($1, $2, $3, $4, $5)', row);
  const text = 'SELECT * FROM v WHERE n = $1';
  const { rows } = await client.query({ text, values: [1], rowMode: 'array' });
  assert.deepEqual(rows, [row]);
  const wide = 'w'.repeat(BIG);
  await client.query('INSERT INTO v (n, t) VALUES ($1, $2)', [0, wide]);
  assert.equal(await one(client, 'SELECT t FROM v WHERE n = 0'), wide);
  const both = await client.query("SELECT 1 AS a; SELECT 'x' AS b");
  assert.deepEqual(both.map((r) => r.rows), [[{ a: 1 }], [{ b: 'x' }]]);
}

async function transactions(client) {
  await client.query('BEGIN');
  await client.query('INSERT INTO v (n) VALUES (-1)');
  await client.query('ROLLBACK');
  await client.query('BEGIN');
  await client.query('INSERT INTO v (n) VALUES ($1)', [-2]);
  const error = await rejects('23505', client.query('INSERT INTO v (n) VALUES ($1)', [-2]));
  assert.ok(error instanceof DatabaseError && error.table === 'v');
  await rejects('25P02', client.query('SELECT 1'));
  await client.query('COMMIT');
  assert.equal(await one(client, 'SELECT count(*)::int FROM v WHERE n < 0'), 0);
}

async function prepared(client) {
  for (let n = 0; n < 20; n += 1) {
    const twice = { name: 'twice', text: 'SELECT $1::int * 2 AS n', values: [n] };
    assert.equal((await client.query(twice)).rows[0].n, 2 * n);
  }
  await rejects('42P01', client.query({ name: 'bad', text: 'SELECT * FROM no_such' }));
  const many = Array.from({ length: 50 }, (_, n) => one(client, 'SELECT $1::int', [n]));
  assert.deepEqual(await Promise.all(many), Array.from({ length: 50 }, (_, n) => n));
}

async function copies(client) {
  const lines = Array.from({ length: 2000 }, (_, n) => `${n + 1000}\tline ${n}\n`);
  await pipeline(Readable.from(lines), client.query(copyFrom('COPY v (n, t) FROM STDIN')));
  const text = 'COPY (SELECT n, t FROM v WHERE n >= 1000 ORDER BY n) TO STDOUT';
  let got = '';
  for await (const chunk of client.query(copyTo(text))) got += chunk;
  assert.equal(got, lines.join(''));
  const broken = () =>
    pipeline(Readable.from(['not a number\tx\n']), client.query(copyFrom('COPY v (n, t) FROM STDIN')));
  await rejects('22P02', broken);
  assert.equal(await one(client, 'SELECT 1'), 1);
}

async function notifications(client) {
  const heard = new Promise((hear) => client.once('notification', hear));
  await client.query('LISTEN news');
  const other = await connect();
  await other.query("SELECT pg_notify('news', $1)", ['hello']);
  assert.equal((await heard).payload, 'hello');
  await other.end();
}

// The driver's own cancel request: a second client that knows the first one's key.
async function cancellation(client) {
  const other = await connect();
  const sleeping = rejects('57014', client.query(SLEEP));
  await until(async () => (await one(other, ASLEEP, [client.processID])) === 1);
  const pid = client.processID;
  const request = new Client({ ssl: false });
  const { connection } = request;
  connection.connect(request.port, request.host);
  connection.once('connect', () => connection.cancel(pid, client.secretKey));
  await sleeping;
  connection.end();
  assert.equal(await one(client, 'SELECT 1'), 1);
  await other.end();
}

async function pools() {
  const pool = new Pool({ ssl: tls(), max: 3 });
  const many = Array.from({ length: 50 }, (_, n) => one(pool, 'SELECT $1::int', [n]));
  assert.equal((await Promise.all(many)).length, 50);
  await pool.end();
}

async function work() {
  const client = await connect();
  const parts = [values, transactions, prepared, copies, notifications, cancellation, pools];
  for (const part of parts) await part(client);
  await client.end();
}

async function refused(action) {
  const error = await rejects('ZF001', action);
  assert.ok(error instanceof DatabaseError, `not the driver's own error: ${error}`);
  assert.equal(error.severity, 'ERROR');
  return 1;
}

async function fence() {
  const client = await connect();
  const pool = new Pool({ ssl: tls(), max: 2 });
  await client.query('CREATE TABLE f (n int)');
  const insert = (n) => ({ name: 'ins', text: 'INSERT INTO f VALUES ($1)', values: [n] });
  await client.query(insert(1));
  await pool.query('SELECT 1');
  await tell('ready');
  let tries = await refused(client.query('INSERT INTO f VALUES (2)'));
  tries += await refused(client.query('INSERT INTO f VALUES ($1)', [3]));
  tries += await refused(client.query(insert(4)));
  const copy = () => pipeline(Readable.from(['5\n']), client.query(copyFrom('COPY f FROM STDIN')));
  tries += await refused(copy);
  await client.query('BEGIN');
  assert.equal(await one(client, 'SELECT count(*)::int FROM f'), 1);
  tries += await refused(client.query('UPDATE f SET n = $1', [6]));
  await client.query('ROLLBACK');
  for (const reader of [client, pool, await connect()]) {
    assert.equal(await one(reader, 'SELECT sum(n)::int FROM f WHERE n > $1', [0]), 1);
  }
  tries += await refused(pool.query('DELETE FROM f'));
  await tell(tries);
  await client.query(insert(7));
  await pool.query('INSERT INTO f VALUES ($1)', [8]);
  await client.query('BEGIN');
  await client.query('UPDATE f SET n = n + 1');
  await client.query('COMMIT');
  assert.equal(await one(client, 'SELECT sum(n)::int FROM f'), 19);
  assert.equal(await one(client, 'SELECT pg_backend_pid()'), client.processID);
  await pool.end();
  await client.end();
}

run({ work, fence });
