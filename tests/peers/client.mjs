// The official TypeScript client in conversation with our server; what it saw goes to standard output as JSON.
// `node client.mjs NODE_MODULES http URL`, or `node client.mjs NODE_MODULES stdio COMMAND...`
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [modules, kind, ...target] = process.argv.slice(2);
// The packages live in a cache, not beside this file, so they are resolved from there.
const require = createRequire(join(modules, 'anywhere.js'));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const transport =
    kind === 'http'
        ? new StreamableHTTPClientTransport(new URL(target[0]))
        : new StdioClientTransport({ command: target[0], args: target.slice(1) });

const client = new Client(
    { name: 'official-typescript', version: '1.0.0' },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: 'auto' } }
);
client.setRequestHandler('elicitation/create', async ({ params }) => ({
    action: 'accept',
    content: { confirm: params.message === 'Deploy to prod?' }
}));

const call = (name, args, options) => client.callTool({ name, arguments: args }, options);
const errorOf = request => request.then(JSON.stringify, error => error.code);
const inTurn = async (values, step) => {
    const results = [];
    for (const value of values) results.push(await step(value));
    return results;
};

await client.connect(transport);
const { tools } = await client.listTools();
const added = await call('add', { a: 2, b: 3 });
const wrong = await call('add', { a: 'two' });
const refused = await call('refuse', { why: 'because' });
const progress = [];
const onprogress = ({ progress: done, total }) => {
    progress.push([done, total]);
    if (done === total) call('hear', {});
};
const counted = await call('count', { to: 3 }, { onprogress });
const asked = await inTurn(['prod', 'test'], env => call('deploy', { env }));
const { resources } = await client.listResources();
const { resourceTemplates } = await client.listResourceTemplates();
const contents = await inTurn(['text://greeting', 'note://7'], async uri => (await client.readResource({ uri })).contents[0]);
const { prompts } = await client.listPrompts();
const prompt = await client.getPrompt({ name: 'summarise', arguments: { topic: 'peace' } });
const add = tools.find(({ name }) => name === 'add');
const { name, version } = client.getServerVersion();

const transcript = {
    revision: client.getNegotiatedProtocolVersion(),
    server: [name, version],
    instructions: client.getInstructions(),
    tools: tools.map(({ name }) => name).sort(),
    add: { description: add.description, required: add.inputSchema.required, result: added.structuredContent },
    wrong: [wrong.isError, wrong.content[0].text],
    refused: [refused.isError, refused.content[0].text],
    counted: [counted.content[0].text, progress],
    asked: asked.map(({ content }) => content[0].text),
    resources: resources.map(({ uri }) => uri),
    templates: resourceTemplates.map(({ uriTemplate }) => uriTemplate),
    contents: contents.map(({ uri, mimeType, text }) => [uri, mimeType, text]),
    missing: await errorOf(client.readResource({ uri: 'text://nowhere' })),
    unknown: await errorOf(call('no_such_tool', {})),
    prompts: prompts.map(({ name, arguments: args }) => [name, args.map(({ name }) => name)]),
    prompt: prompt.messages.map(({ role, content }) => [role, content.text])
};
await client.close();
console.log(JSON.stringify(transcript));
