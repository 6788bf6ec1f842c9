// A conversation as a picture: a rail of rounds, and in each what was asked, answered, run, and sent.
import { html, useEffect, useRef, useState } from "./preact.js";
import { callAgain, change, download, fork, giveUp, go, hrefOf, model, refresh, take } from "./model.js";
import { Block, Questions } from "./questions.js";
import { clock, compact, count, duration, Json, line, pairs, size, timeOf, visible, Words } from "./text.js";

export const FORKS = {
  answer: ["Another answer", "Answer this round differently, and see what changes."],
  twice: ["The same token twice", "Send this leg again. A token that counts once is refused."],
  spoiled: ["A spoiled token", "Change one character of the token. It must not open."],
  expired: ["An expired token", "Send the token after its end. It must be refused."],
  fresh: ["On a fresh instance", "Go on in a new process that has seen nothing of this call."],
  era: ["In the other era", "Make the same call in the other era with the same answers, side by side."],
};
export const STATUS = {
  running: "the server works", waiting: "waiting for you", done: "ended", failed: "failed", cancelled: "cancelled",
  answered: "answered", again: "called again",
};
const LATER = new Set(["answer", "retry"]);
const CARDS = { retry: "answer", wait: "question", error: "result", silence: "result" };

// Time that passes: drawn again every second.
export function Ticking({ from, until }) {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => { const timer = setInterval(() => setNow(Date.now() / 1000), 1000); return () => clearInterval(timer); }, []);
  if (until) return until > now ? `ends in ${clock(until - now)}` : `ended ${clock(now - until)} ago`;
  return clock(now - from);
}

// --- what travelled -----------------------------------------------------------------------------------------------

const gist = ({ message, text, head }) => {
  if (!message) return text ? "text" : line(head ?? "");
  if (message.method) {
    const answers = Object.keys(message.params?.inputResponses ?? {}).length;
    return `${line(message.method)}${answers ? ` with ${count(answers, "answer")}` : ""}`;
  }
  return message.error ? `error ${line(message.error.code)}` : line(message.result?.resultType ?? "result");
};
function Frame({ frame }) {
  const sent = frame.way === "sent";
  return html`<div class=${`frame ${frame.way}`}>
    <div class="who"><b>${sent ? "→ sent" : "← received"}</b><span>${gist(frame)}</span><span>${size(frame.bytes)}</span><span>${timeOf(frame.at)}</span></div>
    ${frame.head ? html`<pre class="head">${visible(frame.head)}
${(frame.headers ?? []).map(([name, value]) => html`<span class="key">${visible(name)}</span>: ${visible(value)}\n`)}</pre>` : ""}
    ${frame.message ? html`<${Json} value=${frame.message} />` : html`<${Words} as="pre" text=${frame.text} />`}
    ${frame.cut ? html`<p class="soft">Long texts in it are cut.</p>` : ""}</div>`;
}
export const Frames = ({ frames }) => frames.map((frame, at) => html`<${Frame} key=${at} frame=${frame} />`);
function Leg({ frames, method }) {
  const [open, setOpen] = useState(false);
  if (!frames?.length) return "";
  const sent = frames.find(frame => frame.message?.method === method) ?? frames[0];
  const got = frames.findLast(frame => frame.way === "received");
  const verb = /^[A-Z]+/.exec(sent.head ?? "")?.[0] ?? sent.via ?? "";
  return html`<details class="leg" onToggle=${event => setOpen(event.target.open)}>
    <summary>What travelled: ${[`${visible(verb)} ${gist(sent)}, ${size(sent.bytes)}`, got && ` → ${gist(got)}, ${size(got.bytes)}`,
      frames.length > 2 && `, ${frames.length} messages`].filter(Boolean).join("")}</summary>
    ${open ? html`<${Frames} frames=${frames} />` : ""}</details>`;
}

// --- forks --------------------------------------------------------------------------------------------------------

