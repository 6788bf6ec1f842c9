// The official TypeScript client signs in to a protected server: `node signing_in_client.mjs NODE_MODULES URL TOOL...`.
// The issuer signs in whoever asks, so its page is visited by following redirects by hand.
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [modules, url, ...tools] = process.argv.slice(2);
const require = createRequire(join(modules, 'anywhere.js'));
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = require('@modelcontextprotocol/client');

const kept = {};
let back;
let visits = 0;
const provider = {
    redirectUrl: 'http://127.0.0.1:3031/callback',
    clientMetadata: {
        client_name: 'official-typescript',
        redirect_uris: ['http://127.0.0.1:3031/callback'],
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        token_endpoint_auth_method: 'none'
    },
    clientInformation: () => kept.client,
    saveClientInformation: client => { kept.client = client; },
    tokens: () => kept.tokens,
    saveTokens: tokens => { kept.tokens = tokens; },
    codeVerifier: () => kept.verifier,
    saveCodeVerifier: verifier => { kept.verifier = verifier; },
    discoveryState: () => kept.discovery,
    saveDiscoveryState: state => { kept.discovery = state; },
    redirectToAuthorization: async page => {
        visits += 1;
        const response = await fetch(page, { redirect: 'manual' });
        back = new URL(response.headers.get('location')).searchParams;
    }
};

const signedIn = async action => {
    for (let tries = 0; tries < 3; tries++) {
        const client = new Client({ name: 'official-typescript', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
        const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
        try {
            await client.connect(transport);
            return await action(client);
        } catch (error) {
            if (!(error instanceof UnauthorizedError) && error?.cause?.name !== 'UnauthorizedError') throw error;
            await transport.finishAuth(back);
        } finally {
            await client.close();
        }
    }
    throw new Error('never signed in');
};

const call = name => signedIn(async client => (await client.callTool({ name, arguments: {} })).content[0].text);

const told = [];
for (const tool of tools) told.push(await call(tool));
console.log(JSON.stringify({ told, visits }));
