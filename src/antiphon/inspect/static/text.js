// Texts of a server are hostile: they are shown in text nodes, with every control made visible, and shortened.
import { html, useState } from "./preact.js";

// Controls, formats (bidi), lone surrogates, line and paragraph separators; not line ends, tabs, and the joiner of emoji.
const ODD = /(?![\n\t\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const MOST_LETTERS = 4000;
const MOST_LINES = 60;
const MOST_MARKS = 500;

const escape = letter => {
  const code = letter.codePointAt(0);
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}`
    : code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\u{${code.toString(16)}}`;
};
export const visible = text => String(text ?? "").replace(ODD, escape);
export const line = (text, most = 200) => {
  const whole = visible(String(text ?? "").slice(0, 4 * most)).replace(/\s+/g, " ").trim();
  return whole.length > most ? `${whole.slice(0, most)}…` : whole;
};

// The text in parts: each control is a mark of its own, so that it is not taken for what it is written as.
const marked = text => {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(ODD)) {
    if (parts.length > MOST_MARKS) break;
    const code = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    parts.push(text.slice(from, found.index), html`<mark class="odd" title=${`The character U+${code}`}>${escape(found[0])}</mark>`);
    from = found.index + found[0].length;
  }
  return [...parts, visible(text.slice(from))];
};

const cutOf = text => {
  const lines = text.split("\n", MOST_LINES + 1);
  const kept = lines.length > MOST_LINES ? lines.slice(0, MOST_LINES).join("\n") : text;
  return kept.length > MOST_LETTERS ? kept.slice(0, MOST_LETTERS) : kept;
};

// Words of a server. `as` is the element that holds them.
export function Words({ text, as = "div", cls = "words", draw = marked }) {
  const whole = String(text ?? "");
  const [all, showAll] = useState(false);
  const kept = all ? whole : cutOf(whole);
  const cut = kept.length < whole.length || all;
  return html`<${as} class=${cls} dir="auto">${draw(kept)}${!cut ? "" : html`
    <button type="button" class="quiet more" onClick=${() => showAll(!all)}>
      ${all ? "Show less" : `… Show all ${count(whole.length, "character")}`}</button>`}</${as}>`;
}

const TOKENS = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\b\d[\d.eE+-]*/g;
const coloured = text => {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(TOKENS)) {
    if (parts.length > 4 * MOST_MARKS) break;
    const [word, string, colon] = found;
    const cls = colon ? "key" : string ? "string" : "number";
    parts.push(text.slice(from, found.index), html`<span class=${cls}>${string ?? word}</span>`, colon ?? "");
    from = found.index + word.length;
  }
  return [...parts, text.slice(from)];
};
// JSON can write every character as an escape, so the escapes are part of it.
const escapedJson = text => text.replace(ODD, letter => [...Array(letter.length).keys()]
  .map(at => `\\u${letter.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));
const written = value => Array.isArray(value) ? `[${value.map(written).join(", ")}]`
  : value && typeof value === "object"
    ? `{${Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${written(item)}`).join(", ")}}`
    : JSON.stringify(value) ?? "";
export const compact = value => escapedJson(written(value));
export const Json = ({ value, cls = "data" }) => {
  const short = compact(value);
  return html`<${Words} as="pre" cls=${`${cls} json`} draw=${coloured}
    text=${short.length <= 80 ? short : escapedJson(JSON.stringify(value, null, 2) ?? "")} />`;
};
// Arguments as people write them: city="Lisbon", nights=3
export const pairs = value => value && typeof value === "object" && !Array.isArray(value)
  ? Object.entries(value).map(([name, item]) => `${visible(name)} = ${compact(item)}`).join(", ") : compact(value);

export const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
export const size = bytes => bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
export const duration = seconds => seconds < 0.9995 ? `${Math.round(seconds * 1000)} ms`
  : seconds < 99.95 ? `${seconds.toFixed(1)} s` : `${Math.floor(Math.round(seconds) / 60)} min ${Math.round(seconds) % 60} s`;
export const clock = seconds => {
  const left = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(left / 3600), Math.floor(left / 60) % 60, String(left % 60).padStart(2, "0")];
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
};
export const timeOf = at => new Date(at * 1000).toLocaleTimeString("en-GB");
export const whenOf = at => {
  const day = new Date(at * 1000);
  return day.toDateString() === new Date().toDateString() ? day.toLocaleTimeString("en-GB", { timeStyle: "short" })
    : day.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
};
