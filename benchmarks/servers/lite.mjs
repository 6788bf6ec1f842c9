// mcp-lite: `node lite.mjs NODE_MODULES --port N [--mode sessions]`.
import { createServer } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, , port, , mode] = process.argv.slice(2);
const load = path => import(pathToFileURL(join(modules, path)));
const { InMemoryClientRequestAdapter, InMemorySessionAdapter, McpServer, StreamableHttpTransport } =
    await load('mcp-lite/dist/index.js');
const { getRequestListener } = await load('@hono/node-server/dist/index.mjs');

const server = new McpServer({ name: 'bench', version: '1.0.0' });
server.tool('echo', {
    description: 'Return the text.',
    inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
    handler: ({ text }) => ({ content: [{ type: 'text', text }] })
});
const sessions = {
    sessionAdapter: new InMemorySessionAdapter({ maxEventBufferSize: 100 }),
    clientRequestAdapter: new InMemoryClientRequestAdapter({ defaultTimeoutMs: 30000 })
};
const handle = new StreamableHttpTransport(mode === 'sessions' ? sessions : {}).bind(server);
createServer(getRequestListener(handle)).listen(Number(port), '127.0.0.1');
