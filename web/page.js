// Keeps what the page shows up to date. Without it, the page shows the moment at which it was asked for.
"use strict";

const every = 3000; // milliseconds

async function refresh() {
  const main = document.querySelector("main[data-live]");
  if (main && !document.hidden && getSelection().isCollapsed) {
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) { // not again: refused credentials count against this machine
        document.body.classList.add("lost");
        return;
      }
      if (!answer.ok) throw new Error(answer.statusText);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      main.querySelectorAll("details").forEach((each, n) => {
        const same = next.querySelectorAll("details")[n];
        if (same) same.open = each.open;
      });
      main.replaceWith(next);
      document.body.classList.remove("lost");
    } catch {
      document.body.classList.add("lost");
    }
  }
  setTimeout(refresh, every);
}

setTimeout(refresh, every);
