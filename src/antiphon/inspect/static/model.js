// What the page knows, and what it can do: the API, its events, and the route in the address.
import { count, line } from "./text.js";

const KEY = "antiphon-inspect-key";
const MOST_NOTICES = 500;
const SLOWEST_RETRY = 5000;

export const model = {
  link: "new", // new | ok | lost | refused | stopped
  state: null, calls: {}, route: { kind: "start" }, era: null, notices: [], drafts: {},
  said: "", toast: null, exported: null, safety: {}, panel: "talk", help: false, search: "", busy: {},
};
let draw = () => {};
let planned = false;
export function change(patch) {
  Object.assign(model, patch);
  if (planned) return;
  planned = true;
  // Not within the event: a box that was just ticked would be drawn unticked before it can say so.
  setTimeout(() => { planned = false; draw(); });
}
// Before the next key is pressed: what a list shows is what Enter takes.
export const changeNow = patch => { Object.assign(model, patch); draw(); };
export const drawnBy = then => { draw = then; };

// --- requests -----------------------------------------------------------------------------------------------------

let key = "";
const storage = (name, ...value) => {
  try { return value.length ? sessionStorage.setItem(name, value[0]) : sessionStorage.getItem(name); } catch { return null; }
};
function takeKey(text) {
  const found = /key=([^&#\s]+)/.exec(text)?.[1];
  if (found) { key = decodeURIComponent(found); storage(KEY, key); }
  return Boolean(found);
}

export class Refusal extends Error {
  constructor(message, status) { super(message); this.status = status; }
}
async function request(path, { body } = {}) {
  let response;
  try {
    response = await fetch(`/api/${path}`, { method: body === undefined ? "GET" : "POST", cache: "no-store",
      headers: { Authorization: `Bearer ${key}`, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body) });
  } catch { throw new Refusal("`antiphon inspect` does not answer. Is it still running?", 0); }
  if (response.ok) return response;
  if (response.status === 401) change({ link: "refused" });
  const told = await response.json().catch(() => ({}));
  throw new Refusal(told.error ?? `The request was refused with status ${response.status}.`, response.status);
}
export const api = async (path, options) => (await request(path, options)).json();

// Do something that a button starts; the button is busy meanwhile, and a refusal is shown.
export async function act(name, work) {
  if (model.busy[name]) return undefined;
  change({ busy: { ...model.busy, [name]: true } });
  try {
    return await work();
  } catch (error) {
    if (error.status !== 401) toast(error.message, true);
    return undefined;
  } finally {
    const { [name]: _, ...busy } = model.busy;
    change({ busy });
  }
}
let fading;
export function toast(text, bad = false) {
  clearTimeout(fading);
  change({ toast: { text, bad } });
  if (!bad) fading = setTimeout(() => change({ toast: null }), 4000);
}

// --- the first paint, and events ----------------------------------------------------------------------------------

export async function load() {
  const state = await api("state");
  change({ state, era: model.era ?? state.era, notices: state.notices ?? [], link: "ok" });
  await show();
}
export async function run() {
  takeKey(location.hash);
  route();
  key ||= storage(KEY) ?? "";
  addEventListener("hashchange", () => { if (/key=/.test(location.hash) && takeKey(location.hash)) { route(); void connect(); } else { route(); void show(); } });
  if (key) await connect(); else change({ link: "refused" });
}

let connection = 0;
async function connect() {
  const mine = ++connection;
  let wait = 500;
  while (mine === connection) {
    try {
      // First the events, then the state: nothing that happens between the two is missed.
      const response = await request("events");
      await load();
      wait = 500;
      for await (const event of events(response.body)) {
        if (mine !== connection) return;
        heard(event.name, JSON.parse(event.data));
      }
    } catch (error) {
      if (error.status === 401 || mine !== connection) return;
    }
    change({ link: "lost" });
    await new Promise(then => setTimeout(then, wait));
    wait = Math.min(2 * wait, SLOWEST_RETRY);
  }
}
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = block.split(/\r?\n/).map(row => /^(\w+): ?(.*)$/.exec(row)).filter(Boolean);
      const of = name => fields.filter(([, each]) => each === name).map(([,, text]) => text).join("\n");
      if (of("data")) yield { name: of("event") || "message", data: of("data") };
    }
  }
}

function heard(name, data) {
  const { state, calls } = model;
  if (name === "call") {
    const others = state.calls.filter(each => each.id !== data.id);
    const earlier = state.calls.find(each => each.id === data.id);
    const list = earlier ? state.calls.map(each => each.id === data.id ? { ...each, ...data } : each) : [data, ...others];
    change({ state: { ...state, calls: list } });
    if (calls[data.id] && (calls[data.id].version ?? 0) < data.version) void refresh(data.id);
    else if (!calls[data.id] && shownIds().includes(data.id)) void refresh(data.id);
    pair(data);
  } else if (name === "gone") {
    const { [data.id]: _, ...rest } = calls;
    change({ calls: rest, state: { ...state, calls: state.calls.filter(each => each.id !== data.id) } });
  } else if (name === "progress") {
    const call = calls[data.call];
    if (call) change({ calls: { ...calls, [call.id]: { ...call, rounds: call.rounds.map(each => each.number === data.round ? { ...each, progress: data } : each) } } });
  } else if (name === "offers") {
    void api("offers").then(offers => { change({ state: { ...model.state, offers } }); say(`The list of ${data.kind} changed.`); }, () => {});
  } else if (name === "status" || name === "reload") {
    if (name === "status") change({ state: { ...state, ...data } });
    void load().catch(() => {});
  } else {
    const kind = { log: "log", notification: "notification", stderr: "stderr" }[name];
    if (kind) change({ notices: [...model.notices, { event: kind, ...data }].slice(-MOST_NOTICES) });
  }
}

