// The page: its head, three panels, the keyboard, and what is said when something is missing.
import { html, render, useEffect, useErrorBoundary, useRef } from "./preact.js";
import { change, drawnBy, hrefOf, model, restart, run } from "./model.js";
import { Beside, Call } from "./conversation.js";
import { Details } from "./details.js";
import { Offer, Offers } from "./offers.js";
import { line, Words } from "./text.js";

const THEMES = { "": ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };
const HELP = [["/", "search"], ["j k or ↓ ↑", "next and previous round"], ["Ctrl Enter", "send the answer, or make the call"],
  ["Enter", "the same, in a field of one line; Shift Enter begins a new line"], ["e", "what travelled in this round"], ["f", "fork this round"],
  ["a", "to the answer, or to the arguments"], ["1 2 3", "what is offered, the conversation, details"],
  ["t", "light or dark"], ["Esc", "leave a field, close this"], ["?", "this help"]];

function turnTheme() {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length];
  if (next) document.documentElement.dataset.theme = next; else delete document.documentElement.dataset.theme;
  try { localStorage.setItem("antiphon-theme", next); } catch { /* storage is switched off */ }
  change({});
}

function Eras() {
  const { state, era } = model;
  const choices = [...(state.eras ?? []), ...((state.eras ?? []).length > 1 ? ["both"] : [])];
  if (choices.length < 2) return html`<span class="chip">${line(state.era ?? "")}</span>`;
  return html`<div class="seg eras" role="radiogroup" aria-label="The era of new calls">${choices.map(each => html`<label
    title=${each === "both" ? "Make every call in both eras, with the same answers" : ""}>
    <input type="radio" name="era" checked=${era === each}
      onChange=${() => change({ era: each })} /><span>${each === "both" ? "side by side" : line(each)}</span></label>`)}</div>`;
}

function Head() {
  const { state } = model;
  const theme = THEMES[document.documentElement.dataset.theme ?? ""];
  return html`<header class="top"><a class="name" href="#/">
      <svg viewBox="0 0 16 16" width="20" height="20" fill="none" stroke-width="2.2" stroke-linecap="round" aria-hidden="true">
      <path class="theirs" d="M6 3a7 7 0 0 0 0 10" /><path class="ours" d="M10 3a7 7 0 0 1 0 10" /></svg>
      <b>${line(state?.server?.title ?? state?.server?.name ?? "antiphon inspect", 60)}</b></a>
    ${state ? html`<span class="soft about">${line(state.server?.version ?? "", 30)}${state.server ? " · " : ""}<span
      title=${line(state.target?.text ?? "", 500)}>${line(state.target?.label ?? "", 60)}</span></span><${Eras} />` : ""}
    <nav aria-label="This page"><button type="button" class="quiet" onClick=${turnTheme} title=${`Theme: ${theme[1]} (t)`}
      aria-label=${`Theme: ${theme[1]}`}>${theme[0]}</button>
      <button type="button" class="quiet" aria-expanded=${model.help} aria-label="Keyboard and help" title="Help (?)"
        onClick=${() => change({ help: !model.help })}>?</button></nav></header>`;
}

function Banner() {
  const { link, state } = model;
  if (link === "lost") return html`<p class="banner" role="alert">The connection to <code>antiphon inspect</code> is lost. Trying again…</p>`;
  if (!state || state.status === "connected") return "";
  if (state.status === "connecting") return html`<p class="banner" role="status">Connecting to ${line(state.target?.label ?? "the server")}…</p>`;
  return html`<div class="banner bad" role="alert">
    <b>${state.status === "lost" ? "The server is gone." : "The server could not be reached."}</b>
    <${Words} as="span" text=${state.problem ?? ""} />
    <button type="button" disabled=${model.busy.restart} onClick=${restart}>${state.target?.kind === "url" ? "Connect again" : "Start it again"}</button></div>`;
}

function Help() {
  const box = useRef(null);
  useEffect(() => box.current.focus(), []);
  return html`<section class="help" tabindex="-1" ref=${box} aria-label="Keyboard"><div class="row"><h2>Keyboard</h2><span class="sp"></span>
      <button type="button" class="quiet" aria-label="Close" onClick=${() => change({ help: false })}>✕</button></div>
    <dl>${HELP.map(([keys, what]) => html`<dt>${keys.split(" ").map(key => key === "or" ? " or "
      : html`<kbd>${key}</kbd>`)}</dt><dd>${what}</dd>`)}</dl>
    <p class="soft">antiphon ${line(model.state?.version ?? "")}. A link to this address leads back to this tool, call or round.</p></section>`;
}

function Start() {
  const { state } = model;
  const offers = Object.values(state.offers ?? {}).flat().length - (state.offers?.problems?.length ?? 0);
  const tools = state.offers?.tools ?? [];
  return html`<div class="empty"><h1>${line(state.server?.title ?? state.server?.name ?? "No server yet")}</h1>
    ${state.instructions ? html`<${Words} cls="words prose" text=${state.instructions} />` : ""}
    ${offers ? html`<p>Choose a tool, fill in its arguments, and call it. Each round of the conversation appears here: what the server asks, your answer, and what travelled.</p>
      <p class="row centre">${tools.slice(0, 4).map(tool => html`<a class="button"
        href=${hrefOf("tools", tool.name)}>${line(tool.name)}</a>`)}</p>` : html`<p>There is nothing to choose yet.</p>`}
    <p class="soft">Press <kbd>/</kbd> to search, <kbd>?</kbd> for all keys.</p></div>`;
}

