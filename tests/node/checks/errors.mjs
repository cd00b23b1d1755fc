// Errors: their classes, their bodies, and that a conflict is not repeated.

import assert from 'node:assert/strict';

import OpenAI from 'openai';

import { connect, idleSession, toolResult, untilStatus, waitingSession } from '../client.mjs';

/** What the promise is rejected with. */
async function rejection(promise, kind) {
  let caught;
  await assert.rejects(promise, (error) => {
    caught = error;
    return true;
  });
  assert.ok(caught instanceof kind, `${caught?.constructor?.name} instead of ${kind.name}: ${caught}`);
  return caught;
}

export async function unknown_session_is_not_found(client) {
  const error = await rejection(client.beta.agents.sessions.retrieve('sess_unknown'), OpenAI.NotFoundError);
  assert.equal(error.status, 404);
  assert.equal(error.code, 'not_found_error');
  assert.ok(error.requestID);
  assert.equal(client.requests.length, 1);
}

export async function unknown_model_is_not_found(client) {
  const body = { agent: { model: 'nobody' }, environment: { type: 'none' }, input: 'Hello.' };
  const error = await rejection(client.beta.agents.sessions.create(body), OpenAI.NotFoundError);
  assert.equal(error.code, 'model_not_found');
}

export async function wrong_key_is_refused() {
  const client = connect({ apiKey: 'wrong' });
  const error = await rejection(client.beta.agents.list(), OpenAI.AuthenticationError);
  assert.equal(error.code, 'unauthorized');
}

export async function wrong_beta_header_is_refused(client) {
  const options = { headers: { 'OpenAI-Beta': 'agents=v0' } };
  const error = await rejection(client.beta.agents.list({}, options), OpenAI.BadRequestError);
  assert.equal(error.code, 'invalid_beta');
}

export async function invalid_body_names_its_field(client) {
  const body = { agent: { model: 'greeter', reasoning: { effort: 'enormous' } }, environment: { type: 'none' }, input: 'x' };
  const error = await rejection(client.beta.agents.sessions.create(body), OpenAI.BadRequestError);
  assert.equal(error.code, 'invalid_request_error');
  assert.match(error.param, /^agent\.reasoning\.effort/);
}

export async function refused_stream_is_an_error_and_no_stream(client) {
  const body = { agent: {}, environment: { type: 'none' }, input: 'Hello.', stream: true };
  const error = await rejection(client.beta.agents.sessions.create(body), OpenAI.BadRequestError);
  assert.match(error.message, /agent\.model is required when agent_id is omitted/);
}

export async function deleting_a_waiting_session_is_a_conflict_and_not_retried(client) {
  const session = await waitingSession(client);
  client.requests.length = 0;
  const error = await rejection(client.beta.agents.sessions.delete(session.id), OpenAI.ConflictError);
  assert.equal(error.code, 'conflict_error');
  assert.equal(error.headers.get('x-should-retry'), 'false');
  assert.equal(client.requests.length, 1);
}

export async function second_different_result_is_a_conflict_and_not_retried(client) {
  const session = await waitingSession(client);
  const [call] = session.required_actions;
  const send = (output) =>
    client.beta.agents.sessions.events.create(session.id, { events: [toolResult(call, output)] });
  await send('{"status": "shipped"}');
  await send('{"status": "shipped"}');
  client.requests.length = 0;
  const error = await rejection(send('{"status": "lost"}'), OpenAI.ConflictError);
  assert.equal(error.code, 'conflict_error');
  assert.equal(client.requests.length, 1);
  await untilStatus(client, session.id, 'idle');
}

export async function result_of_an_unknown_call_is_told_in_the_agreed_words(client) {
  const session = await waitingSession(client);
  const [call] = session.required_actions;
  const unknown = { ...call, call_id: 'call_unknown' };
  const error = await rejection(
    client.beta.agents.sessions.events.create(session.id, { events: [toolResult(unknown, 'x')] }),
    OpenAI.BadRequestError,
  );
  assert.equal(error.code, 'invalid_request_error');
  assert.equal(error.error.message, 'Unknown pending tool call: call_unknown');
}

export async function turn_of_another_session_is_not_found(client) {
  const one = await idleSession(client);
  const other = await waitingSession(client);
  const [{ turn_id }] = other.required_actions;
  await rejection(
    client.beta.agents.sessions.turns.retrieve(turn_id, { session_id: one.id }),
    OpenAI.NotFoundError,
  );
}
