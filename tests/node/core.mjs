// Runs every check with the official client against the server of PERDURE_URL (key: PERDURE_API_KEY)
// and prints a JSON report: {"sdk", "node", "checks": [{"name", "ok", "milliseconds", "error"}]}.
// Names given as arguments select checks. The server needs the models of test_node.py.

import process from 'node:process';
import { VERSION } from 'openai/version';

import * as agents from './checks/agents.mjs';
import * as errors from './checks/errors.mjs';
import * as lists from './checks/lists.mjs';
import * as sessions from './checks/sessions.mjs';
import * as streams from './checks/streams.mjs';
import * as tools from './checks/tools.mjs';
import { connect } from './client.mjs';

const CHECK_TIMEOUT = 20_000;

const checks = Object.entries({ ...agents, ...sessions, ...tools, ...streams, ...lists, ...errors });
const wanted = process.argv.slice(2);

async function run(name, check) {
  const began = performance.now();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${CHECK_TIMEOUT} ms`)), CHECK_TIMEOUT);
  });
  let error = null;
  try {
    await Promise.race([check(connect()), late]);
  } catch (thrown) {
    error = thrown instanceof Error ? thrown.stack : String(thrown);
  } finally {
    clearTimeout(timer);
  }
  return { name, ok: error === null, milliseconds: Math.round(performance.now() - began), error };
}

const report = { sdk: VERSION, node: process.version, checks: [] };
for (const [name, check] of checks) {
  if (wanted.length === 0 || wanted.includes(name)) {
    report.checks.push(await run(name, check));
  }
}
process.stdout.write(`${JSON.stringify(report, null, 2)}\n`, () => {
  process.exit(report.checks.every((check) => check.ok) ? 0 : 1);
});
