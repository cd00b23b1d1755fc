// Sessions: creation with and without a stream, results, updates, deletion.

import assert from 'node:assert/strict';

import OpenAI from 'openai';
import { agentOutputFormat } from 'openai/lib/beta/agents/output-format';

import { collect, idleSession, kind, NONE, textOf, untilStatus } from '../client.mjs';

const GREETING = 'Hello from the greeter.';

export async function session_without_a_stream_reaches_idle(client) {
  const created = await client.beta.agents.sessions.create({
    agent: { model: 'greeter' },
    environment: NONE,
    input: [{ role: 'user', content: [{ type: 'input_text', text: 'Hello.' }] }],
    metadata: { order: 'A-1042' },
  });
  assert.equal(created.object, 'agent.session');
  assert.deepEqual(created.environment, { type: 'none' });
  const session = await untilStatus(client, created.id, 'idle');
  assert.deepEqual(session.metadata, { order: 'A-1042' });
  assert.deepEqual(session.required_actions, []);
  const items = await collect(client.beta.agents.sessions.items.list(session.id, { order: 'asc' }));
  assert.deepEqual(items.map(kind), ['user', 'assistant']);
  assert.equal(textOf(items[1]), GREETING);
  assert.equal(items[1].phase, 'final_answer');
}

export async function created_stream_tells_the_turn_in_order(client) {
  const stream = await client.beta.agents.sessions.create({
    agent: { model: 'greeter' },
    environment: NONE,
    input: 'Hello.',
    stream: true,
    stream_options: { include_obfuscation: false },
  });
  const events = await collect(stream);
  const types = events.map((event) => event.type.replace('agent.session.', ''));
  assert.equal(types[0], 'created');
  assert.equal(types.at(-1), 'idle');
  const order = [
    'turn.created',
    'turn.item.added',
    'turn.content_part.added',
    'turn.output_text.delta',
    'turn.output_text.done',
    'turn.content_part.done',
    'turn.item.done',
    'turn.completed',
    'idle',
  ].map((type) => types.indexOf(type));
  assert.ok(!order.includes(-1), String(types));
  assert.deepEqual(order, order.toSorted((a, b) => a - b), String(types));
  assert.equal(new Set(events.map((event) => event.event_id)).size, events.length);
  const deltas = events.filter((event) => event.type.endsWith('output_text.delta'));
  assert.equal(deltas.map((event) => event.delta).join(''), GREETING);
  assert.ok(events.every((event) => !('obfuscation' in event)));
}

export async function created_stream_collects_its_result(client) {
  const stream = await client.beta.agents.sessions.create({
    agent: { model: 'greeter' },
    environment: NONE,
    input: 'Hello.',
    stream: true,
  });
  const result = await stream.finalResult();
  assert.equal(result.output_text, GREETING);
  assert.equal(result.turn.status, 'completed');
  assert.equal((await client.beta.agents.sessions.retrieve(result.session_id)).status, 'idle');
}

export async function result_can_be_collected_while_iterating(client) {
  const stream = await client.beta.agents.sessions.create({
    agent: { model: 'greeter' },
    environment: NONE,
    input: 'Hello.',
    stream: true,
  });
  stream.withResultCollection();
  const events = await collect(stream);
  assert.ok(events.length > 5);
  assert.equal((await stream.finalResult()).output_text, GREETING);
}

export async function structured_output_is_parsed(client) {
  const schema = {
    type: 'object',
    properties: { city: { type: 'string' }, degrees: { type: 'integer' } },
    required: ['city', 'degrees'],
    additionalProperties: false,
  };
  const stream = await client.beta.agents.sessions.create({
    agent: { model: 'weather-report', text: { format: agentOutputFormat(schema, JSON.parse) } },
    environment: NONE,
    input: 'The weather?',
    stream: true,
  });
  const result = await stream.finalResult();
  assert.deepEqual(result.output_parsed, { city: 'Oslo', degrees: 7 });
}

export async function follow_up_turn_is_streamed(client) {
  const session = await idleSession(client);
  const stream = client.beta.agents.sessions.stream(session.id, { input: 'Again.' });
  const result = await stream.finalResult();
  assert.equal(result.output_text, GREETING);
  const turns = await collect(client.beta.agents.sessions.turns.list(session.id, { order: 'asc' }));
  assert.equal(turns.length, 2);
  assert.equal(turns[1].id, result.turn_id);
  assert.deepEqual(
    await client.beta.agents.sessions.turns.retrieve(result.turn_id, { session_id: session.id }),
    turns[1],
  );
}

export async function follow_up_of_a_busy_session_is_refused_by_the_client(client) {
  const created = await client.beta.agents.sessions.create({
    agent: { model: 'slow' },
    environment: NONE,
    input: 'Hello.',
  });
  const stream = client.beta.agents.sessions.stream(created.id, { input: 'Again.' });
  await assert.rejects(collect(stream), /requires an idle session/);
  await untilStatus(client, created.id, 'idle');
}

export async function failed_turn_is_a_result_error(client) {
  const stream = await client.beta.agents.sessions.create({
    agent: { model: 'failing' },
    environment: NONE,
    input: 'Hello.',
    stream: true,
  });
  await assert.rejects(stream.finalResult(), (error) => {
    assert.equal(error.reason, 'failed');
    assert.equal(error.turn.error.code, 'authentication_error');
    return true;
  });
}

export async function session_is_updated(client) {
  const session = await idleSession(client, { metadata: { a: '1' } });
  const updated = await client.beta.agents.sessions.update(session.id, {
    agent: { model: 'weather-report' },
    metadata: { b: '2' },
  });
  assert.equal(updated.agent.model, 'weather-report');
  assert.deepEqual(updated.metadata, { b: '2' });
  assert.deepEqual(await client.beta.agents.sessions.retrieve(session.id), updated);
  const stream = client.beta.agents.sessions.stream(session.id, { input: 'The weather?' });
  assert.match((await stream.finalResult()).output_text, /Oslo/);
}

export async function session_is_deleted_and_its_streams_end(client) {
  const session = await idleSession(client);
  const stream = await client.beta.agents.sessions.events.stream(session.id);
  const deleted = await client.beta.agents.sessions.delete(session.id);
  assert.deepEqual({ ...deleted }, { id: session.id, object: 'agent.session.deleted', deleted: true });
  await collect(stream);
  await assert.rejects(client.beta.agents.sessions.retrieve(session.id), OpenAI.NotFoundError);
}
