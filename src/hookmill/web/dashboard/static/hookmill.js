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
