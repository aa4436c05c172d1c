// Parts of a page that are asked for again and again: only while somebody looks at it, and at once when they come back.
"use strict";

(() => {
  const state = document.querySelector("[data-poll-state]");
  const polls = (element) => element.hasAttribute("data-polls");

  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden && polls(event.detail.elt)) event.preventDefault();
  });

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    for (const part of document.querySelectorAll("[data-polls]")) htmx.trigger(part, "look");
  });

  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (state && polls(event.detail.elt)) state.textContent = event.detail.successful ? "Live" : "Connecting";
  });
})();