function Main() {
  const { kind, name } = model.route;
  if (kind === "start") return html`<${Start} />`;
  if (kind !== "calls" && kind !== "beside") return html`<${Offer} key=${`${kind}/${name}`} kind=${kind} name=${name} />`;
  const call = model.calls[name];
  if (!call) return html`<p class="empty">Loading the call…</p>`;
  if (call.missing) return html`<div class="empty"><h1>This call is not there</h1>
    <p>It was forgotten, or the link is from another run.</p><p><a href="#/">Back to the start</a></p></div>`;
  return kind === "beside" ? html`<${Beside} call=${call} />` : html`<${Call} call=${call} />`;
}

const Locked = () => html`<div class="empty"><h1>Open the address that <code>antiphon inspect</code> printed</h1>
  <p>This page needs the key at its end.</p></div>`;

const PANELS = { offers: "Offers", talk: "Conversation", details: "Details" };
function Page() {
  const [error, again] = useErrorBoundary();
  const { state, link, panel, toast, route } = model;
  if (error) return html`<div class="empty"><h1>The page failed to draw this</h1><p>${line(error.message, 300)}</p>
    <p class="row centre"><button type="button" onClick=${() => { location.hash = "#/"; again(); }}>Back to the start</button></p></div>`;
  const call = ["calls", "beside"].includes(route.kind) ? model.calls[route.name] : null;
  return html`<${Head} /><${Banner} />${model.help ? html`<${Help} />` : ""}
    ${link === "refused" ? html`<main><${Locked} /></main>` : !state ? html`<p class="empty" role="status">Loading…</p>` : html`
      <nav class="panels" aria-label="Panels">${Object.entries(PANELS).map(([each, name]) => html`<button type="button"
        aria-pressed=${panel === each} onClick=${() => change({ panel: each })}>${name}</button>`)}</nav>
      <div class=${`body show-${panel}${route.kind === "beside" ? " beside" : ""}`}><aside class="left"
        aria-label="What the server offers"><${Offers} /></aside>
        <main id="main" tabindex="-1"><${Main} /></main>
        <aside class="right" aria-label="Details"><${Details} call=${call} /></aside></div>`}
    <div class="unseen" aria-live="polite">${model.said}</div>
    ${toast ? html`<div class=${`toast${toast.bad ? " bad" : ""}`} role=${toast.bad ? "alert" : "status"}>${toast.text.slice(0, 600)}
      <button type="button" class="quiet" aria-label="Close" onClick=${() => change({ toast: null })}>✕</button></div>` : ""}`;
}

// --- keyboard -----------------------------------------------------------------------------------------------------

function step(by) {
  const rounds = [...document.querySelectorAll("main .talk > .round")];
  if (!rounds.length) return false;
  const here = rounds.findIndex(each => each.contains(document.activeElement));
  const selected = rounds.findIndex(each => each.classList.contains("selected"));
  // Without a focus in the conversation, the first key only shows where one is.
  const next = here < 0 ? Math.max(selected, 0) : Math.min(Math.max(here + by, 0), rounds.length - 1);
  rounds[next].focus({ preventScroll: true });
  rounds[next].scrollIntoView({ block: "nearest", behavior: "smooth" });
  return true;
}
const inRound = selector => document.querySelector(`main .round.selected ${selector}`);
const KEYS = {
  "/": () => { change({ panel: "offers" }); setTimeout(() => document.querySelector("#search")?.focus()); return true; },
  "?": () => change({ help: !model.help }) ?? true,
  j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1), t: () => turnTheme() ?? true,
  e: () => { const leg = inRound("details.leg:last-of-type"); if (leg) leg.open = !leg.open; return Boolean(leg); },
  f: () => { const forker = inRound(".forker"); forker?.click(); forker?.focus(); return Boolean(forker); },
  a: () => { const field = document.querySelector("main form :is(input, select, textarea, .main)"); field?.focus(); return Boolean(field); },
  1: () => change({ panel: "offers" }) ?? true, 2: () => change({ panel: "talk" }) ?? true, 3: () => change({ panel: "details" }) ?? true,
};
addEventListener("keydown", event => {
  const typing = event.target.closest?.("input, select, textarea, summary, audio");
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    const form = event.target.closest?.("form") ?? document.querySelector("main form");
    if (form) { event.preventDefault(); form.requestSubmit(); }
  } else if (event.key === "Escape") {
    if (model.help) change({ help: false });
    else if (event.target.type === "search") { change({ search: "" }); event.target.blur(); }
    else if (typing) (event.target.closest(".round") ?? document.querySelector("#main"))?.focus({ preventScroll: true });
    else if (model.toast || model.exported) change({ toast: null, exported: null });
    else document.querySelector("main .forker[aria-expanded=true]")?.click();
  } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key]?.()) {
    event.preventDefault();
  }
});

const root = document.querySelector("#page");
root.replaceChildren();
drawnBy(() => {
  const title = ["calls", "beside"].includes(model.route.kind) ? model.calls[model.route.name]?.title : model.route.name;
  document.title = [title, model.state?.server?.name ?? "antiphon", "inspect"].filter(Boolean).map(each => line(each, 60)).join(" · ");
  render(html`<${Page} />`, root);
});
change({});
void run();
