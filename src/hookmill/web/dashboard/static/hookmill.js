// Scripts of every page. Every page works without them.
"use strict";

// A button with data-copy="ID" copies the text of the element with this id.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // Without TLS, or without permission to use the clipboard, the text is selected instead.
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    button.textContent = "Selected: press Ctrl C";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

// Shows the elements that work only with scripts.
for (const element of document.querySelectorAll("[data-needs-script]")) element.hidden = false;

// A double click submits a form once. The form can be submitted again after 2 s, such as after its page was stopped, or
// when the browser restores its page.
const submitted = new Set();
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post" || event.defaultPrevented) return;
  if (submitted.has(event.target)) {
    event.preventDefault();
    return;
  }
  submitted.add(event.target);
  setTimeout(() => submitted.delete(event.target), 2000);
});
addEventListener("pageshow", () => submitted.clear());
