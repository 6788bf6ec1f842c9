// A server in mcp-lite, with sessions: `node lite_server.mjs NODE_MODULES --http PORT`.
import { createServer } from 'node:http';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pathToFileURL } from 'node:url';

const [modules, , port] = process.argv.slice(2);
const { InMemoryClientRequestAdapter, InMemorySessionAdapter, McpServer, StreamableHttpTransport } = await import(
    pathToFileURL(join(modules, 'mcp-lite/dist/index.js'))
);

const server = new McpServer({ name: 'lite', version: '1.0.0' });
const FORM = { type: 'object', properties: { region: { type: 'string' } }, required: ['region'] };
const text = value => ({ content: [{ type: 'text', text: value }] });
server.tool('where', {
    description: 'Ask where.',
    inputSchema: { type: 'object', properties: {} },
    handler: async (_, ctx) => {
        const answer = await ctx.elicit({ message: 'Where?', schema: FORM });
        return text(`${answer.action} ${answer.content?.region}`);
    }
});
server.tool('echo', {
    description: 'Say it again.',
    inputSchema: { type: 'object', properties: { said: { type: 'string' } }, required: ['said'] },
    handler: ({ said }) => text(said)
});

const transport = new StreamableHttpTransport({
    sessionAdapter: new InMemorySessionAdapter({ maxEventBufferSize: 100 }),
    clientRequestAdapter: new InMemoryClientRequestAdapter({ defaultTimeoutMs: 30000 })
});
const handle = transport.bind(server);
createServer(async (request, response) => {
    const body = await new Response(Readable.toWeb(request)).text();
    const { method, headers, url } = request;
    const answer = await handle(new Request(`http://${headers.host}${url}`, { method, headers, body: body || undefined }));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) Readable.fromWeb(answer.body).pipe(response);
    else response.end();
}).listen(Number(port), '127.0.0.1');
