// The official TypeScript client through a list of conversations; how each went goes to standard output as JSON.
// `node asking_client.mjs NODE_MODULES CONVERSATIONS http URL`, or `... stdio COMMAND...`: a JSON file that
// `conversations.py` describes, and where. A command is given the example's name as its last argument.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [modules, file, kind, ...target] = process.argv.slice(2);
// The packages live in a cache, not beside this file, so they are resolved from there.
const require = createRequire(join(modules, 'anywhere.js'));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const conversations = JSON.parse(readFileSync(file, 'utf8'));
const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

// Answers what the conversation under way says, and remembers what was asked.
let answers, asked;
const answer = (kind, text) => {
    asked.push([kind, text]);
    if (!(text in answers)) throw new Error(`no answer to ${kind}: ${text}`);
    return answers[text];
};

const wire = site => {
    if (kind === 'http') return new StreamableHTTPClientTransport(new URL(`${target[0]}/${site}/mcp`));
    return new StdioClientTransport({ command: target[0], args: [...target.slice(1), site] });
};

const connected = async site => {
    const client = new Client(
        { name: 'official-typescript', version: '1.0.0' },
        { capabilities, versionNegotiation: { mode: 'auto' } }
    );
    client.setRequestHandler('elicitation/create', async ({ params }) => answer(params.mode ?? 'form', params.message));
    client.setRequestHandler('sampling/createMessage', async ({ params }) => answer('sample', params.messages[0].content.text));
    client.setRequestHandler('roots/list', async () => answer('roots', 'roots'));
    await client.connect(wire(site));
    return client;
};

const clients = {};
const told = {};
for (const { name, site, tool, arguments: args, answers: given } of conversations) {
    const client = (clients[site] ??= await connected(site));
    [answers, asked] = [given, []];
    const outcome = await client.callTool({ name: tool, arguments: args }).then(
        ({ content, isError }) => ({ text: content.map(({ text }) => text).join(''), is_error: isError ?? false }),
        error => ({ failed: String(error) })
    );
    told[name] = { revision: client.getNegotiatedProtocolVersion(), ...outcome, asked: asked.sort() };
}
await Promise.all(Object.values(clients).map(client => client.close()));
console.log(JSON.stringify(told));
