// A real authorization server: oidc-provider, with its development login pages.
// node authorization_server.mjs NODE_MODULES --http PORT [--resource URL] [--ttl SECONDS] [--dpop-nonce] [--opaque] [--jwk JWK]
import { createRequire } from "node:module";
import { randomBytes } from "node:crypto";
import { pathToFileURL } from "node:url";

const [modules, ...args] = process.argv.slice(2);
const option = (name, fallback) => (args.includes(name) ? args[args.indexOf(name) + 1] : fallback);
const require = createRequire(`${modules}/`);
const { default: Provider } = await import(pathToFileURL(require.resolve("oidc-provider")).href);

const port = Number(option("--http"));
const issuer = `http://127.0.0.1:${port}`;
const resource = option("--resource", "http://127.0.0.1/mcp");
const ttl = Number(option("--ttl", "3600"));
const scopes = "notes:read notes:write";

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "program",
      client_secret: "program-secret",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
      scope: scopes,
    },
    ...(args.includes("--jwk")
      ? [
          {
            client_id: "keyed",
            token_endpoint_auth_method: "private_key_jwt",
            jwks: { keys: [JSON.parse(option("--jwk"))] },
            grant_types: ["client_credentials"],
            redirect_uris: [],
            response_types: [],
            scope: scopes,
          },
        ]
      : []),
    { client_id: "introspector", client_secret: "introspector-secret", redirect_uris: [], response_types: [], grant_types: [] },
  ],
  cookies: { keys: [randomBytes(16).toString("hex")] },
  clientDefaults: { scope: `openid offline_access ${scopes}` },
  scopes: ["openid", "offline_access", "notes:read", "notes:write"],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: async (_ctx, client) => client.grantTypeAllowed("refresh_token"),
  ttl: { AccessToken: ttl, ClientCredentials: ttl, RefreshToken: 3600, Session: 600, Interaction: 600, Grant: 3600 },
  features: {
    devInteractions: { enabled: true },
    clientCredentials: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    revocation: { enabled: true, allowedPolicy: () => true },
    registration: { enabled: true },
    dPoP: {
      enabled: true,
      nonceSecret: randomBytes(32),
      requireNonce: () => args.includes("--dpop-nonce"),
    },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: scopes, accessTokenFormat: args.includes("--opaque") ? "opaque" : "jwt", jwt: { sign: { alg: "RS256" } }, accessTokenTTL: ttl }),
    },
  },
});
provider.on("server_error", (_ctx, error) => console.error(error));
provider.listen(port, "127.0.0.1", () => console.log(`${issuer} is ready`));