function Forks({ call, round }) {
  const [open, setOpen] = useState(false);
  const [other, setOther] = useState(false);
  const isSole = call.rounds.length === 1 && round.status === "done";
  const forks = (call.forks ?? []).filter(each => (each.round || 1) === round.number);
  const origin = call.parent && (call.parent.round || 1) === round.number ? call.parent : null;
  // Another answer is named by what was answered, once the fork is here.
  const label = (how, other) => {
    const given = how === "answer" ? Object.values(other?.rounds.find(each => each.number === round.number)?.answers ?? {}) : [];
    const values = given.flatMap(each => each?.content && each.action ? Object.values(each.content) : [each?.action ?? "another answer"]);
    return values.length ? line(values.map(each => typeof each === "string" ? each : compact(each)).join(", "), 60) : FORKS[how]?.[0] ?? line(how);
  };
  useEffect(() => { forks.filter(each => each.how === "answer" && !model.calls[each.id]).forEach(each => void refresh(each.id)); }, [forks.length]);
  if (round.status !== "answered" && !isSole) return "";
  const choose = how => { if (how === "answer") setOther(true); else void fork(call.id, { round: round.number, how }); setOpen(false); };
  return html`${forks.length || origin ? html`<nav class="seg" aria-label=${`Versions of round ${round.number}`}>
      ${origin ? html`<a href=${hrefOf("calls", origin.id, String(round.number))}>as it was</a>` : ""}
      <a class="on" aria-current="true"
        href=${hrefOf("calls", call.id, String(round.number))}>${origin ? label(origin.how, call) : "this one"}</a>
      ${forks.map(each => html`<a href=${each.how === "era" ? hrefOf("beside", each.id) : hrefOf("calls", each.id, String(round.number))}>
        ${label(each.how, model.calls[each.id])}</a>`)}</nav>` : ""}
    <button type="button" class="small forker" aria-expanded=${open} disabled=${model.busy.fork} onClick=${() => setOpen(!open)}>
      <svg viewBox="0 0 16 16" width="14" height="14" fill="none" stroke="currentColor" stroke-width="1.6"
        aria-hidden="true"><path d="M8 15V9m0 0L3 5V1m5 8 5-4V1" /></svg> Fork here</button>
    ${open ? html`<ul class="menu">${Object.entries(FORKS).filter(([how]) => how in (call.can?.fork ?? {})).map(([how, [name, about]]) => {
      const can = call.can.fork[how];
      return html`<li><button type="button" disabled=${can !== true}
        onClick=${() => choose(how)}><b>${name}</b><small>${can === true ? about : line(can)}</small></button></li>`;
    })}</ul>` : ""}
    ${other ? html`<div class="another"><p class="soft">Another answer, in a conversation of its own:</p>
      <${Questions} call=${call} round=${round} given=${round.answers} sendName="Fork" onClose=${() => setOther(false)}
        send=${answers => { setOther(false); return fork(call.id, { round: round.number, how: "answer", answers }); }} /></div>` : ""}`;
}

const Side = ({ row }) => row.side === "gap" ? html`<span class="row gap">… ${count(row.left_out, "line")}</span>`
  : html`<span class=${`row ${row.side}`}><span class="sign">${{ both: " ", expected: "-", actual: "+" }[row.side]}</span>
      <span>${row.parts.map(part => part.marked ? html`<mark>${visible(part.text)}</mark>` : visible(part.text))}</span></span>`;
