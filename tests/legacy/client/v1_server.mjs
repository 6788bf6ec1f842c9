// A server of the official TypeScript SDK v1, which knows only the older revisions and asks by pushing:
// `node v1_server.mjs NODE_MODULES` over stdio, or with `--http PORT`.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [modules, ...options] = process.argv.slice(2);
// The packages live in a cache, not beside this file, so they are resolved from there.
const require = createRequire(join(modules, 'anywhere.js'));
const { McpServer } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const types = require('@modelcontextprotocol/sdk/types.js');
const { z } = require('zod');

const text = value => ({ content: [{ type: 'text', text: String(value) }] });
const moment = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));
const FORM = {
    type: 'object',
    properties: {
        region: { type: 'string', enum: ['eu', 'us'] },
        replicas: { type: 'integer', default: 2, minimum: 1 }
    },
    required: ['region']
};
const user = said => ({ role: 'user', content: { type: 'text', text: said } });

let aborted = 0;
let signedIn = false;
const sessions = new Map();

function makeServer() {
    const server = new McpServer(
        { name: 'typescript-v1', version: '1.32.2' },
        { capabilities: { logging: {}, tools: { listChanged: true }, resources: { subscribe: true } }, instructions: 'Ask.' }
    );
    const tool = (name, inputSchema, handler) => server.registerTool(name, { description: name, inputSchema }, handler);
    const form = extra =>
        extra.sendRequest(
            { method: 'elicitation/create', params: { mode: 'form', message: 'Where?', requestedSchema: FORM } },
            types.ElicitResultSchema
        );
    const model = extra =>
        extra.sendRequest(
            { method: 'sampling/createMessage', params: { messages: [user('Name it')], maxTokens: 20 } },
            types.CreateMessageResultSchema
        );

    tool('add', { a: z.number(), b: z.number() }, async ({ a, b }) => text(a + b));

    tool('one_by_one', {}, async (_, extra) => {
        const { action, content } = await form(extra);
        if (action !== 'accept') return text(action);
        const url = await extra.sendRequest(
            {
                method: 'elicitation/create',
                params: { mode: 'url', message: 'Sign in', url: 'https://example.com/in', elicitationId: '1' }
            },
            types.ElicitResultSchema
        );
        const made = await model(extra);
        const { roots } = await extra.sendRequest({ method: 'roots/list' }, types.ListRootsResultSchema);
        return text([`${content.region}x${content.replicas}`, url.action, made.content.text, roots[0].uri].join('; '));
    });

    tool('at_once', {}, async (_, extra) => {
        const [{ content }, made] = await Promise.all([form(extra), model(extra)]);
        return text(`${content.region} ${made.content.text}`);
    });

    tool('ask', {}, async (_, extra) => {
        try {
            return text((await form(extra)).action);
        } catch (error) {
            return text(`${error.code} ${error.message}`);
        }
    });

    tool('count', { to: z.number() }, async ({ to }, { _meta, sendNotification }) => {
        for (let step = 1; step <= to; step += 1) {
            const params = { progressToken: _meta.progressToken, progress: step, total: to };
            await sendNotification({ method: 'notifications/progress', params });
        }
        await server.sendLoggingMessage({ level: 'warning', data: `counted to ${to}` });
        return text(to);
    });

    tool('hang', {}, async (_, { signal }) => {
        await new Promise(resolve => signal.addEventListener('abort', resolve));
        aborted += 1;
        return text('never heard');
    });

    tool('aborted', {}, async () => text(aborted));

    tool('protected', {}, async () => {
        if (signedIn) return text('signed in');
        const elicitationId = randomUUID();
        setTimeout(() => {
            signedIn = true;
            server.server.createElicitationCompletionNotifier(elicitationId)();
        }, 60);
        const params = { mode: 'url', message: 'Sign in', url: 'https://example.com/in', elicitationId };
        throw new types.UrlElicitationRequiredError([params], 'Sign in first');
    });

    tool('polled', {}, async (_, extra) => {
        extra.closeSSEStream?.();
        await moment(30);
        return text('taken up again');
    });

    tool('change', {}, async () => {
        server.sendToolListChanged();
        await server.server.sendResourceUpdated({ uri: 'note://1' });
        return text('changed');
    });

    tool('forget', {}, async () => {
        setTimeout(() => sessions.clear(), 10);
        return text('forgotten');
    });

    server.registerResource('note', 'note://1', {}, async uri => ({ contents: [{ uri: uri.href, text: 'one' }] }));
    const watched = new Set();
    server.server.setRequestHandler(types.SubscribeRequestSchema, async ({ params }) => (watched.add(params.uri), {}));
    server.server.setRequestHandler(types.UnsubscribeRequestSchema, async ({ params }) => (watched.delete(params.uri), {}));
    tool('watched', {}, async () => text([...watched].join(' ')));
    return server;
}

// Every event that a session was sent, in order; ids name the stream they belong to.
function makeStore() {
    const events = [];
    return {
        async storeEvent(stream, message) {
            events.push({ stream, message });
            return `${stream}#${events.length - 1}`;
        },
        async replayEventsAfter(last, { send }) {
            const [stream, at] = last.split('#');
            for (let index = Number(at) + 1; index < events.length; index += 1) {
                const { stream: owner, message } = events[index];
                if (owner === stream && Object.keys(message).length) await send(`${stream}#${index}`, message);
            }
            return stream;
        }
    };
}

async function serve(request, response) {
    const id = request.headers['mcp-session-id'];
    let transport = sessions.get(id);
    if (!transport) {
        if (id) return response.writeHead(404).end();
        transport = new StreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            eventStore: makeStore(),
            retryInterval: 50,
            onsessioninitialized: made => sessions.set(made, transport)
        });
        await makeServer().connect(transport);
    }
    await transport.handleRequest(request, response);
}

const port = options[options.indexOf('--http') + 1];
if (options.includes('--http')) createServer(serve).listen(Number(port), '127.0.0.1');
else await makeServer().connect(new StdioServerTransport());
