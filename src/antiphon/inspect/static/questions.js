// The questions of a round, answered in place.
import { html, useState } from "./preact.js";
import { answer, later, model } from "./model.js";
import { Form, initial, RawJson } from "./form.js";
import { compact, Json, line, visible, Words } from "./text.js";

const IMAGES = /^image\/(png|jpeg|gif|webp|avif)$/;

// Content of a message or a result that is not text: pictures, sounds, links.
export function Block({ block }) {
  const data = block?.data ?? block?.resource?.blob;
  const type = String(block?.mimeType ?? block?.resource?.mimeType ?? "");
  if (typeof data === "string" && IMAGES.test(type)) return html`<img class="picture" alt=${`A picture, ${line(type)}`}
    src=${`data:${type};base64,${data}`} />`;
  if (typeof data === "string" && /^audio\/[\w.+-]+$/.test(type)) return html`<audio controls src=${`data:${type};base64,${data}`}></audio>`;
  if (typeof (block?.text ?? block?.resource?.text) === "string") return html`<${Words} text=${block.text ?? block.resource.text} />`;
  return html`<${Json} value=${block} />`;
}

const kindOf = ({ method, params = {} }) => method === "sampling/createMessage" ? "sampling" : method === "roots/list" ? "roots"
  : params.mode === "url" || (params.url && !params.requestedSchema) ? "url" : "form";

// What is sent unless something is changed.
function draftOf(question, given) {
  const kind = kindOf(question);
  if (kind === "sampling") return given ?? { role: "assistant", content: { type: "text", text: "" }, model: "a person" };
  if (kind === "roots") return given ?? { roots: [] };
  if (kind === "url") return { action: "accept" };
  const schema = question.params?.requestedSchema ?? {};
  return { action: "accept", content: given?.content ?? initial(schema, schema) ?? {} };
}
const REFUSED = { error: "refused" };

function Sampling({ question, value, onChange, id, raw }) {
  const { messages = [], systemPrompt, maxTokens, ...rest } = question.params ?? {};
  const blocks = content => Array.isArray(content) ? content : [content];
  const text = value?.content?.text;
  return html`<div class="messages">
      ${systemPrompt ? html`<p><b>system</b><${Words} text=${systemPrompt} /></p>` : ""}
      ${messages.map(({ role, content }) => html`<div><b>${line(role)}</b>${blocks(content).map(block => html`<${Block} block=${block} />`)}</div>`)}
    </div>
    <p class="soft">${maxTokens ? `At most ${line(maxTokens)} tokens.` : ""} ${Object.keys(rest).length
      ? html`Also: <code>${compact(rest)}</code>` : ""}</p>
    ${raw || text === undefined ? html`<${RawJson} aria-label="The reply as JSON" value=${value} onChange=${onChange} />`
      : html`<div class="field"><label for=${id}>The model's reply</label><textarea id=${id} rows="3" required value=${text}
          placeholder="Write the reply, or paste it"
            onInput=${event => onChange({ ...value, content: { type: "text", text: event.target.value } })}></textarea></div>
        <div class="field"><label for=${`${id}-model`}>Model</label><input id=${`${id}-model`} value=${value.model}
          onInput=${event => onChange({ ...value, model: event.target.value })} /></div>`}`;
}

function Roots({ value, onChange, id }) {
  const roots = value?.roots ?? [];
  const put = list => onChange({ roots: list });
  return html`<p class="soft">The server asks which folders it may know. An empty list says: none.</p>
    ${roots.map((root, at) => html`<div class="entry"><div class="field"><label for=${`${id}-${at}`}>Root ${at + 1}</label>
      <input id=${`${id}-${at}`} type="url" required placeholder="file:///home/ada/project" value=${root.uri}
        onInput=${event => put(roots.map((each, index) => index === at ? { ...each, uri: event.target.value } : each))} /></div>
      <button type="button" class="quiet" aria-label=${`Remove root ${at + 1}`}
        onClick=${() => put(roots.filter((_, index) => index !== at))}>✕</button></div>`)}
    <button type="button" class="small" onClick=${() => put([...roots, { uri: "file:///" }])}>Add a root</button>`;
}

