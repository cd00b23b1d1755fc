// Session streams: what a subscriber hears, and input sent beside it.

import assert from 'node:assert/strict';

import {
  collect,
  collectUntil,
  idleSession,
  kind,
  LOOKUP_ORDER,
  message,
  NONE,
  untilStatus,
  waitingSession,
} from '../client.mjs';

export async function idle_session_says_so_first(client) {
  const session = await idleSession(client);
  const stream = await client.beta.agents.sessions.events.stream(session.id);
  const events = await collectUntil(stream, 'agent.session.idle');
  assert.equal(events.length, 1);
  assert.deepEqual(events[0].session, session);
}

export async function subscriber_hears_a_turn_that_another_starts(client) {
  const session = await idleSession(client);
  const stream = await client.beta.agents.sessions.events.stream(session.id, { include_obfuscation: false }, {});
  await client.beta.agents.sessions.events.create(session.id, { events: [message('Again.')] });
  const events = [];
  for await (const event of stream) {
    events.push(event);
    if (event.type === 'agent.session.idle' && events.length > 1) {
      break;
    }
  }
  const added = events.filter((event) => event.type === 'agent.session.turn.item.added');
  assert.deepEqual(added.map((event) => kind(event.item)), ['user', 'assistant']);
  assert.equal(events.filter((event) => event.type === 'agent.session.turn.completed').length, 1);
  assert.ok(events.every((event) => !('obfuscation' in event)));
}

export async function waiting_session_repeats_its_call(client) {
  const session = await waitingSession(client);
  const [call] = session.required_actions;
  const stream = await client.beta.agents.sessions.events.stream(session.id);
  const events = await collectUntil(stream, 'agent.session.requires_action');
  const calls = events.filter((event) => event.item?.type === 'function_call');
  assert.deepEqual(calls.map((event) => event.item.call_id), [call.call_id]);
  assert.deepEqual(events.at(-1).session.required_actions, session.required_actions);
}

export async function breaking_off_does_not_stop_the_turn(client) {
  const stream = await client.beta.agents.sessions.create({
    agent: { model: 'slow' },
    environment: NONE,
    input: 'Hello.',
    stream: true,
  });
  let sessionID;
  for await (const event of stream) {
    sessionID ??= event.session?.id;
    if (event.type.endsWith('output_text.delta')) {
      break;
    }
  }
  await untilStatus(client, sessionID, 'idle');
  const [turn] = await collect(client.beta.agents.sessions.turns.list(sessionID));
  assert.equal(turn.status, 'completed');
}

export async function same_idempotency_key_adds_one_message(client) {
  const session = await idleSession(client);
  for (let attempt = 0; attempt < 2; attempt += 1) {
    await client.beta.agents.sessions.events.create(session.id, {
      events: [message('Only once.')],
      'Idempotency-Key': `key-of-${session.id}`,
    });
  }
  await untilStatus(client, session.id, 'idle');
  const items = await collect(client.beta.agents.sessions.items.list(session.id));
  assert.deepEqual(items.filter((item) => kind(item) === 'user').length, 2);
}

export async function cancel_ends_a_waiting_turn(client) {
  const session = await waitingSession(client);
  await client.beta.agents.sessions.events.create(session.id, {
    events: [{ type: 'agent.session.input.cancel' }],
  });
  const idle = await untilStatus(client, session.id, 'idle');
  assert.deepEqual(idle.required_actions, []);
  const [turn] = await collect(client.beta.agents.sessions.turns.list(session.id));
  assert.equal(turn.status, 'cancelled');
  assert.equal(turn.error, null);
}

export async function cancel_ends_a_created_stream(client) {
  const stream = await client.beta.agents.sessions.create({
    agent: { model: 'scripted', tools: [LOOKUP_ORDER] },
    environment: NONE,
    input: 'Where is A-1042?',
    stream: true,
  });
  stream.withResultCollection();
  const events = [];
  for await (const event of stream) {
    events.push(event.type);
    if (event.type === 'agent.session.requires_action') {
      await client.beta.agents.sessions.events.create(event.session.id, {
        events: [{ type: 'agent.session.input.cancel' }],
      });
    }
  }
  assert.deepEqual(events.slice(-2), ['agent.session.turn.cancelled', 'agent.session.idle']);
  await assert.rejects(stream.finalResult(), (error) => error.reason === 'cancelled');
}
