// The filter editor's live side. The service reads, changes and judges the filter; this puts its answers in place.
"use strict";

(() => {
  const form = document.getElementById("editor");
  const filter = document.getElementById("filter");
  const events = document.getElementById("events");
  const verdict = document.getElementById("verdict");
  let unfolded = [];

  const keepUnfolded = () => {
    unfolded = [...form.querySelectorAll("#outcome details[open]")].map((details) => details.id);
  };

  const asked = new WeakMap();
  const typed = () => JSON.stringify([filter.value, events && events.value]);
  form.addEventListener("htmx:configRequest", (event) => asked.set(event.detail.elt, typed()));
  form.addEventListener("htmx:beforeSwap", keepUnfolded);

  // A webhook that was made since the page was loaded has no box on it.
  const choose = (uid) => {
    let box = [...form.querySelectorAll("input[name=webhook]")].find((each) => each.value === uid);
    if (!box) {
      box = Object.assign(document.createElement("input"), { type: "checkbox", name: "webhook", value: uid, hidden: true });
      form.append(box);
    }
    box.checked = true;
  };

  // What was clicked together replaces what was sent, but never what was typed since.
  form.addEventListener("htmx:afterOnLoad", (event) => {
    const made = document.getElementById("filter-new");
    const types = document.getElementById("events-new");
    const isAsTyped = asked.get(event.detail.elt) === typed();
    if (made && isAsTyped) filter.value = made.textContent;
    if (types && isAsTyped) events.value = types.textContent;

    filter.setAttribute("aria-invalid", String(Boolean(document.getElementById("filter-faults"))));
    if (events) events.setAttribute("aria-invalid", String(Boolean(document.getElementById("event-faults"))));
    const isEventChosen = document.getElementById("event-chosen");
    const sampled = document.getElementById("sample-event");
    if (isEventChosen && sampled) sampled.setAttribute("aria-pressed", isEventChosen.textContent);
    const also = document.getElementById("webhook-chosen");
    if (also) choose(also.textContent);
    const chosen = document.getElementById("fields-chosen");
    if (chosen) {
      const numbers = new Set(chosen.textContent.split(" "));
      for (const field of form.querySelectorAll("button[name=add]")) {
        field.setAttribute("aria-pressed", String(numbers.has(field.value)));
      }
    }
    // The button that was pressed is gone, and what it did stands where it was.
    if (event.detail.requestConfig.elt.name === "choose" && document.activeElement === document.body) verdict.focus();
    for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
  });

  // Going to sign in would lose what was typed.
  form.addEventListener("htmx:beforeOnLoad", (event) => {
    if (!event.detail.xhr.getResponseHeader("HX-Redirect")) return;
    event.preventDefault();
    verdict.textContent = "You are signed out. Save as usual: your changes are kept while you sign in again.";
  });

  for (const trouble of ["htmx:responseError", "htmx:sendError"]) {
    form.addEventListener(trouble, () => { verdict.textContent = "The filter could not be checked. Press Check to try again."; });
  }
})();
