// oauth2-mock-server, which signs whatever it is told: `node mock_issuer.mjs NODE_MODULES --http PORT`.
// A request for a token may bring "claims" as JSON, which replace the token's; null leaves one out. SIGUSR2 adds a key.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [modules, ...args] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { OAuth2Server } = await import(pathToFileURL(require.resolve('oauth2-mock-server')).href);

const port = Number(args[args.indexOf('--http') + 1]);
const server = new OAuth2Server();
await server.issuer.keys.generate('RS256');
server.issuer.url = `http://127.0.0.1:${port}`;
server.service.on('beforeTokenSigning', (token, request) => {
    Object.assign(token.payload, JSON.parse(request.body.claims ?? '{}'));
    for (const [name, value] of Object.entries(token.payload)) if (value === null) delete token.payload[name];
});
process.on('SIGUSR2', () => server.issuer.keys.generate('RS256'));
await server.start(port, '127.0.0.1');
