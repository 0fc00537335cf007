"use strict";
// What the parts of a page share. Text of data only ever becomes text nodes and attributes, never markup.

const DATA = JSON.parse(document.getElementById("data").textContent);

const made = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null));
  return element;
};
const el = (tag, attributes = {}, ...children) => made(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  made(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const grouped = (number) => number.toLocaleString("en");

// A number as a reader wants it: 1,234  12.35  0.0123
const shown = (x) => {
  if (x == null) return "–";
  const size = Math.abs(x);
  if (size >= 1000) return grouped(Math.round(x));
  if (size >= 1 || size === 0) return x.toFixed(2);
  return size < 1e-3 ? x.toExponential(1) : x.toPrecision(3);
};

const swatch = (colour) => el("span", { class: "swatch", style: `--colour: ${colour}`, "aria-hidden": "true" });

const choice = (label, options, value, onchange) =>
  el("label", {}, `${label} `, el("select", { onchange: (event) => onchange(event.target.value) },
    options.map(([key, text]) => el("option", { value: key, selected: String(key) === String(value) }, text))));
