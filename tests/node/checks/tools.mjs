// Function tools: by the client's helpers and by hand.

import assert from 'node:assert/strict';

import { standardResponsesFunction } from 'openai/helpers/standard-schema';
import { functionTool } from 'openai/lib/beta/agents/function-tool';

import { collect, idleSession, kind, LOOKUP_ORDER, NONE, toolResult, untilStatus, waitingSession } from '../client.mjs';

const SHIPPED = { status: 'shipped' };

async function ask(client, input, toolHandlers, agent = {}) {
  const stream = await client.beta.agents.sessions.create({
    agent: { model: 'scripted', tools: [LOOKUP_ORDER], ...agent },
    environment: NONE,
    input,
    stream: true,
    toolHandlers,
  });
  return stream.finalResult();
}

export async function handlers_run_while_a_session_is_created(client) {
  const seen = [];
  const result = await ask(client, 'Where is A-1042?', {
    lookup_order: (arguments_) => {
      seen.push(arguments_);
      return SHIPPED;
    },
  });
  assert.deepEqual(seen, [{ order_id: 'A-1042' }]);
  assert.match(result.output_text, /A-1042.*shipped/);
  const items = await collect(client.beta.agents.sessions.items.list(result.session_id, { order: 'asc' }));
  assert.deepEqual(items.map(kind), ['user', 'assistant', 'function_call', 'function_call_output', 'assistant']);
  const [, commentary, call, output] = items;
  assert.equal(commentary.phase, 'commentary');
  assert.equal(output.call_id, call.call_id);
  assert.equal(output.output, JSON.stringify(SHIPPED));
  assert.ok(items.every((item) => item.turn_id === result.turn_id && item.status === 'completed'));
}

export async function handlers_run_in_a_follow_up_turn(client) {
  const session = await idleSession(client, { agent: { tools: [LOOKUP_ORDER] } });
  await client.beta.agents.sessions.update(session.id, { agent: { model: 'scripted' } });
  const stream = client.beta.agents.sessions.stream(session.id, {
    input: 'Where is B-2077?',
    toolHandlers: { lookup_order: async () => SHIPPED },
  });
  assert.match((await stream.finalResult()).output_text, /B-2077.*shipped/);
}

export async function parallel_calls_are_answered_one_by_one(client) {
  const seen = [];
  const result = await ask(
    client,
    'Both of them.',
    {
      lookup_order: ({ order_id }) => {
        seen.push(order_id);
        return `${order_id} is shipped`;
      },
    },
    { model: 'parallel' },
  );
  assert.deepEqual(seen, ['A-1042', 'B-2077']);
  assert.equal(result.output_text, 'Both are in.');
}

export async function failing_handler_is_a_failed_result(client) {
  const result = await ask(client, 'Where is A-1042?', {
    lookup_order: () => {
      throw new Error('a secret of the application');
    },
  });
  assert.match(result.output_text, /Tool handler failed\./);
  const items = await collect(client.beta.agents.sessions.items.list(result.session_id));
  const output = items.find((item) => item.type === 'function_call_output');
  assert.equal(output.status, 'failed');
  assert.equal(output.error, 'Tool handler failed.');
}

export async function bad_arguments_never_reach_the_handler(client) {
  const seen = [];
  const result = await ask(client, 'Show me a bad argument.', {
    lookup_order: ({ order_id }) => {
      seen.push(order_id);
      return { order_id, ...SHIPPED };
    },
  });
  assert.deepEqual(seen, ['A-1042']);
  assert.match(result.output_text, /shipped/);
  const items = await collect(client.beta.agents.sessions.items.list(result.session_id, { order: 'asc' }));
  const outputs = items.filter((item) => item.type === 'function_call_output');
  assert.deepEqual(outputs.map((item) => item.status), ['failed', 'completed']);
  assert.match(outputs[0].error, /order_id/);
}

export async function validating_function_tool_works(client) {
  const tool = functionTool(
    standardResponsesFunction({
      name: 'lookup_order',
      description: 'Look up an order.',
      parameters: {
        '~standard': {
          version: 1,
          vendor: 'check',
          validate: (value) =>
            typeof value?.order_id === 'string' ? { value } : { issues: [{ message: 'order_id is no text' }] },
          jsonSchema: { input: () => LOOKUP_ORDER.parameters },
        },
      },
      function: ({ order_id }) => ({ order_id, ...SHIPPED }),
    }),
  );
  const result = await ask(client, 'Where is A-1042?', { [tool.name]: tool.handler }, { tools: [tool.definition] });
  assert.match(result.output_text, /A-1042.*shipped/);
}

export async function result_of_content_parts_is_kept(client) {
  const session = await waitingSession(client);
  const [call] = session.required_actions;
  const parts = [
    { type: 'input_text', text: '{"status": "shipped"}' },
    { type: 'input_image', image_url: 'data:image/png;base64,AA==' },
  ];
  await client.beta.agents.sessions.events.create(session.id, { events: [toolResult(call, parts)] });
  await untilStatus(client, session.id, 'idle');
  const items = await collect(client.beta.agents.sessions.items.list(session.id));
  assert.deepEqual(items.find((item) => item.type === 'function_call_output').output, parts);
}

export async function call_is_answered_by_hand(client) {
  const session = await waitingSession(client);
  assert.equal(session.required_actions.length, 1);
  const [call] = session.required_actions;
  assert.deepEqual(
    { type: call.type, name: call.name, arguments: call.arguments },
    { type: 'function_call', name: 'lookup_order', arguments: { order_id: 'A-1042' } },
  );
  const turn = await client.beta.agents.sessions.turns.retrieve(call.turn_id, { session_id: session.id });
  assert.equal(turn.status, 'waiting');
  await client.beta.agents.sessions.events.create(session.id, {
    events: [toolResult(call, JSON.stringify(SHIPPED))],
  });
  const idle = await untilStatus(client, session.id, 'idle');
  assert.deepEqual(idle.required_actions, []);
}

export async function unregistered_call_is_left_to_the_application(client) {
  const stream = await client.beta.agents.sessions.create({
    agent: { model: 'scripted', tools: [LOOKUP_ORDER] },
    environment: NONE,
    input: 'Where is A-1042?',
    stream: true,
    toolHandlers: { another_tool: () => 'never' },
  });
  await assert.rejects(stream.finalResult(), (error) => {
    assert.equal(error.reason, 'requires_action');
    assert.equal(error.required_actions[0].name, 'lookup_order');
    return true;
  });
}
