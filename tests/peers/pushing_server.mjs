// The official TypeScript server of 2025, asking in the middle of its calls: `node pushing_server.mjs NODE_MODULES [--http PORT]`.
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
const { CreateMessageResultSchema, ElicitResultSchema, ListRootsResultSchema } = require('@modelcontextprotocol/sdk/types.js');

const FORM = {
    type: 'object',
    properties: { region: { type: 'string', enum: ['eu', 'us'] }, replicas: { type: 'integer', default: 2 } },
    required: ['region']
};

function factory() {
    const server = new McpServer({ name: 'pushing-typescript', version: '1.32.2' });
    server.registerTool('one_by_one', { description: 'Ask everything.' }, async extra => {
        const ask = (method, params, schema) => extra.sendRequest({ method, params }, schema);
        const { content } = await ask('elicitation/create', { message: 'Where?', requestedSchema: FORM }, ElicitResultSchema);
        const url = { mode: 'url', message: 'Sign in', url: 'https://example.com/sign-in', elicitationId: '1' };
        const visit = await ask('elicitation/create', url, ElicitResultSchema);
        const messages = [{ role: 'user', content: { type: 'text', text: 'Name it' } }];
        const name = await ask('sampling/createMessage', { messages, maxTokens: 20 }, CreateMessageResultSchema);
        const { roots } = await ask('roots/list', {}, ListRootsResultSchema);
        const told = [`${content.region}x${content.replicas}`, visit.action, name.content.text, roots[0].uri];
        return { content: [{ type: 'text', text: told.join('; ') }] };
    });
    return server;
}

if (options[0] === '--http') {
    const transports = {};
    const answer = async (request, response) => {
        let body = '';
        for await (const chunk of request) body += chunk;
        let transport = transports[request.headers['mcp-session-id']];
        if (!transport) {
            const onsessioninitialized = id => (transports[id] = transport);
            transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
            await factory().connect(transport);
        }
        await transport.handleRequest(request, response, body ? JSON.parse(body) : undefined);
    };
    createServer(answer).listen(Number(options[1]), '127.0.0.1');
} else {
    await factory().connect(new StdioServerTransport());
}
