// A client that counts its HTTP requests, and what the checks say in common.

import process from 'node:process';

import OpenAI from 'openai';

export const NONE = { type: 'none' };

export const LOOKUP_ORDER = {
  type: 'function',
  name: 'lookup_order',
  description: 'Look up the status of an order.',
  parameters: {
    type: 'object',
    properties: { order_id: { type: 'string', pattern: '^[A-Z]-\\d{4}$' } },
    required: ['order_id'],
    additionalProperties: false,
  },
};

/** The official client; `client.requests` holds "METHOD path status" of every request it has made. */
export function connect(options = {}) {
  const requests = [];
  const client = new OpenAI({
    baseURL: `${process.env.PERDURE_URL}/v1`,
    apiKey: process.env.PERDURE_API_KEY,
    timeout: 15_000,
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      requests.push(`${init?.method ?? 'GET'} ${new URL(url).pathname} ${response.status}`.toUpperCase());
      return response;
    },
    ...options,
  });
  return Object.assign(client, { requests });
}

/** A session whose first turn has been answered by the model `greeter`. */
export async function idleSession(client, fields = {}) {
  const { agent, ...rest } = fields;
  const stream = await client.beta.agents.sessions.create({
    agent: { model: 'greeter', ...agent },
    environment: NONE,
    input: 'Hello.',
    stream: true,
    ...rest,
  });
  const result = await stream.finalResult();
  return client.beta.agents.sessions.retrieve(result.session_id);
}

/** A session that waits for the result of one call of lookup_order. */
export async function waitingSession(client) {
  const created = await client.beta.agents.sessions.create({
    agent: { model: 'scripted', tools: [LOOKUP_ORDER] },
    environment: NONE,
    input: 'Where is A-1042?',
  });
  return untilStatus(client, created.id, 'requires_action');
}

/** The session, once it has the status. */
export async function untilStatus(client, sessionID, status) {
  for (;;) {
    const session = await client.beta.agents.sessions.retrieve(sessionID);
    if (session.status === status) {
      return session;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export function message(text) {
  return {
    type: 'agent.session.input.message',
    input: [{ role: 'user', content: [{ type: 'input_text', text }] }],
  };
}

export function toolResult(call, output) {
  return {
    type: 'agent.session.input.tool_result',
    turn_id: call.turn_id,
    call_id: call.call_id,
    success: true,
    output,
  };
}

/** Everything an async iterable yields. */
export async function collect(iterable) {
  const collected = [];
  for await (const entry of iterable) {
    collected.push(entry);
  }
  return collected;
}

/** The events of a stream up to and including the first of a type; the connection is closed behind it. */
export async function collectUntil(stream, type) {
  const events = [];
  for await (const event of stream) {
    events.push(event);
    if (event.type === type) {
      return events;
    }
  }
  throw new Error(`the stream ended before ${type}; seen: ${events.map((event) => event.type)}`);
}

export function textOf(item) {
  return item.content.map((part) => part.text).join('');
}

/** An item in one word: user, assistant, or its type. */
export function kind(item) {
  return item.type === 'message' ? item.role : item.type;
}
