// Lists: order, filters, and pages that the client turns by itself.

import assert from 'node:assert/strict';

import { collect, idleSession } from '../client.mjs';

async function talkativeSession(client) {
  const session = await idleSession(client);
  for (const input of ['Two.', 'Three.']) {
    await client.beta.agents.sessions.stream(session.id, { input }).finalResult();
  }
  return session;
}

function ids(entries) {
  return entries.map((entry) => entry.id);
}

export async function items_are_paged(client) {
  const { id } = await talkativeSession(client);
  const whole = await client.beta.agents.sessions.items.list(id, { order: 'asc', limit: 100 });
  assert.equal(whole.data.length, 6);
  assert.equal(whole.has_more, false);
  const page = await client.beta.agents.sessions.items.list(id, { order: 'asc', limit: 4 });
  assert.equal(page.has_more, true);
  assert.ok(page.hasNextPage());
  const rest = await page.getNextPage();
  assert.deepEqual(ids([...page.data, ...rest.data]), ids(whole.data));
  for (const limit of [1, 2, 3]) {
    const paged = await collect(client.beta.agents.sessions.items.list(id, { order: 'asc', limit }));
    assert.deepEqual(ids(paged), ids(whole.data));
  }
  const backwards = await collect(client.beta.agents.sessions.items.list(id, { limit: 2 }));
  assert.deepEqual(ids(backwards), ids(whole.data).reverse());
}

export async function items_of_a_turn_are_paged(client) {
  const { id } = await talkativeSession(client);
  const turns = await collect(client.beta.agents.sessions.turns.list(id, { order: 'asc', limit: 1 }));
  assert.equal(turns.length, 3);
  const found = [];
  for (const turn of turns) {
    const query = { session_id: id, order: 'asc', limit: 1 };
    const items = await collect(client.beta.agents.sessions.turns.items.list(turn.id, query));
    assert.ok(items.every((item) => item.turn_id === turn.id));
    found.push(...items);
  }
  assert.deepEqual(ids(found), ids(await collect(client.beta.agents.sessions.items.list(id, { order: 'asc' }))));
}

export async function sessions_are_filtered(client) {
  const mark = `mark-${Date.now()}-${Math.random()}`;
  const agent = await client.beta.agents.create({ model: 'greeter' });
  const wanted = [];
  for (let count = 0; count < 3; count += 1) {
    const fields = { agent_id: agent.id, metadata: { mark, count: String(count) } };
    wanted.unshift((await idleSession(client, fields)).id);
  }
  await idleSession(client, { metadata: { mark: 'another' } });
  assert.deepEqual(ids(await collect(client.beta.agents.sessions.list({ metadata: { mark }, limit: 1 }))), wanted);
  assert.deepEqual(ids(await collect(client.beta.agents.sessions.list({ agent_id: agent.id, limit: 2 }))), wanted);
  const both = await collect(client.beta.agents.sessions.list({ metadata: { mark, count: '1' } }));
  assert.deepEqual(ids(both), [wanted[1]]);
}
