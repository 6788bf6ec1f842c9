// A form made from a JSON Schema. What is left empty is absent: `undefined`.
import { html, useEffect, useRef, useState } from "./preact.js";
import { compact, line, Words } from "./text.js";

const DEEPEST = 12;
const TYPES = { email: "email", uri: "url", date: "date", password: "password" };
const HINTS = { "date-time": "2026-07-28T12:00:00Z", time: "12:00:00Z", uuid: "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" };
const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value);

// The schema itself: references followed, `allOf` merged, `null` of an optional value left out.
export function resolved(schema, root, depth = 0) {
  if (!isObject(schema) || depth > DEEPEST) return {};
  if (typeof schema.$ref === "string" && schema.$ref.startsWith("#/")) {
    const { $ref, ...rest } = schema;
    const target = $ref.slice(2).split("/").map(part => decodeURIComponent(part).replace(/~1/g, "/").replace(/~0/g, "~"))
      .reduce((found, part) => isObject(found) && Object.hasOwn(found, part) ? found[part] : undefined, root);
    return { ...resolved(target, root, depth + 1), ...rest };
  }
  if (Array.isArray(schema.allOf)) {
    const { allOf, ...rest } = schema;
    return allOf.map(part => resolved(part, root, depth + 1)).reduceRight((all, part) => ({
      ...part, ...all, ...(part.properties || all.properties ? { properties: { ...part.properties, ...all.properties } } : {}),
      ...(part.required || all.required ? { required: [...(part.required ?? []), ...(all.required ?? [])] } : {}) }), rest);
  }
  for (const word of ["anyOf", "oneOf"]) {
    if (!Array.isArray(schema[word])) continue;
    const { [word]: given, ...rest } = schema;
    const variants = given.map(part => resolved(part, root, depth + 1));
    const useful = variants.filter(part => part.type !== "null");
    if (useful.length === 1) return { ...useful[0], ...rest, nullable: useful.length < variants.length };
    if (useful.length && useful.every(part => "const" in part)) return { ...rest, enum: useful.map(part => part.const), enumNames: useful.map(part => part.title) };
    return { ...rest, variants: useful };
  }
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter(type => type !== "null");
    return types.length === 1 ? { ...schema, type: types[0] } : { ...schema, type: undefined, variants: types.map(type => ({ ...schema, type })) };
  }
  return schema;
}

// What a form holds before anything is typed. A required boolean is false, as its box shows.
export function initial(schema, root, required = true, depth = 0) {
  const known = resolved(schema, root);
  if ((known.default ?? undefined) !== undefined) return known.default;
  if ("const" in known) return known.const;
  if (known.type === "boolean" && required && !known.enum) return false;
  if (!isObject(known.properties) || !required || depth > DEEPEST) return undefined;
  const members = Object.entries(known.properties).map(([name, part]) =>
    [name, initial(part, root, (known.required ?? []).includes(name), depth + 1)]);
  return Object.fromEntries(members.filter(([, value]) => value !== undefined));
}

const choicesOf = known => known.enum?.map((value, at) => [value, known.enumNames?.[at] ?? (typeof value === "string" ? value : compact(value))]);

// --- one field ----------------------------------------------------------------------------------------------------

// `active`: all that holds this field is required or begun, so the browser may insist on it.
function Field({ name, schema, root, value, onChange, required, active = true, id, depth = 0 }) {
  const known = resolved(schema, root);
  const title = known.title && line(known.title).toLowerCase() !== line(name).replace(/_/g, " ").toLowerCase() ? line(known.title) : "";
  const about = aboutOf(known);
  const rules = { id, value, onChange, required, active: active && (required || (value ?? undefined) !== undefined), known, root, depth };
  const label = html`<span class="name">${line(name)}</span>${title && html` <span class="soft">${title}</span>`}
    ${required ? html` <span class="needed" title="required" aria-hidden="true">*</span>` : ""}`;
  const help = (known.description || about) && html`<small id=${`${id}-about`}>
    ${known.description ? html`<${Words} as="span" cls="words" text=${known.description} />` : ""} ${about && html`<i>${about}</i>`}</small>`;
  const kind = kindOf(known, depth);
  if (kind.group) {
    return html`<fieldset class="group" aria-describedby=${help ? `${id}-about` : undefined}>
      <legend>${label}</legend>${help}<${kind.draw} ...${rules} name=${name} /></fieldset>`;
  }
  return html`<div class="field"><label for=${id}>${label}</label>
    <div><${kind.draw} ...${rules} described=${help ? `${id}-about` : undefined} />${help}</div></div>`;
}

function aboutOf(known) {
  const { minimum: low, maximum: high, minLength: short, maxLength: long, minItems: few, maxItems: many } = known;
  const range = (from, to, unit) => from !== undefined && to !== undefined ? `${from} to ${to}${unit}`
    : from !== undefined ? `at least ${from}${unit}` : to !== undefined ? `at most ${to}${unit}` : "";
  return [known.type === "integer" ? "whole number" : known.type === "number" ? "number" : "", known.format ? line(known.format) : "",
    range(low, high, ""), range(short, long, " characters"), range(few, many, " entries"),
    known.pattern ? `must match ${line(known.pattern)}` : ""].filter(Boolean).join(", ");
}

