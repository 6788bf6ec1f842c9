// The official TypeScript server with sessions for clients of 2025-11-25: `node typescript_sessions.mjs NODE_MODULES --port N`.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [modules, , port] = process.argv.slice(2);
const require = createRequire(join(modules, 'anywhere.js'));
const { McpServer } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { z } = require('zod');

function factory() {
    const server = new McpServer({ name: 'bench', version: '1.0.0' });
    server.registerTool('echo', { description: 'Return the text.', inputSchema: { text: z.string() } }, ({ text }) => ({
        content: [{ type: 'text', text }]
    }));
    return server;
}

const transports = {};
createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    let transport = transports[request.headers['mcp-session-id']];
    if (!transport) {
        const onsessioninitialized = id => (transports[id] = transport);
        const options = { sessionIdGenerator: randomUUID, enableJsonResponse: true, onsessioninitialized };
        transport = new StreamableHTTPServerTransport(options);
        await factory().connect(transport);
    }
    await transport.handleRequest(request, response, body ? JSON.parse(body) : undefined);
}).listen(Number(port), '127.0.0.1');