export function Differs({ call }) {
  const { differs, parent } = call;
  if (!parent) return "";
  const origin = model.calls[parent.id];
  const isEra = origin && origin.era !== call.era;
  return html`<section class="differs" aria-label="What differs">
    <div class="row"><h2>${FORKS[parent.how]?.[0] ?? line(parent.how)}${parent.round ? `, from round ${parent.round}` : ""}</h2><span
      class="sp"></span>
      ${model.route.kind === "beside" ? html`<a class="button" href=${hrefOf("calls", call.id, String(parent.round || 1))}>One at a time</a>`
        : html`<a class="button" href=${hrefOf("beside", call.id)}>Side by side</a>`}</div>
    ${parent.note ? html`<p class="soft">${line(parent.note, 500)}</p>` : ""}
    ${!differs ? html`<p class="soft">What differs is shown when both conversations have come as far.</p>`
      : differs.same || !differs.places?.length ? html`<p class="same">✓ Nothing differs.</p>` : html`
      <p class="legend"><span class="e">- as it was${isEra ? `, ${line(origin.era)}` : ""}</span> <span
        class="a">+ here${isEra ? `, ${line(call.era)}` : ""}</span></p>
      ${differs.places.map(place => html`<h3>Round ${place.round}: ${line(place.what)}</h3>
        <pre class="diff">${place.lines.map(row => html`<${Side} row=${row} />`)}</pre>`)}`}
  </section>`;
}

// --- cards --------------------------------------------------------------------------------------------------------

function Card({ step }) {
  const kind = CARDS[step.kind] ?? step.kind;
  const has = step.data !== undefined && step.data !== null;
  return html`<div class=${`card ${kind}${step.failed ? " bad" : ""}`}>
    <div class="who"><span class="unseen">${step.speaker} to ${step.hearer}: </span><b>${line(step.title)}</b></div>
    ${step.text ? html`<${Words} as=${step.kind === "result" ? "pre" : "div"} text=${step.text} />` : ""}
    ${step.fields?.length ? html`<ul class="fields">${step.fields.map(field => html`<li><code>${line(field.name)}</code>
      <span class="about">${line(field.about)}${field.description ? ` — ${line(field.description)}` : ""}</span></li>`)}</ul>` : ""}
    ${!has ? "" : kind === "answer" || kind === "call" ? html`<${Words} as="pre" cls="data" text=${pairs(step.data)} />` : html`<${Json}
      value=${step.data} />`}</div>`;
}
const isPicture = block => /^(image|audio)\//.test(block?.mimeType ?? block?.resource?.mimeType ?? "") && (block.data ?? block.resource?.blob);
function Extras({ result }) {
  const blocks = [...(result?.content ?? []), ...(result?.contents ?? []).map(resource => ({ resource }))].filter(block => block && typeof block === "object");
  const links = blocks.filter(block => block.type === "resource_link");
  return html`${blocks.filter(isPicture).map(block => html`<${Block} block=${block} />`)}
    ${links.map(link => html`<p><a href=${hrefOf("resources", link.uri)}>Read ${line(link.uri)}</a></p>`)}`;
}

function Chips({ round, call }) {
  const { token, ran } = round;
  return html`<div class="chips">
    ${round.server_seconds ? html`<span class="chip">server ${duration(round.server_seconds)}</span>` : ""}
    ${round.status === "waiting" ? html`<span class="chip you">waiting for you ${round.asked_at
      ? html`<${Ticking} from=${round.asked_at} />` : ""}</span>`
      : round.person_seconds ? html`<span class="chip">you ${duration(round.person_seconds)}</span>` : ""}
    ${(ran?.ran ?? []).map(name => html`<span class="chip ran">step ${line(name)}: ran</span>`)}
    ${ran?.recalled?.length ? html`<span class="chip">recalled: ${ran.recalled.map(name => line(name)).join(", ")}</span>` : ""}
    ${token ? html`<span class="chip">token ${size(token.bytes)}${round.status === "waiting" && token.opened?.expires
      ? html`, <${Ticking} until=${token.opened.expires} />` : ""}</span>` : ""}
    ${["cancelled", "failed"].includes(round.status) ? html`<span class="chip bad">${round.status}</span>` : ""}
    ${round.status === "running" ? html`<span class="chip ran">the server works</span>` : ""}</div>`;
}

function Progress({ progress }) {
  if (!progress) return "";
  const told = [progress.message, progress.total ? `${progress.progress} of ${progress.total}` : progress.progress].filter(each => each !== undefined && each !== null).join(", ");
  return html`<div class="progress"><progress value=${progress.total ? progress.progress : undefined} max=${progress.total ?? 1}
    aria-label="Progress"></progress> <span>${line(told)}</span></div>`;
}