function kindOf(known, depth) {
  const choices = choicesOf(known);
  if (choices) return { draw: Choice };
  if (known.variants) return { draw: Variants, group: true };
  if (known.type === "array" && isObject(known.items) && !known.prefixItems && depth < DEEPEST)
    return { draw: Entries, group: true };
  if ((known.type === "object" || known.properties) && depth < DEEPEST) {
    if (isObject(known.properties) && Object.keys(known.properties).length) return { draw: Members, group: true };
    if (isObject(known.additionalProperties)) return { draw: Pairs, group: true };
  }
  return { draw: { boolean: Truth, integer: Digits, number: Digits, string: Letters }[known.type] ?? Anything };
}

const attributes = ({ id, required, active, described }) => ({ id, required: required && active, "aria-describedby": described });

function Letters(rules) {
  const { value, onChange, known } = rules;
  const given = { ...attributes(rules), value: value ?? "", maxLength: known.maxLength, minLength: known.minLength,
    autocomplete: "off", spellcheck: false, dir: "auto", onInput: event => onChange(event.target.value || undefined) };
  if (known.format) return html`<input type=${TYPES[known.format] ?? "text"} placeholder=${HINTS[known.format]} ...${given} />`;
  const onKeyDown = event => {
    if (event.key !== "Enter" || event.shiftKey || event.ctrlKey || event.metaKey || event.isComposing) return;
    event.preventDefault();
    event.target.form?.requestSubmit();
  };
  return html`<textarea rows="1" ...${given} onKeyDown=${onKeyDown}></textarea>`;
}

function Digits(rules) {
  const { value, onChange, known } = rules;
  return html`<input type="number" step=${known.type === "integer" ? "1" : "any"} min=${known.minimum} max=${known.maximum} ...${attributes(rules)}
    value=${value ?? ""} onInput=${event => onChange(event.target.value === "" ? undefined : Number(event.target.value))} />`;
}

function Truth(rules) {
  const { value, onChange, required, known } = rules;
  if (required || known.default !== undefined) {
    const { required: _, ...given } = attributes(rules);
    return html`<label class="tick"><input type="checkbox" ...${given} checked=${value === true}
      onChange=${event => onChange(event.target.checked)} />
      <span aria-hidden="true">${value ? "yes" : "no"}</span></label>`;
  }
  return html`<${Choice} ...${rules} known=${{ ...known, enum: [true, false], enumNames: ["yes", "no"] }} />`;
}

function Choice(rules) {
  const { value, onChange, required, known } = rules;
  const choices = choicesOf(known);
  const at = choices.findIndex(([choice]) => compact(choice) === compact(value));
  return html`<select ...${attributes(rules)} value=${at < 0 ? "" : String(at)}
    onChange=${event => onChange(event.target.value === "" ? undefined : choices[event.target.value][0])}>
    <option value="">${required ? "choose…" : "not given"}</option>
    ${choices.map(([, name], place) => html`<option value=${String(place)}>${line(name)}</option>`)}</select>`;
}

function Anything(rules) {
  return html`<${RawJson} ...${attributes(rules)} value=${rules.value} onChange=${rules.onChange} rows="2" />`;
}

// --- fields that hold fields --------------------------------------------------------------------------------------

function Members({ known, root, value, onChange, id, depth, active = true }) {
  const held = isObject(value) ? value : {};
  const change = (name, item) => {
    // In the order of the schema, and absent where nothing is given.
    const names = new Set([...Object.keys(known.properties), ...Object.keys(held)]);
    const all = [...names].map(each => [each, each === name ? item : Object.hasOwn(held, each) ? held[each] : undefined]);
    const next = Object.fromEntries(all.filter(([, each]) => each !== undefined));
    onChange(Object.keys(next).length || depth === 0 ? next : undefined);
  };
  return Object.entries(known.properties).map(([name, part], at) => html`<${Field} key=${name} name=${name} schema=${part} root=${root}
    value=${Object.hasOwn(held, name) ? held[name] : undefined} onChange=${item => change(name, item)} id=${`${id}-${at}`} depth=${depth + 1}
    required=${(known.required ?? []).includes(name)} active=${active} />`);
}

