// What the Node.js driver scripts share. They are run in the two ways that steps.py describes.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const readline = require('node:readline');

// The statement that stands still until it is cancelled, and how another session sees that it does.
const SLEEP = 'SELECT pg_sleep(600)';
const ASLEEP =
  "SELECT count(*)::int AS n FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'";
const BIG = 1_000_000;

// The server's certificate is checked against the tests' own authority.
function tls() {
  const mode = process.env.PGSSLMODE;
  return mode === 'disable' ? false : { ca: fs.readFileSync(process.env.PGSSLROOTCERT) };
}

async function rejects(code, action) {
  try {
    await (typeof action === 'function' ? action() : action);
  } catch (error) {
    assert.equal(error.code, code, `another error: ${error}`);
    return error;
  }
  throw new assert.AssertionError({ message: `no error came, ${code} was expected` });
}

async function until(condition, seconds = 60) {
  const deadline = Date.now() + seconds * 1000;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, "a condition didn't become true");
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

let lines;
// Says where the script stands, and waits for the caller's line.
async function tell(words) {
  lines ??= readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  console.log(String(words));
  assert.ok(!(await lines.next()).done, 'the caller is gone');
}

function run(ways) {
  ways[process.argv[2]]().then(
    () => { console.log('ok'); process.exit(0); },
    (error) => { console.error(error); process.exit(1); },
  );
}

module.exports = { SLEEP, ASLEEP, BIG, tls, rejects, until, tell, run };
