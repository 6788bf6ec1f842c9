// A library on mcp-lite, which speaks the older era: `node mcp_lite.mjs NODE_MODULES [PORT]`, over HTTP.
import { createServer } from 'node:http';
import { join, resolve } from 'node:path';
import { Readable } from 'node:stream';
import { pathToFileURL } from 'node:url';

// The packages live in a cache, not beside this file.
const load = path => import(pathToFileURL(join(resolve(process.argv[2]), path)));
const { InMemoryClientRequestAdapter, InMemorySessionAdapter, McpServer, StreamableHttpTransport } =
    await load('mcp-lite/dist/index.js');
const { z } = await load('zod/index.js');

const text = value => ({ content: [{ type: 'text', text: value }] });
const library = new McpServer({
    name: 'library',
    version: '1.0.0',
    // Zod's own mark on what it made would have mcp-lite take it for one of Zod's schemas: only the JSON is wanted.
    schemaAdapter: schema => JSON.parse(JSON.stringify(z.toJSONSchema(schema)))
});

library.tool('lend', {
    description: 'Lend a book. Asks for how long, and asks again where that is long.',
    inputSchema: z.object({ title: z.string() }),
    handler: async ({ title }, ctx) => {
        const term = await ctx.elicit({
            message: `How many weeks for ${title}?`,
            schema: z.object({ weeks: z.number().int().min(1).max(8), remind: z.boolean().default(true) })
        });
        if (term.action !== 'accept') return text(`${title} stays here`);
        const { weeks } = term.content;
        if (weeks > 4) {
            const sure = await ctx.elicit({ message: 'That is long. Sure?', schema: z.object({ sure: z.boolean() }) });
            if (sure.action !== 'accept' || !sure.content.sure) return text(`${title} stays here`);
        }
        return text(`Lent ${title} for ${weeks} weeks`);
    }
});

library.tool('recommend', {
    description: 'Ask a model for a book.',
    inputSchema: z.object({ mood: z.string() }),
    handler: async ({ mood }, ctx) => {
        const said = await ctx.sample({ prompt: `One book for a ${mood} evening`, maxTokens: 30 });
        return text(`Read ${said.content.text}`);
    }
});

library.tool('shelf', {
    description: 'Where a book stands.',
    inputSchema: z.object({ title: z.string() }),
    outputSchema: z.object({ shelf: z.number() }),
    handler: async ({ title }) => ({ ...text(`{"shelf":${title.length}}`), structuredContent: { shelf: title.length } })
});

const serve = new StreamableHttpTransport({
    sessionAdapter: new InMemorySessionAdapter({ maxEventBufferSize: 1024 }),
    clientRequestAdapter: new InMemoryClientRequestAdapter({ defaultTimeoutMs: 30000 })
}).bind(library);

// A node request as the web's, and the web's response as node's.
const http = createServer(async (request, response) => {
    const { method, headers, url } = request;
    const body = await new Response(Readable.toWeb(request)).text();
    const answer = await serve(new Request(`http://${headers.host}${url}`, { method, headers, body: body || undefined }));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) Readable.fromWeb(answer.body).pipe(response);
    else response.end();
});
http.listen(Number(process.argv[3] ?? 3001), '127.0.0.1', () => {
    console.log(`http://127.0.0.1:${http.address().port}/mcp`);
});
