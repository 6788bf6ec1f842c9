// The official TypeScript client of 2025 through a list of conversations; how each went goes to standard output as JSON.
// `node older_client.mjs NODE_MODULES CONVERSATIONS http URL`, or `... stdio COMMAND...`: a JSON file that
// `conversations.py` describes, and where. A command is given the example's name as its last argument.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [modules, file, kind, ...target] = process.argv.slice(2);
// The packages live in a cache, not beside this file, so they are resolved from there.
const require = createRequire(join(modules, 'anywhere.js'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } = require('@modelcontextprotocol/sdk/types.js');

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
    const client = new Client({ name: 'official-typescript-v1', version: '1.0.0' }, { capabilities });
    client.setRequestHandler(ElicitRequestSchema, async ({ params }) => answer(params.mode ?? 'form', params.message));
    client.setRequestHandler(CreateMessageRequestSchema, async ({ params }) => answer('sample', params.messages[0].content.text));
    client.setRequestHandler(ListRootsRequestSchema, async () => answer('roots', 'roots'));
    let revision;
    const transport = wire(site);
    // A transport is told the revision; this client itself does not say what it agreed on.
    const told = transport.setProtocolVersion?.bind(transport);
    transport.setProtocolVersion = version => {
        revision = version;
        told?.(version);
    };
    await client.connect(transport);
    return { client, revision };
};

const clients = {};
const told = {};
for (const { name, site, tool, arguments: args, answers: given } of conversations) {
    const { client, revision } = (clients[site] ??= await connected(site));
    [answers, asked] = [given, []];
    const outcome = await client.callTool({ name: tool, arguments: args }).then(
        ({ content, isError }) => ({ text: content.map(({ text }) => text).join(''), is_error: isError ?? false }),
        error => ({ failed: String(error) })
    );
    told[name] = { revision, ...outcome, asked: asked.sort() };
}
await Promise.all(Object.values(clients).map(({ client }) => client.close()));
console.log(JSON.stringify(told));
