"use strict";
// Updates the page without a reload. What did not change is not touched, so that focus, scroll
// position, a selection and opened details stay as they are. Without this script the page reloads.
(() => {
  const LOST_AFTER = 2; // failures in a row: one may be a restart
  const ANSWER_MS = 10000;
  const COPIED_MS = 5000; // long enough to be read
  const SHARE = 0.1; // of the time may go into answering us: the process has other work
  const page = () => document.getElementById("page");
  const interval = () => Number(page().dataset.refreshSeconds) * 1000;
  const lost = document.getElementById("lost");
  let failures = 0;
  let lastSeen = new Date();
  let timer = 0;
  let copied = null; // the command that was copied a moment ago

  const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.dataset.key : undefined);

  const alike = (one, other) =>
    one.nodeType === other.nodeType &&
    one.nodeName === other.nodeName &&
    keyOf(one) === keyOf(other);

  function morphAttributes(old, fresh) {
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      // Which details are open is the reader's business.
      const kept = name === "open" && old.nodeName === "DETAILS";
      if (!kept && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
  }

  function morph(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    morphAttributes(old, fresh);
    const keyed = new Map();
    for (const child of old.children) {
      if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
    }
    let at = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const key = keyOf(wanted);
      const found = key === undefined ? at : keyed.get(key);
      if (found && alike(found, wanted)) {
        if (found === at) at = at.nextSibling;
        else old.insertBefore(found, at);
        morph(found, wanted);
      } else {
        old.insertBefore(document.importNode(wanted, true), at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function show(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const wanted = fresh.getElementById("page");
    if (!wanted) throw new Error("the answer is not the status page");
    if (document.title !== fresh.title) document.title = fresh.title;
    const icon = document.querySelector("link[rel=icon]");
    const freshIcon = fresh.querySelector("link[rel=icon]");
    if (icon && freshIcon) morphAttributes(icon, freshIcon);
    morph(page(), wanted);
    showCopied();
  }

  async function refresh() {
    clearTimeout(timer);
    if (document.hidden) return;
    const begun = performance.now();
    try {
      const answer = await fetch("/", {
        cache: "no-store",
        credentials: "same-origin",
        headers: { accept: "text/html" },
        signal: AbortSignal.timeout(ANSWER_MS),
      });
      // The token is another one now: the server says what to do.
      if (answer.status === 401) return location.reload();
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      show(await answer.text());
      failures = 0;
      lastSeen = new Date();
      lost.hidden = true;
    } catch {
      failures += 1;
      if (failures >= LOST_AFTER) {
        const seen = lastSeen.toISOString().slice(11, 19);
        const said = `The process does not answer. This is how it was at ${seen} UTC.`;
        if (lost.hidden || lost.textContent !== said) lost.textContent = said;
        lost.hidden = false;
      }
    }
    clearTimeout(timer);
    timer = setTimeout(refresh, Math.max(interval(), (performance.now() - begun) / SHARE));
  }

  // A refresh in between brings the button as the server knows it.
  function showCopied() {
    for (const button of document.querySelectorAll("button.copy")) {
      const command = button.parentElement.querySelector("code");
      if (command.textContent === copied) button.firstChild.nodeValue = "Copied";
    }
  }

  async function copy(button) {
    const command = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(command.textContent);
      copied = command.textContent;
      setTimeout(() => { copied = null; }, COPIED_MS);
      showCopied();
    } catch {
      getSelection().selectAllChildren(command);
    }
  }

  document.documentElement.classList.add("scripted");
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.copy");
    if (button) copy(button);
  });
  document.addEventListener("visibilitychange", refresh);
  timer = setTimeout(refresh, interval());
})();
