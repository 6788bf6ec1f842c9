// A garage on the official TypeScript SDK that asks: `node official_typescript.mjs NODE_MODULES`, over stdio.
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';

// The packages live in a cache, not beside this file.
const require = createRequire(join(resolve(process.argv[2]), 'anywhere.js'));
const { McpServer, inputRequired } = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { z } = require('zod');

const text = value => ({ content: [{ type: 'text', text: value }] });
const form = (message, properties, required) =>
    inputRequired.elicit({ message, requestedSchema: { type: 'object', properties, required } });

const WORK = form('What is to be done?', { work: { type: 'string', enum: ['brakes', 'tyres'] } }, ['work']);
const HOURS = { brakes: 3, tyres: 1 };

function garage() {
    const server = new McpServer({ name: 'garage', version: '1.0.0' });
    const tool = (name, description, inputSchema, handler) =>
        server.registerTool(name, { description, inputSchema: z.object(inputSchema) }, handler);

    // Two rounds of questions; what was answered first travels in the state.
    tool('repair', 'Repair a car.', { plate: z.string() }, async ({ plate }, { mcpReq }) => {
        const answers = mcpReq.inputResponses;
        const work = mcpReq.requestState() ?? answers?.work?.content?.work;
        if (!work) return answers ? text('Nothing is repaired') : inputRequired({ inputRequests: { work: WORK } });
        if (!answers?.price) {
            const message = `${work} of ${plate} take ${HOURS[work]} h, ${HOURS[work] * 80} euros. Go on?`;
            const price = form(message, { agreed: { type: 'boolean' } }, ['agreed']);
            return inputRequired({ inputRequests: { price }, requestState: work });
        }
        return text(answers.price.content?.agreed ? `Repaired the ${work} of ${plate}` : 'Nothing is repaired');
    });

    tool('diagnose', 'Ask a model what a noise means.', { noise: z.string() }, async ({ noise }, { mcpReq }) => {
        const heard = mcpReq.inputResponses?.expert;
        const messages = [{ role: 'user', content: { type: 'text', text: `A car goes ${noise}. Why?` } }];
        if (!heard) return inputRequired({ inputRequests: { expert: inputRequired.createMessage({ messages, maxTokens: 50 }) } });
        return text(`The expert says: ${heard.content.text}`);
    });

    // Everything in one round: a link to open, and the folders of the client.
    tool('inspect', 'Fetch the papers of a car.', {}, async (_, { mcpReq }) => {
        const answers = mcpReq.inputResponses;
        if (!answers) {
            const login = inputRequired.elicitUrl({ message: 'Sign in at the registry', url: 'https://registry.example' });
            return inputRequired({ inputRequests: { login, folders: inputRequired.listRoots() }, requestState: 'papers' });
        }
        if (answers.login.action !== 'accept') return { ...text('No papers without a login'), isError: true };
        return text(answers.folders.roots.map(({ uri }) => `${uri}/papers.pdf`).join('\n'));
    });

    tool('lift', 'Wait until the lift is free.', {}, async (_, { mcpReq }) => {
        const waited = Number(mcpReq.requestState() ?? 0);
        return waited === 2 ? text('The lift is free') : inputRequired({ requestState: String(waited + 1) });
    });

    const outputSchema = z.object({ free: z.boolean(), hours: z.array(z.number()) });
    server.registerTool('calendar', { description: 'Free hours.', inputSchema: z.object({}), outputSchema }, async () => {
        const structuredContent = { free: true, hours: [9, 14] };
        return { ...text(JSON.stringify(structuredContent)), structuredContent };
    });
    return server;
}

serveStdio(garage);