// --- the route ----------------------------------------------------------------------------------------------------

const decode = text => { try { return decodeURIComponent(text); } catch { return text; } };
export const hrefOf = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;
export const go = (...parts) => { location.hash = hrefOf(...parts); };
function route() {
  const bare = location.hash.replace(/[?&#]*\bkey=[^&#]*/, "").replace(/^#?\/?/, "");
  if (/key=/.test(location.hash)) history.replaceState(null, "", `#/${bare}`);
  const [kind, name, round] = bare.split("/").map(decode);
  const known = ["tools", "prompts", "resources", "templates", "calls", "beside"].includes(kind) && name;
  const same = known && model.route.kind === kind && model.route.name === name;
  change({ route: known ? { kind, name, round: Number(round) || null } : { kind: "start" }, exported: same ? model.exported : null,
    panel: same ? model.panel : known ? "talk" : model.panel });
}
export const shownIds = () => {
  const { kind, name } = model.route;
  const parent = kind === "beside" ? model.calls[name]?.parent?.id : null;
  return kind === "calls" || kind === "beside" ? [name, parent].filter(Boolean) : [];
};
export async function show() {
  await Promise.all(shownIds().map(refresh));
  // The parent is known only after its fork has come.
  await Promise.all(shownIds().filter(id => !model.calls[id]).map(refresh));
}

const fetching = {};
export async function refresh(id) {
  if (!model.calls[id] && model.state && !model.state.calls.some(call => call.id === id)) {
    change({ calls: { ...model.calls, [id]: { id, missing: true, rounds: [] } } });
    return;
  }
  if (fetching[id]) { fetching[id] = "again"; return; }
  fetching[id] = "once";
  try {
    const call = await api(`calls/${encodeURIComponent(id)}`);
    keep(call);
  } catch (error) {
    if (error.status === 404) change({ calls: { ...model.calls, [id]: { id, missing: true, rounds: [] } } });
  } finally {
    const again = fetching[id] === "again";
    delete fetching[id];
    if (again) await refresh(id);
  }
}
function keep(call) {
  const before = model.calls[call.id];
  if (before && (before.version ?? 0) > call.version) return;
  change({ calls: { ...model.calls, [call.id]: call } });
  if (model.route.name === call.id && before && (before.status !== call.status || before.rounds.length !== call.rounds.length)) say(told(call));
}
export const say = text => change({ said: text });
function told(call) {
  const last = call.rounds.at(-1);
  const steps = call.steps?.filter(step => step.round === last?.number && ["question", "result", "error", "silence"].includes(step.kind)) ?? [];
  const words = steps.map(step => `${line(step.title)}. ${line(step.text)}`).join(" ");
  return { waiting: `Round ${last?.number}: ${words}`, done: `The call ended in round ${last?.number}. ${words}`,
    failed: `The call failed. ${words}`, cancelled: "The call was cancelled.", running: "The server works." }[call.status] ?? "";
}

// --- what buttons do ----------------------------------------------------------------------------------------------

// Calls of which the same is to be made in the other era when they end.
const pairing = new Set();
export const start = order => act("start", async () => {
  const both = model.era === "both";
  const call = await api("calls", { body: { ...order, era: both ? model.state.era : order.era ?? model.era ?? undefined } });
  if (both) pairing.add(call.id);
  keep(call);
  go("calls", call.id);
  pair(call);
});
function pair(call) {
  if (!pairing.has(call.id) || !["done", "failed"].includes(call.status)) return;
  pairing.delete(call.id);
  void fork(call.id, { round: 1, how: "era" });
}
export const answer = (id, round, answers) => act("answer", async () => {
  try {
    keep(await api(`calls/${id}/answer`, { body: { round, answers } }));
  } catch (error) {
    if (error.status === 409) await refresh(id);
    throw error;
  }
});
export const giveUp = id => act("cancel", async () => keep(await api(`calls/${id}/cancel`, { body: {} })));
export const fork = (id, order) => act("fork", async () => {
  const call = await api(`calls/${id}/fork`, { body: order });
  keep(call);
  void refresh(id);
  go(order.how === "era" ? "beside" : "calls", call.id, ...(order.how === "era" ? [] : [String(order.round)]));
});
export const later = id => act("later", async () => {
  const kept = await api(`calls/${id}/later`, { body: {} });
  if (kept.inbox) toast("The question is in the inbox now.");
  else download(kept.name, kept.text);
  change({ exported: { id, what: "later", ...kept, copied: false } });
});
export const take = (id, what, copy) => act("export", async () => {
  const made = await api(`calls/${id}/export/${what}`);
  let copied = false;
  if (copy) {
    try { await navigator.clipboard.writeText(made.text); copied = true; } catch { /* the text is shown, and can be copied by hand */ }
    toast(copied ? `Copied: ${count(made.text.length, "character")}.` : "The browser does not let this page copy. The text is below.", !copied);
  } else {
    download(made.name, made.text);
    toast(`Saved as ${line(made.name)}.`);
  }
  change({ exported: { id, what, ...made, copied } });
});
export function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
export const checkSafety = id => act("safety", async () => {
  const found = await api(`calls/${id}/replay-safety`, { body: {} });
  change({ safety: { ...model.safety, [id]: found } });
  say(found.ok ? "The call is safe to replay."
    : `It is not ${found.ok === null ? "known whether the call is " : ""}safe to replay.`);
});
export const restart = () => act("restart", async () => { change({ state: await api("restart", { body: {} }) }); await show(); });
export const subscribe = (uri, on) => act("subscribe", async () => {
  const { subscriptions } = await api("subscriptions", { body: { uri, on } });
  change({ state: { ...model.state, subscriptions } });
});
export const callAgain = call => start({ method: call.method, params: call.params, era: call.era });
