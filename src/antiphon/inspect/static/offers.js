// What the server offers: the list beside, and a page with a form for each tool, prompt, resource and template.
import { html, useEffect, useRef, useState } from "./preact.js";
import { api, change, changeNow, hrefOf, model, start, subscribe } from "./model.js";
import { FORKS } from "./conversation.js";
import { Form, initial } from "./form.js";
import { Json, line, whenOf, Words } from "./text.js";

const KINDS = {
  tools: ["Tools", each => each.name], prompts: ["Prompts", each => each.name],
  resources: ["Resources", each => each.uri], templates: ["Templates", each => each.uriTemplate],
};
const MARKS = { running: "…", waiting: "?", done: "✓", failed: "✗", cancelled: "–" };

export function Offers() {
  const { state, search, route } = model;
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (...texts) => words.every(word => texts.join(" ").toLowerCase().includes(word));
  const asking = new Set(state.calls.filter(call => call.rounds > 1).map(call => call.title));
  const groups = Object.entries(KINDS).map(([kind, [title, nameOf]]) =>
    [kind, title, (state.offers?.[kind] ?? []).map(each => [nameOf(each), each]).filter(([name, each]) => fits(name, each.title ?? "", each.name ?? "", each.description ?? ""))]);
  const calls = state.calls.filter(call => fits(call.title, call.about ?? "", call.status, call.era));
  const total = groups.reduce((sum, [,, list]) => sum + list.length, 0);
  const onKeyDown = event => {
    const links = [...event.currentTarget.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "Enter" && event.target.type === "search") links[0]?.click();
    else if (event.key === "ArrowDown") links[Math.min(at + 1, links.length - 1)]?.focus();
    else if (event.key === "ArrowUp" && at > 0) links[at - 1].focus();
    else if (event.key === "ArrowUp") event.currentTarget.querySelector("input").focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const item = (href, name, small, on, title) => html`<li><a href=${href} class=${on ? "on" : ""} aria-current=${on ? "page" : undefined}
    title=${title} onClick=${() => change({ panel: "talk" })}><span>${name}</span>${small ? html`<small>${small}</small>` : ""}</a></li>`;
  return html`<div class="offers" onKeyDown=${onKeyDown}>
    <input type="search" id="search" placeholder="Search ( / )" aria-label="Search what the server offers, and earlier calls"
      value=${search} onInput=${event => changeNow({ search: event.target.value })} />
    ${groups.map(([kind, title, list]) => list.length ? html`<h2>${title}</h2><ul>${list.map(([name, each]) =>
      item(hrefOf(kind, name), line(name), kind === "tools" && asking.has(name) ? "asks" : "", route.kind === kind && route.name === name,
        line(each.description ?? "")))}</ul>` : "")}
    ${total ? "" : html`<p class="soft">${words.length ? "Nothing fits the search." : state.status === "connected" ? "The server offers nothing." : "Not connected."}</p>`}
    ${(state.offers?.problems ?? []).map(problem => html`<p class="soft">${line(problem)}</p>`)}
    ${state.inbox ? html`<h2>Inbox</h2><ul>${item(String(state.inbox).startsWith("/") ? state.inbox : "#/", "Calls that wait for a person", "", false)}</ul>` : ""}
    <h2>Earlier</h2>
    ${calls.length ? html`<ul>${calls.slice(0, 100).map(call => item(hrefOf("calls", call.id),
      html`<i class=${`mark ${call.failed ? "failed" : call.status}`} title=${call.status} aria-label=${call.status}
        role="img">${MARKS[call.failed ? "failed" : call.status] ?? ""}</i> ${` ${call.parent ? "↳ " : ""}${line(call.title, 60)} `}
        <em>${call.how ? FORKS[call.how]?.[0].toLowerCase() ?? line(call.how) : line(call.about ?? "", 80)}</em>`,
      whenOf(call.started), ["calls", "beside"].includes(route.kind) && route.name === call.id))}</ul>
` : html`<p
        class="soft">${words.length ? "No call fits." : "Calls that you make appear here."}</p>`}</div>`;
}

// A text field that asks the server for completions.
function Completed({ id, name, about, required, value, onChange, source, known }) {
  const [values, setValues] = useState([]);
  const asked = useRef(0);
  const complete = async text => {
    const mine = ++asked.current;
    const found = await api("complete", { body: { ...source, argument: name, value: text, known } }).catch(() => ({ values: [] }));
    if (mine === asked.current) setValues(found.values ?? []);
  };
  return html`<div class="field"><label for=${id}><span class="name">${line(name)}</span>${required ? html` <span class="needed"
    aria-hidden="true">*</span>` : ""}</label>
    <div><input id=${id} autocomplete="off" dir="auto" required=${required} value=${value ?? ""} aria-describedby=${about ? `${id}-about` : undefined}
      onFocus=${event => complete(event.target.value)} onInput=${event => { onChange(event.target.value); void complete(event.target.value); }} />
      ${values.length && !values.includes(value) ? html`<small class="completions">${values.slice(0, 8).map(each => html`<button
        type="button" class="small" onClick=${() => onChange(each)}>${line(each, 60)}</button>`)}</small>` : ""}
      ${about ? html`<small id=${`${id}-about`}><${Words} as="span" text=${about} /></small>` : ""}</div></div>`;
}

const HINTS = { readOnlyHint: "only reads", destructiveHint: "can destroy", idempotentHint: "may be repeated", openWorldHint: "reaches outside" };
const found = (kind, name) => (model.state.offers?.[kind] ?? []).find(each => KINDS[kind][1](each) === name);

export function Offer({ kind, name }) {
  const offer = found(kind, name) ?? (kind === "resources" ? { uri: name, name } : null);
  const place = `${kind}/${name}`;
  const schema = offer?.inputSchema ?? {};
  const [raw, setRaw] = useState(false);
  const empty = () => kind === "tools" ? initial(schema, schema) ?? {} : {};
  const [value, setValue] = useState(() => model.drafts[place] ?? empty());
  const put = next => { model.drafts[place] = next; setValue(next); };
  const form = useRef(null);
  // Where there is a keyboard, what was just chosen can be filled in.
  useEffect(() => {
    const free = document.activeElement === document.body || document.activeElement?.closest(".offers");
    if (free && matchMedia("(hover: hover)").matches) form.current?.querySelector("input, select, textarea, .main")?.focus({ preventScroll: true });
  }, [place]);
  if (!offer) return html`<p class="empty">The server offers no ${kind.slice(0, -1)} called <b>${line(name)}</b>.</p>`;
  const args = kind === "prompts" ? offer.arguments ?? [] : kind === "templates" ? (offer.variables ?? []).map(each => ({ name: each, required: false })) : [];
  const strings = Object.fromEntries(args.map(({ name: each }) => [each, value[each]]).filter(([, each]) => each));
  const send = event => {
    event.preventDefault();
    void start(kind === "tools" ? { method: "tools/call", params: { name, arguments: value } }
      : kind === "prompts" ? { method: "prompts/get", params: { name, arguments: strings } }
        : kind === "templates" ? { method: "resources/read", template: name, variables: strings } : { method: "resources/read", params: { uri: name } });
  };
  const source = kind === "prompts" ? { prompt: name } : { template: name };
  const isOn = model.state.subscriptions?.includes(name);
  return html`<header class="call"><h1>${line(name)}</h1>${offer.title ? html`<span class="soft">${line(offer.title)}</span>` : ""}
      ${Object.entries(HINTS).filter(([hint]) => offer.annotations?.[hint] === true).map(([hint, text]) => html`<span
        class=${`chip ${hint === "destructiveHint" ? "warn" : ""}`}>${text}</span>`)}
      ${offer.mimeType ? html`<span class="chip">${line(offer.mimeType)}</span>` : ""}</header>
    ${offer.description ? html`<${Words} cls="words prose" text=${offer.description} />` : ""}
    <form class="card arguments" ref=${form} onSubmit=${send}>
      ${kind === "tools" ? html`<${Form} key=${place} schema=${schema} value=${value} onChange=${put} id="argument" raw=${raw} />`
        : args.map((each, at) => html`<${Completed} key=${each.name} id=${`argument-${at}`} name=${each.name} about=${each.description}
          required=${each.required === true}
            value=${value[each.name]} onChange=${text => put({ ...value, [each.name]: text })} source=${source} known=${strings} />`)}
      ${kind === "prompts" && !args.length ? html`<p class="soft">There is nothing to fill in.</p>` : ""}
      <div class="row buttons"><button class="main"
        disabled=${model.busy.start || model.state.status !== "connected"}>${{ tools: "Call", prompts: "Get" }[kind] ?? "Read"} <kbd>Ctrl ⏎</kbd></button>
        ${kind === "tools" ? html`<label class="tick soft"><input type="checkbox" checked=${raw}
          onChange=${event => setRaw(event.target.checked)} /> as JSON</label>` : ""}
        ${kind === "resources" ? html`<button type="button" disabled=${model.busy.subscribe}
          onClick=${() => subscribe(name, !isOn)}>${isOn ? "Unsubscribe" : "Subscribe"}</button>` : ""}
        <span class="sp"></span>${model.drafts[place] ? html`<button type="button" class="quiet"
          onClick=${() => { delete model.drafts[place]; setRaw(false); setValue(empty()); }}>Reset</button>` : ""}</div></form>
    ${kind === "tools" ? html`<details class="leg"><summary>The schema of the arguments</summary><${Json} value=${schema} /></details>` : ""}
    ${offer.outputSchema ? html`<details class="leg"><summary>The schema of the result</summary><${Json}
      value=${offer.outputSchema} /></details>` : ""}`;
}
