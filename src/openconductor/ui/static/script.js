// What the pages cannot do without a script: enter by a link, fill in live, open a part beside the
// episode, copy, and move by keys. Every page can be read without it.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

function say(text) {
  $("#said").textContent = text;
}

// Return the document at an address of this site; null: it cannot be had.
async function load(address) {
  try {
    const answer = await fetch(address, { credentials: "same-origin" });
    if (!answer.ok) return null;
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return null;
  }
}

// ── enter: the token stands in the fragment, which a browser sends to nobody ──
async function enter() {
  const place = $("#enter");
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) history.replaceState(null, "", location.pathname + location.search);
  if (!place) return;
  if (token) {
    const form = $("form[action$='/session']", place);
    form.elements.token.value = token;
    if (form.elements.key) form.elements.key.required = false;
    form.submit();
    return;
  }
  // A browser that comes from another site did not send its cookie.
  const known = await fetch(place.dataset.session).then((answer) => answer.ok, () => false);
  if (known) location.replace(location.href);
}

// ── live: when the server says that something changed, the page is loaded again and put in place ──
const AGAIN_MS = 2000; // from a load that failed until the next try
let source = null;

function listen() {
  if (source) source.close();
  source = null;
  const live = $("[data-live]");
  if (!live) return;
  source = new EventSource(live.dataset.live);
  source.addEventListener("message", refresh);
  source.addEventListener("end", () => source && source.close());
}

let refreshing = false;

async function refresh() {
  if (refreshing || document.hidden) return;
  if ($(".episodes :checked") || $("main :is(input, textarea, select):focus")) return; // somebody chooses or types
  refreshing = true;
  if (source) source.close();
  const page = await load(location.href);
  refreshing = false;
  const fresh = page && $("#main", page);
  if (!fresh) {
    setTimeout(listen, AGAIN_MS);
    return;
  }
  const open = $$("main details[open]").map((details) => details.id).filter(Boolean);
  const focused = addressOf(document.activeElement);
  $("#main").replaceWith(document.importNode(fresh, true));
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) $$("main a").find((link) => addressOf(link) === focused)?.focus();
  mark();
  listen();
}

function addressOf(element) {
  return element && element.getAttribute && element.getAttribute("href");
}

// ── a part of the episode, in the panel beside it ──
let opener = null;

async function openPart(address, key) {
  const page = await load(address);
  const part = page && $("article.part", page);
  if (!part) {
    location.assign(address);
    return;
  }
  const panel = $("#panel");
  const close = document.createElement("button");
  close.className = "close";
  close.textContent = "Close";
  close.addEventListener("click", closePart);
  panel.replaceChildren(close, document.importNode(part, true));
  panel.hidden = false;
  panel.scrollTop = 0;
  panel.dataset.key = key;
  history.replaceState(null, "", `#part-${key}`);
  close.focus();
  mark();
}

function closePart() {
  const panel = $("#panel");
  if (panel.hidden) return;
  const key = panel.dataset.key;
  panel.hidden = true;
  panel.replaceChildren();
  history.replaceState(null, "", location.pathname + location.search);
  mark();
  const back = opener && opener.isConnected ? opener : shown(key);
  if (back) back.focus();
  opener = null;
}

// Return the visible link to a part.
function shown(key) {
  return $$(`main [data-part="${CSS.escape(key)}"]`).find((link) => link.getClientRects().length);
}

function mark() {
  const panel = $("#panel");
  const key = panel.hidden ? null : panel.dataset.key;
  for (const link of $$("main [data-part]")) link.classList.toggle("here", link.dataset.part === key);
}

function openFromAddress() {
  const key = /^#part-([\d-]+)$/.exec(location.hash)?.[1];
  const link = key && shown(key);
  if (link && $("[data-episode]")) openPart(link.getAttribute("href"), key);
}

// ── clicks ──
document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-part], [data-copy], [data-copy-address]");
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  if (target.dataset.copyAddress) {
    copy(new URL(target.dataset.copyAddress, location.href).href, target);
  } else if (target.dataset.copy) {
    copy(document.getElementById(target.dataset.copy).textContent, target);
  } else if ($("[data-episode]")) {
    event.preventDefault();
    if (!target.closest("#panel")) opener = target;
    openPart(target.getAttribute("href"), target.dataset.part);
  }
});

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.dataset.name ??= button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = button.dataset.name; }, 1500);
    say("Copied");
  } catch {
    say("The browser does not allow copying");
  }
}

// ── keys ──
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    closePart();
    return;
  }
  if (event.target.closest("input, select, textarea")) return;
  const panel = $("#panel");
  if (!panel.hidden && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
    $(event.key === "ArrowLeft" ? "a[rel=prev]" : "a[rel=next]", panel)?.click();
  } else if (event.key === "/" && $("input[type=search]")) {
    event.preventDefault();
    $("input[type=search]").focus();
  } else if (event.key === "j" || event.key === "k") {
    move(event.key === "j" ? 1 : -1);
  }
});

// Focus the next or the previous row of a list, or part of an episode.
function move(by) {
  const links = $$("main .go, main .node").filter((link) => link.getClientRects().length);
  if (!links.length) return;
  const place = links.indexOf(document.activeElement);
  const next = place < 0 ? (by > 0 ? 0 : links.length - 1) : place + by;
  links[Math.min(links.length - 1, Math.max(0, next))].focus();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && $("[data-live]")) refresh();
});

// A link that is pasted into a page that is open already changes the fragment only.
addEventListener("hashchange", () => {
  enter();
  openFromAddress();
});

enter();
openFromAddress();
listen();
