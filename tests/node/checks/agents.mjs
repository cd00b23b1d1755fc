// Saved agents.

import assert from 'node:assert/strict';

import OpenAI from 'openai';

import { collect, LOOKUP_ORDER, NONE } from '../client.mjs';

export async function agent_is_created_and_retrieved(client) {
  const created = await client.beta.agents.create({
    model: 'greeter',
    name: 'desk',
    instructions: 'Be brief.',
    metadata: { team: 'orders' },
    tools: [LOOKUP_ORDER],
  });
  assert.equal(created.object, 'agent');
  assert.equal(created.name, 'desk');
  assert.equal(created.service_tier, 'auto');
  assert.deepEqual(created.metadata, { team: 'orders' });
  assert.deepEqual(created.tools[0].parameters, LOOKUP_ORDER.parameters);
  assert.deepEqual(await client.beta.agents.retrieve(created.id), created);
}

export async function agent_is_updated(client) {
  const created = await client.beta.agents.create({ model: 'greeter', name: 'before', metadata: { a: '1' } });
  const updated = await client.beta.agents.update(created.id, { name: null, instructions: 'New.' });
  assert.equal(updated.name, null);
  assert.equal(updated.instructions, 'New.');
  assert.deepEqual(updated.metadata, { a: '1' });
  assert.deepEqual(await client.beta.agents.retrieve(created.id), updated);
}

export async function agents_are_listed_newest_first(client) {
  const first = await client.beta.agents.create({ model: 'greeter' });
  const second = await client.beta.agents.create({ model: 'greeter' });
  const page = await client.beta.agents.list({ limit: 2 });
  assert.deepEqual(page.data.map((agent) => agent.id), [second.id, first.id]);
  const all = await collect(client.beta.agents.list({ limit: 1 }));
  assert.deepEqual(all.slice(0, 2).map((agent) => agent.id), [second.id, first.id]);
}

export async function agent_is_deleted(client) {
  const created = await client.beta.agents.create({ model: 'greeter' });
  const deleted = await client.beta.agents.delete(created.id);
  assert.deepEqual({ ...deleted }, { id: created.id, object: 'agent.deleted', deleted: true });
  await assert.rejects(client.beta.agents.retrieve(created.id), OpenAI.NotFoundError);
}

export async function session_copies_its_saved_agent(client) {
  const agent = await client.beta.agents.create({ model: 'greeter', name: 'desk', instructions: 'Be brief.' });
  const session = await client.beta.agents.sessions.create({
    agent_id: agent.id,
    agent: { instructions: 'Be long.' },
    environment: NONE,
    input: 'Hello.',
  });
  assert.equal(session.agent.id, agent.id);
  assert.equal(session.agent.name, 'desk');
  assert.equal(session.agent.instructions, 'Be long.');
  assert.equal((await client.beta.agents.retrieve(agent.id)).instructions, 'Be brief.');
}