function Round({ call, round, selected }) {
  const place = useRef(null);
  const asking = round.status === "waiting" && call.status === "waiting";
  const steps = (call.steps ?? []).filter(step => step.round - (LATER.has(step.kind) ? 1 : 0) === round.number && !(asking && step.kind === "question"));
  const select = () => {
    if (selected || model.route.kind !== "calls") return;
    history.replaceState(null, "", hrefOf("calls", call.id, String(round.number)));
    change({ route: { ...model.route, round: round.number } });
  };
  return html`<li class=${`round${asking ? " now" : ""}${selected ? " selected" : ""}`} id=${`round-${call.id}-${round.number}`}
    tabindex="-1" ref=${place}
      aria-label=${`Round ${round.number}, ${STATUS[round.status] ?? round.status}`} onfocusin=${select} onClick=${select}>
    <span class="number" aria-hidden="true">${round.number}</span><${Chips} round=${round} call=${call} />
    ${steps.filter(step => !LATER.has(step.kind)).map(step => html`<${Card} step=${step} />`)}
    ${asking ? html`<${Questions} key=${`${call.id}-${round.number}`} call=${call} round=${round} />` : ""}
    ${steps.filter(step => LATER.has(step.kind)).map(step => html`<${Card} step=${step} />`)}
    <${Extras} result=${round.result} />
    ${["running", "done", "failed"].includes(round.status) ? html`<${Progress} progress=${round.progress} />` : ""}
    ${round.logs?.length ? html`<details class="leg"><summary>${count(round.logs.length, "log message")}</summary>
      ${round.logs.map(entry => html`<div
        class="note"><code>${timeOf(entry.at)} ${line(entry.level)}</code> ${typeof entry.data === "string" ? html`<${Words} as="span"
        text=${entry.data} />` : html`<code>${compact(entry.data)}</code>`}</div>`)}</details>` : ""}
    <div class="foot"><${Leg} frames=${round.frames} method=${call.method} /><${Forks} call=${call} round=${round} /></div></li>`;
}

export function Talk({ call }) {
  const box = useRef(null);
  const chosen = call.rounds.some(round => round.number === model.route.round) ? model.route.round : call.rounds.at(-1)?.number;
  const state = `${call.status} ${call.rounds.length}`;
  const seen = useRef(state);
  // A new round takes the focus if the form that had it is gone.
  useEffect(() => {
    if (seen.current === state || call.status === "running") return;
    seen.current = state;
    if (document.activeElement && document.activeElement !== document.body) return;
    const round = box.current.querySelector(":scope > .round:last-of-type");
    (round?.querySelector("form :is(input, select, textarea)") ?? round?.querySelector("form .main") ?? round)?.focus({ preventScroll: true });
    round?.scrollIntoView({ block: "nearest" });
  });
  // A deep link shows its round.
  useEffect(() => {
    if (model.route.round && model.route.kind === "calls") document.getElementById(`round-${call.id}-${model.route.round}`)?.scrollIntoView({ block: "nearest" });
  }, [call.id]);
  return html`<ol class="talk" ref=${box} aria-label=${`The conversation, ${count(call.rounds.length, "round")}`}>
    ${call.rounds.map(round => html`<${Round} key=${round.number} call=${call} round=${round} selected=${round.number === chosen} />`)}</ol>`;
}

// --- a whole call -------------------------------------------------------------------------------------------------