function Address({ question, location }) {
  const { before, host, after, warnings, can_be_opened: safe } = location ?? { before: question.params?.url ?? "", warnings: [] };
  return html`<div class="address"><p>It wants you to open a page of <b class="host">${visible(host || "no host")}</b></p>
    <code>${visible(before)}<b>${visible(host)}</b>${visible(after)}</code>
    ${warnings.map(warning => html`<p class="warn">⚠ ${line(warning, 500)}</p>`)}
    ${safe ? html`<p><a class="button" href=${question.params.url} target="_blank"
      rel="noopener noreferrer">Open ${visible(host)} in a new tab ↗</a></p>` : ""}</div>`;
}

function Body(props) {
  const { question, location, value, onChange, id, raw } = props;
  const kind = kindOf(question);
  if (kind === "sampling") return html`<${Sampling} ...${props} />`;
  if (kind === "roots") return html`<${Roots} ...${props} />`;
  if (kind === "url") return html`<${Address} question=${question} location=${location} />`;
  return html`<${Form} schema=${question.params?.requestedSchema ?? {}} value=${value.content} id=${id} raw=${raw}
    onChange=${content => onChange({ ...value, content })} />`;
}

// All questions of a round in one form: `given` are answers to begin with, `send` takes them all.
export function Questions({ call, round, given, send, sendName = "Answer", onClose }) {
  const entries = Object.entries(round.questions ?? {});
  const [drafts, setDrafts] = useState(() => Object.fromEntries(entries.map(([key, question]) => [key, draftOf(question, given?.[key])])));
  const [actions, setActions] = useState({});
  const [raw, setRaw] = useState(false);
  const one = entries.length === 1;
  const give = send ?? (answers => answer(call.id, round.number, answers));
  const answered = (key, question, action) => action === "accept" || !action ? drafts[key]
    : ["sampling", "roots"].includes(kindOf(question)) ? REFUSED : { action };
  const sendAll = all => give(Object.fromEntries(entries.map(([key, question]) => [key, answered(key, question, all ?? actions[key])])));
  const refusable = entries.some(([, question]) => ["form", "url"].includes(kindOf(question)));
  const who = line(call.server ?? model.state.server?.name ?? "The server");
  const busy = model.busy.answer || model.busy.fork;
  return html`<form class="card question asking" onSubmit=${event => { event.preventDefault(); sendAll(); }}>
    ${entries.map(([key, question], at) => {
      const id = `q-${call.id}-${round.number}-${at}${send ? "-fork" : ""}`;
      const kind = kindOf(question);
      const off = actions[key] && actions[key] !== "accept";
      return html`<div class="one" key=${key}>
        <div class="who"><b>${who} asks${{ sampling: " the model", roots: " for roots", url: " in a browser", form: "" }[kind]} · ${line(key)}</b></div>
        ${question.params?.message ? html`<${Words} text=${question.params.message} />` : ""}
        ${off ? "" : html`<${Body} question=${question} location=${round.locations?.[key]} value=${drafts[key]} id=${id} raw=${raw}
          onChange=${value => setDrafts(before => ({ ...before, [key]: value }))} />`}
        ${one ? "" : html`<div class="seg" role="radiogroup" aria-label=${`What to do about ${line(key)}`}>
          ${(["form", "url"].includes(kind) ? ["accept", "decline", "cancel"] : ["accept", "refuse"]).map(action => html`<label><input type="radio" name=${id} checked=${(actions[key] ?? "accept") === action}
            onChange=${() => setActions({ ...actions, [key]: action })} /><span>${action}</span></label>`)}</div>`}</div>`;
    })}
    <div class="row buttons">
      <button class="main" disabled=${busy}>${one ? sendName : `${sendName} all ${entries.length}`} <kbd>Ctrl ⏎</kbd></button>
      <button type="button" disabled=${busy} onClick=${() => sendAll("decline")}>${refusable ? "Decline" : "Refuse"}${one ? "" : " all"}</button>
      ${refusable ? html`<button type="button" disabled=${busy} onClick=${() => sendAll("cancel")}>Cancel${one ? "" : " all"}</button>` : ""}
      ${entries.every(([, question]) => ["url", "roots"].includes(kindOf(question))) ? "" : html`<label class="tick soft"><input
        type="checkbox" checked=${raw} onChange=${event => setRaw(event.target.checked)} /> as JSON</label>`}
      <span class="sp"></span>
      ${onClose ? html`<button type="button" class="quiet" onClick=${onClose}>Close</button>`
        : call.can?.later === true ? html`<button type="button" class="quiet" disabled=${model.busy.later}
          onClick=${() => later(call.id)}>Leave for later</button>` : ""}
    </div></form>`;
}
