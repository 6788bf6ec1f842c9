// The official TypeScript server, asking: `node asking_server.mjs NODE_MODULES` over stdio, or with `--http PORT`.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Readable } from 'node:stream';

const [modules, ...options] = process.argv.slice(2);
// The packages live in a cache, not beside this file, so they are resolved from there.
const require = createRequire(join(modules, 'anywhere.js'));
const { McpServer, ResourceTemplate, createMcpHandler, inputRequired } = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { z } = require('zod');

const FORM = {
    type: 'object',
    properties: {
        region: { type: 'string', enum: ['eu', 'us'] },
        replicas: { type: 'integer', default: 2, minimum: 1 }
    },
    required: ['region']
};
const user = text => ({ role: 'user', content: { type: 'text', text } });
const QUESTIONS = {
    form: inputRequired.elicit({ message: 'Where?', requestedSchema: FORM }),
    url: inputRequired.elicitUrl({ message: 'Sign in', url: 'https://example.com/sign-in' }),
    model: inputRequired.createMessage({ messages: [user('Name it')], maxTokens: 20 }),
    roots: inputRequired.listRoots()
};
const KEYS = Object.keys(QUESTIONS);
const text = value => ({ content: [{ type: 'text', text: value }] });

// An answer in a few words.
const told = {
    form: ({ action, content }) => (content ? `${content.region}x${content.replicas}` : action),
    url: ({ action }) => action,
    model: ({ content }) => content.text,
    roots: ({ roots }) => roots.map(({ uri }) => uri).join(',')
};

function factory() {
    const server = new McpServer({ name: 'official-typescript', version: '2.4.0' });
    const tool = (name, inputSchema, handler) =>
        server.registerTool(name, { description: name, inputSchema: z.object(inputSchema) }, handler);

    tool('at_once', {}, async (_, { mcpReq }) => {
        const answers = mcpReq.inputResponses;
        if (!answers) return inputRequired({ inputRequests: QUESTIONS, requestState: 'everything' });
        return text([...KEYS.map(key => told[key](answers[key])), mcpReq.requestState()].join('; '));
    });

    tool('one_by_one', {}, async (_, { mcpReq }) => {
        const state = mcpReq.requestState();
        const heard = state ? state.split('; ') : [];
        const answers = mcpReq.inputResponses;
        if (answers) heard.push(told[KEYS[heard.length]](answers[KEYS[heard.length]]));
        if (heard.length === KEYS.length) return text(heard.join('; '));
        const key = KEYS[heard.length];
        const requestState = heard.join('; ') || undefined;
        return inputRequired({ inputRequests: { [key]: QUESTIONS[key] }, requestState });
    });

    tool('waits', {}, async (_, { mcpReq }) => {
        const times = (mcpReq.requestState() ?? '').length;
        return times === 2 ? text('waited') : inputRequired({ requestState: 'x'.repeat(times + 1) });
    });

    tool('count', { to: z.number() }, async ({ to }, { mcpReq }) => {
        const progressToken = mcpReq._meta?.progressToken;
        for (let progress = 1; progressToken !== undefined && progress <= to; progress++) {
            const params = { progressToken, progress, total: to, message: `step ${progress}` };
            await mcpReq.notify({ method: 'notifications/progress', params });
        }
        return text(`counted to ${to}`);
    });

    server.registerTool(
        'add',
        {
            description: 'Add two numbers.',
            inputSchema: z.object({ a: z.number(), b: z.number().default(1) }),
            outputSchema: z.object({ total: z.number() })
        },
        async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { total: a + b } })
    );

    server.registerPrompt('greeting', { description: 'A greeting, for a region.' }, async ({ mcpReq }) => {
        const answers = mcpReq.inputResponses;
        if (!answers) return inputRequired({ inputRequests: { form: QUESTIONS.form } });
        return { messages: [user(`Greet ${told.form(answers.form)}`)] };
    });

    const template = new ResourceTemplate('note://{name}', { list: undefined });
    server.registerResource('note', template, {}, async (uri, { name }, { mcpReq }) => {
        const answers = mcpReq.inputResponses;
        if (!answers) return inputRequired({ inputRequests: { form: QUESTIONS.form }, requestState: 'n' });
        return { contents: [{ uri: uri.href, text: `${name} for ${told.form(answers.form)}` }] };
    });
    return server;
}

// A node request as the web's, and the web's response as node's.
async function serve(handler, request, response) {
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const body = await new Response(Readable.toWeb(request)).text();
    const { method, headers, url } = request;
    const answer = await handler.fetch(
        new Request(`http://${headers.host}${url}`, { method, headers, body: body || undefined, signal: gone.signal })
    );
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) Readable.fromWeb(answer.body).pipe(response);
    else response.end();
}

if (options[0] === '--http') {
    const handler = createMcpHandler(factory);
    createServer((request, response) => serve(handler, request, response)).listen(Number(options[1]), '127.0.0.1');
} else {
    serveStdio(factory);
}