function Entries({ known, root, value, onChange, id, depth, name }) {
  const items = Array.isArray(value) ? value : [];
  const part = resolved(known.items, root);
  const choices = choicesOf(part);
  if (choices && known.uniqueItems !== false) {
    const has = choice => items.some(item => compact(item) === compact(choice));
    const toggle = choice => onChange(choices.map(([each]) => each).filter(each => has(each) !== (each === choice)));
    return html`<div class="ticks">${choices.map(([choice, shown], at) => html`<label class="tick">
      <input type="checkbox" id=${`${id}-${at}`} checked=${has(choice)} onChange=${() => toggle(choice)} /> ${line(shown)}</label>`)}</div>`;
  }
  const place = (at, item) => onChange(items.map((each, index) => index === at ? item ?? null : each));
  return html`${items.map((item, at) => html`<div class="entry"><${Field} name=${`${at + 1}`} schema=${known.items} root=${root}
    value=${item ?? undefined}
      onChange=${next => place(at, next)} id=${`${id}-${at}`} depth=${depth + 1} required=${true} />
      <button type="button" class="quiet" aria-label=${`Remove entry ${at + 1} of ${line(name)}`}
        onClick=${() => onChange(items.filter((_, index) => index !== at))}>✕</button></div>`)}
    <button type="button" class="small" onClick=${() => onChange([...items, initial(known.items, root) ?? null])}>Add an entry<span
      class="unseen"> to ${line(name)}</span></button>`;
}

function Pairs({ known, root, value, onChange, id, depth }) {
  const held = Object.entries(isObject(value) ? value : {});
  const [fresh, setFresh] = useState("");
  const put = entries => onChange(entries.length ? Object.fromEntries(entries) : undefined);
  const add = () => { if (fresh && !held.some(([name]) => name === fresh)) { put([...held, [fresh, initial(known.additionalProperties, root) ?? null]]); setFresh(""); } };
  return html`${held.map(([name, item], at) => html`<div class="entry" key=${name}><${Field} name=${name}
    schema=${known.additionalProperties} root=${root}
      value=${item ?? undefined} onChange=${next => put(held.map(each => each[0] === name ? [name, next ?? null] : each))}
        id=${`${id}-${at}`} depth=${depth + 1} required=${true} />
      <button type="button" class="quiet" aria-label=${`Remove ${line(name)}`}
        onClick=${() => put(held.filter(each => each[0] !== name))}>✕</button></div>`)}
    <div class="entry"><input value=${fresh} aria-label="Name of the new entry" placeholder="name" onInput=${event => setFresh(event.target.value)} />
      <button type="button" class="small" onClick=${add}>Add</button></div>`;
}

function Variants({ known, root, value, onChange, id, depth, required }) {
  const fits = part => value === undefined ? false : part.type === "array" ? Array.isArray(value) : part.type === "object" || part.properties
    ? isObject(value) && (part.required ?? []).every(name => name in value) : part.enum ? part.enum.includes(value)
      : typeof value === (part.type === "integer" ? "number" : part.type);
  const found = known.variants.findIndex(fits);
  const [chosen, choose] = useState(found);
  const names = known.variants.map((part, at) => line(part.title ?? part.type ?? `form ${at + 1}`));
  const pick = at => { choose(at); onChange(at < 0 ? undefined : initial(known.variants[at], root)); };
  return html`<div class="field"><label for=${`${id}-kind`}>kind</label><select id=${`${id}-kind`} required=${required} value=${String(chosen)}
      onChange=${event => pick(Number(event.target.value))}><option value="-1">not given</option>
      ${names.map((name, at) => html`<option value=${String(at)}>${name}</option>`)}</select></div>
    ${chosen < 0 ? "" : html`<${Field} key=${chosen} name=${names[chosen]} schema=${known.variants[chosen]} root=${root} value=${value}
      onChange=${onChange} id=${`${id}-v`} depth=${depth + 1} required=${required} />`}`;
}

// --- JSON as text, and the whole form -----------------------------------------------------------------------------

export function RawJson({ value, onChange, rows = "8", ...rest }) {
  const [text, setText] = useState(() => value === undefined ? "" : JSON.stringify(value, null, 2));
  const box = useRef(null);
  const read = typed => {
    setText(typed);
    try {
      onChange(typed.trim() ? JSON.parse(typed) : undefined);
      box.current.setCustomValidity("");
    } catch (error) {
      box.current.setCustomValidity(`This is not JSON: ${error.message}`);
    }
  };
  useEffect(() => { if (text && value === undefined) read(text); }, []);
  return html`<textarea ref=${box} class="mono" rows=${rows} spellcheck=${false} placeholder="JSON" value=${text} ...${rest}
    onInput=${event => read(event.target.value)}></textarea>`;
}

// The fields of an object's schema, or its JSON as text.
export function Form({ schema, value, onChange, id, raw }) {
  const known = resolved(schema, schema);
  if (raw) return html`<${RawJson} id=${`${id}-raw`} aria-label="The same as JSON" value=${value} onChange=${onChange} />`;
  if (!isObject(known.properties) || !Object.keys(known.properties).length) {
    return known.additionalProperties === false || !isObject(known.additionalProperties) ? html`<p class="soft">There is nothing to fill in.</p>`
      : html`<${Pairs} known=${known} root=${schema} value=${value} onChange=${onChange} id=${id} depth=${0} />`;
  }
  return html`<${Members} known=${known} root=${schema} value=${value} onChange=${onChange} id=${id} depth=${0} />`;
}

