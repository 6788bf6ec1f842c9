// The official TypeScript server of 2026-07-28: `node typescript.mjs NODE_MODULES --port N | --stdio`.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, ...options] = process.argv.slice(2);
// The packages live in a cache, not beside this file, so they are resolved from there.
const require = createRequire(join(modules, 'anywhere.js'));
const { McpServer, createMcpHandler, createRequestStateCodec, inputRequired } = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { z } = require('zod');

const codec = createRequestStateCodec({ key: 'k'.repeat(32) });
const text = value => ({ content: [{ type: 'text', text: value }] });
const form = (key, type) => ({ type: 'object', properties: { [key]: { type } }, required: [key] });
const SCHEMAS = {
    echo: z.object({ text: z.string() }),
    deploy: z.object({ env: z.string() }),
    length: z.object({ text: z.string() }),
    count: z.object({ rows: z.array(z.any()) }),
    interview: z.object({ questions: z.number() }),
    work: z.object({ steps: z.number() })
};
const HANDLERS = {
    echo: async ({ text: said }) => text(said),
    deploy: async ({ env }, { mcpReq }) => {
        const answers = mcpReq.inputResponses;
        if (answers && mcpReq.requestState()?.env === env)
            return text(answers.confirm.content.confirm ? `Deployed to ${env}` : 'Left alone');
        const confirm = inputRequired.elicit({ message: `Deploy to ${env}?`, requestedSchema: form('confirm', 'boolean') });
        return inputRequired({ inputRequests: { confirm }, requestState: await codec.mint({ env }) });
    },
    length: async ({ text: said }) => text(`${said.length} characters`),
    count: async ({ rows }) => text(`${rows.length} rows`),
    interview: async ({ questions }, { mcpReq }) => {
        const heard = mcpReq.requestState() ?? [];
        for (const answer of Object.values(mcpReq.inputResponses ?? {})) heard.push(answer.content.value);
        if (heard.length === questions) return text('Thank you');
        const asked = { message: `Question ${heard.length}?`, requestedSchema: form('value', 'string') };
        const inputRequests = { [`question-${heard.length}`]: inputRequired.elicit(asked) };
        return inputRequired({ inputRequests, requestState: await codec.mint(heard) });
    },
    work: async ({ steps }, { mcpReq }) => {
        const progressToken = mcpReq._meta?.progressToken;
        for (let progress = 1; progress <= steps; progress++) {
            const params = { progressToken, progress, total: steps, message: `step ${progress}` };
            await mcpReq.notify({ method: 'notifications/progress', params });
        }
        return text(`did ${steps} steps`);
    }
};

function factory() {
    const server = new McpServer({ name: 'bench', version: '1.0.0' }, { requestState: { verify: codec.verify } });
    for (const [name, inputSchema] of Object.entries(SCHEMAS))
        server.registerTool(name, { description: name, inputSchema }, HANDLERS[name]);
    return server;
}

if (options[0] === '--port') {
    // What the package's own adapter for node uses.
    const { getRequestListener } = await import(
        pathToFileURL(join(modules, '@hono/node-server/dist/index.mjs'))
    );
    const handler = createMcpHandler(factory);
    createServer(getRequestListener(request => handler.fetch(request))).listen(Number(options[1]), '127.0.0.1');
} else {
    serveStdio(factory);
}
