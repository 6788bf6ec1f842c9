// Beside the conversation: the token of a round opened, what ran again, replay safety, and the log.
import { html, useState } from "./preact.js";
import { api, checkSafety, change, model } from "./model.js";
import { Frames, Ticking } from "./conversation.js";
import { compact, count, Json, line, pairs, size, timeOf, Words } from "./text.js";

const filled = value => value && typeof value === "object" ? Object.keys(value).length > 0 : value !== null && value !== undefined;
const Row = ({ name, children }) => html`<tr><th scope="row">${name}</th><td>${children}</td></tr>`;
const entries = held => Object.entries(held).map(([name, value]) => html`<div><code>${line(name)} = ${line(compact(value), 400)}</code></div>`);
// An accepted answer is shown by its content, as the handler sees it.
const answersOf = held => Object.fromEntries(Object.entries(held).map(([name, given]) => [name, given?.action === "accept" ? given.content ?? "accepted" : given]));

function Token({ round, era }) {
  const { token } = round ?? {};
  if (!token) {
    return html`<h2>Token</h2><p class="soft">${!round ? "Make a call to see its token."
      : `Round ${round.number} has no token: ${era < "2026" ? "in this era the server waits, and nothing travels but the question."
        : "no token is needed after the last round."}`}</p>`;
  }
  const { opened } = token;
  const drift = asked => filled(asked?.drift) && asked.drift ? html` <b class="warn">drift ${asked.drift}</b>` : "";
  const bound = opened?.bound_to;
  return html`<h2>Token of round ${round.number}${opened ? ", opened" : ""}</h2>
    ${opened ? "" : html`<p class="soft">It stays closed. ${line(token.why ?? "", 500)}</p>`}
    <table class="facts">
      ${!opened ? "" : html`
        ${filled(opened.flow) ? html`<${Row} name="flow"><code>${line(opened.flow)}</code><//>` : ""}
        ${bound ? html`<${Row} name="bound to">${typeof bound === "string" ? line(bound)
          : html`${line(bound.method)} <b>${line(bound.name ?? bound.uri ?? "")}</b>, its arguments,
            ${` ${bound.audience ? `audience ${line(bound.audience)}` : "no audience"}, ${bound.principal ? `principal ${line(bound.principal)}` : "no principal"}`}`}<//>` : ""}
        <${Row} name="answers">${filled(opened.answers) ? entries(answersOf(opened.answers)) : html`<span class="soft">none yet</span>`}<//>
        <${Row} name="steps">${filled(opened.steps) ? entries(opened.steps) : html`<span class="soft">none yet</span>`}<//>
        ${filled(opened.asked) ? html`<${Row}
          name="asked">${Object.entries(opened.asked).map(([name, asked]) => html`<div><code>${line(name)}</code>${drift(asked)}</div>`)}<//>` : ""}
        ${filled(opened.state) ? html`<${Row} name="state"><${Json} value=${opened.state} cls="" /><//>` : ""}
        ${opened.expires ? html`<${Row} name="time"><${Ticking} until=${opened.expires} />, at ${timeOf(opened.expires)}<//>` : ""}`}
      <${Row} name="size">${size(token.bytes)}${token.max_bytes ? html` of ${size(token.max_bytes)}<meter value=${token.bytes}
        max=${token.max_bytes} high=${token.max_bytes * .7} aria-label="Size of the token"></meter>` : ""}<//>
    </table>
    ${token.text ? html`<details class="leg"><summary>As it travels</summary><${Words} as="pre" cls="data" text=${token.text} /></details>` : ""}`;
}

function Ran({ call }) {
  const rows = call.rounds.filter(round => round.ran?.known);
  const told = ran => {
    const parts = ["recalled", "ran", "asked"].filter(how => ran[how]?.length).map(how =>
      html`<span class=${how}>${ran[how].map(name => line(name)).join(", ")} ${how}</span>`);
    return parts.length ? parts.flatMap((part, at) => at ? [", ", part] : [part]) : html`<span class="soft">no step, no question</span>`;
  };
  return html`<h2>What ran again</h2>
    ${rows.length ? html`<table class="facts">${rows.map(({ number, ran }) => html`<${Row} name=${`round ${number}`}>
      ${told(ran)}<//>`)}</table>`
      : html`<p class="soft">It cannot be known: ${call.era < "2026" ? "in this era the handler runs once, and waits." : "the token stays closed."}</p>`}`;
}

function Safety({ call }) {
  const can = call.can?.replay_safety;
  const found = model.safety[call.id];
  return html`<h2>Replay safety</h2>
    <p class="soft">${can === true ? "Makes this call again from its start, with the same answers, several times: once in a test, then every round twice, and all of it on a fresh instance. What it does is really done each time." : line(can ?? "", 500)}</p>
    ${can === true ? html`<button type="button" disabled=${model.busy.safety}
      onClick=${() => checkSafety(call.id)}>${model.busy.safety ? "Checking…" : "Check replay safety"}</button>` : ""}
    ${!found ? "" : html`<div class=${`verdict ${found.ok ? "ok" : "bad"}`}><b>${found.ok ? "✓ Safe to replay" : found.ok === null ? "? Not known" : "✗ Not safe to replay"}</b>
      <${Words} text=${found.text} /></div>`}`;
}

const Notice = ({ notice }) => {
  const words = notice.text ?? notice.data ?? pairs(notice.params ?? {});
  return html`<li class=${`note ${notice.level ?? ""}`}><code>${timeOf(notice.at)}</code> <b>${line(notice.level ?? notice.method?.replace("notifications/", "") ?? "printed")}</b>
    ${notice.logger ? ` ${line(notice.logger)}:` : ""} ${typeof words === "string" ? html`<${Words} as="span" text=${words} />`
      : html`<code>${line(compact(words), 1000)}</code>`}</li>`;
};
function Log() {
  const [traffic, setTraffic] = useState(null);
  const shown = model.notices.slice(-100).reverse();
  return html`<div class="row"><h2>Log</h2><span class="sp"></span>
      <button type="button" class="quiet" disabled=${!shown.length} onClick=${() => change({ notices: [] })}>Clear</button></div>
    ${shown.length ? html`<ul class="notices">${shown.map((notice, at) => html`<${Notice}
      key=${model.notices.length - at} notice=${notice} />`)}</ul>`
      : html`<p class="soft">Log messages and notifications of the server appear here.</p>`}
    <details class="leg" onToggle=${event => event.target.open && api("traffic").then(({ frames }) => setTraffic(frames), () => setTraffic([]))}>
      <summary>Traffic outside of calls</summary>${traffic && html`<p
        class="soft">${count(traffic.length, "message")}</p><${Frames} frames=${traffic} />`}</details>`;
}

export function Details({ call }) {
  const round = call && !call.missing ? call.rounds.find(each => each.number === model.route.round) ?? call.rounds.findLast(each => each.token) ?? call.rounds.at(-1) : null;
  return html`<${Token} round=${round} era=${call?.era ?? ""} />
    ${round ? html`<${Ran} call=${call} /><${Safety} call=${call} />` : ""}<${Log} />`;
}