const COPIES = { call: "antiphon call", curl: "curl", python: "Python" };
function Exported({ call }) {
  const made = model.exported;
  if (made?.id !== call.id) return "";
  return html`<section class="exported" aria-label="What was saved or copied">
    <div class="row"><b>${made.what in COPIES ? `${made.copied ? "✓ Copied as " : ""}${COPIES[made.what]}` : `✓ Saved as ${line(made.name)}`}</b>
      <span class="sp"></span>
      ${made.text ? html`<button type="button" class="small" onClick=${() => download(made.name, made.text)}>Download</button>` : ""}
      <button type="button" class="quiet" aria-label="Close" onClick=${() => change({ exported: null })}>✕</button></div>
    ${made.note ? html`<p class="soft">${line(made.note, 500)}</p>` : ""}
    ${made.command ? html`<p>Answer it later: <code>${line(made.command)}</code></p>` : ""}
    ${made.inbox ? html`<p><a href=${String(made.inbox).startsWith("/") ? made.inbox : "#/"}>It waits in the inbox</a></p>` : html`<${Words}
      as="pre" cls="data" text=${made.text} />`}</section>`;
}

function Keep({ call }) {
  const button = (what, text, copy) => {
    const can = copy ? true : call.can?.[what] ?? true;
    return html`<button type="button" class="small" disabled=${can !== true || model.busy.export} title=${can === true ? "" : line(can, 300)}
      onClick=${() => take(call.id, what, copy)}>${text}</button>`;
  };
  return html`<div class="row keep">${button("test", "Save as test", false)}${button("cassette", "Save as cassette", false)}
    <span class="sp"></span><span class="soft" id="copy-as">Copy as</span>
    <div class="row" role="group" aria-labelledby="copy-as">${Object.entries(COPIES).map(([what, text]) => button(what, text, true))}</div></div>`;
}

function Head({ call }) {
  const kind = { "tools/call": "tools", "prompts/get": "prompts", "resources/read": "resources" }[call.method];
  const name = call.params?.name ?? call.params?.uri ?? call.title;
  const edit = () => { change({ drafts: { ...model.drafts, [`${kind}/${name}`]: call.params?.arguments ?? {} } }); go(kind, name); };
  const under = ["running", "waiting"].includes(call.status);
  return html`<header class="call"><h1><a href=${hrefOf(kind, name)}>${line(call.title)}</a></h1>
    <span class="chip">${line(call.era)}</span><span
      class=${`chip ${{ done: "ran", failed: "bad", waiting: "you" }[call.status] ?? ""}`}>${STATUS[call.status] ?? line(call.status)}</span>
    <span class="chip">server ${duration(call.server_seconds ?? 0)}</span>${call.person_seconds ? html`<span
      class="chip">you ${duration(call.person_seconds)}</span>` : ""}
    <span class="sp"></span><div class="row">
      ${under ? html`<button type="button" disabled=${call.can?.cancel !== true || model.busy.cancel}
        onClick=${() => giveUp(call.id)}>Give up</button>` : ""}
      ${kind === "resources" ? "" : html`<button type="button" onClick=${edit}>Edit</button>`}
      <button type="button" disabled=${model.busy.start} onClick=${() => callAgain(call)}>Call again</button></div></header>`;
}

export function Call({ call }) {
  return html`<${Head} call=${call} /><${Differs} call=${call} /><${Talk} key=${call.id} call=${call} /><${Keep} call=${call} /><${Exported}
    call=${call} />`;
}

export function Beside({ call }) {
  const origin = call.parent && model.calls[call.parent.id];
  if (!origin) return html`<${Call} call=${call} />`;
  const column = (each, name) => html`<section aria-label=${`${name}, ${each.era}`}><h2><a
    href=${hrefOf("calls", each.id)}>${name}</a> <span class="chip">${line(each.era)}</span>
    <span class=${`chip ${{ done: "ran", failed: "bad" }[each.status] ?? ""}`}>${STATUS[each.status] ?? line(each.status)}</span> <span
      class="chip">server ${duration(each.server_seconds ?? 0)}</span></h2>
    <${Talk} key=${each.id} call=${each} /></section>`;
  return html`<header class="call"><h1>${line(call.title)}</h1><span class="soft">side by side</span></header><${Differs} call=${call} />
    <div class="columns">${column(origin, "As it was")}${column(call, FORKS[call.parent.how]?.[0] ?? line(call.parent.how))}</div>`;
}
