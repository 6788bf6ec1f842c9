// The official TypeScript client: two-round calls, one after the other: `node client.mjs NODE_MODULES URL SECONDS`.
// It prints the median of their wall times and the processor time of one, in microseconds.
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [modules, url, seconds] = process.argv.slice(2);
const require = createRequire(join(modules, 'anywhere.js'));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

const client = new Client(
    { name: 'bench', version: '1.0.0' },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: 'auto' } }
);
client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { confirm: true } }));
await client.connect(new StreamableHTTPClientTransport(new URL(url)));

const call = async () => {
    const { content } = await client.callTool({ name: 'deploy', arguments: { env: 'prod' } });
    if (content[0].text !== 'Deployed to prod') throw new Error(content[0].text);
};
for (let warm = 0; warm < 50; warm++) await call();
const walls = [];
const before = process.cpuUsage();
const end = performance.now() + Number(seconds) * 1000;
while (performance.now() < end) {
    const start = performance.now();
    await call();
    walls.push(performance.now() - start);
}
const { user, system } = process.cpuUsage(before);
walls.sort((one, other) => one - other);
console.log(JSON.stringify({ wall_us: walls[walls.length >> 1] * 1000, cpu_us: (user + system) / walls.length }));
process.exit(0);
