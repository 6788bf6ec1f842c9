// The official TypeScript client, declaring nothing: calls what each line of its input says, and prints what a model saw.
// `node silent_client.mjs NODE_MODULES auto|legacy http URL`, or `... stdio COMMAND...`
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const [modules, mode, kind, ...target] = process.argv.slice(2);
// The packages live in a cache, not beside this file, so they are resolved from there.
const require = createRequire(join(modules, 'anywhere.js'));
const older = mode === 'legacy';
const { Client } = require(older ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
const { StreamableHTTPClientTransport } = older
    ? require('@modelcontextprotocol/sdk/client/streamableHttp.js')
    : require('@modelcontextprotocol/client');
const { StdioClientTransport } = older
    ? require('@modelcontextprotocol/sdk/client/stdio.js')
    : require('@modelcontextprotocol/client/stdio');

const options = older ? {} : { versionNegotiation: { mode: 'auto' } };
const client = new Client({ name: 'silent-typescript', version: '1.0.0' }, options);
const transport =
    kind === 'http'
        ? new StreamableHTTPClientTransport(new URL(target[0]))
        : new StdioClientTransport({ command: target[0], args: target.slice(1) });
let revision;
const told = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = version => {
    revision = version;
    told?.(version);
};
await client.connect(transport);
console.log(JSON.stringify(client.getNegotiatedProtocolVersion?.() ?? revision));
for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await client.callTool(JSON.parse(line))));
}
await client.close();
