// What a page can do beyond reading and sending forms. Everything that matters works without it.
"use strict";

// A button with data-copy="ID" copies that element's text, and says that it did.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // Without TLS or leave to use the clipboard, the text is selected instead.
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    button.textContent = "Selected: press Ctrl C";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

// Buttons that only work with this script are shown by it.
for (const element of document.querySelectorAll("[data-needs-script]")) element.hidden = false;
