// Keeps what the page shows up to date. Without it, the page shows the moment at which it was asked for.
"use strict";

// Milliseconds. A browser alone would wait for minutes for a coordinator that is cut off, and the page would show old things as if they were new.
const every = 3000, patience = 10000;

// show puts what is new in the place of what main has. What the reader has opened, scrolled or focused stays so.
function show(main, next) {
  const kept = ["details", "summary", "pre", "a"].map((kind) => {
    const old = [...main.querySelectorAll(kind)];
    return { kind, old, scrolled: old.map((each) => each.scrollTop), focused: old.indexOf(document.activeElement) };
  });
  main.replaceChildren(...next.childNodes);
  main.toggleAttribute("data-live", next.hasAttribute("data-live"));
  for (const { kind, old, scrolled, focused } of kept) {
    main.querySelectorAll(kind).forEach((each, n) => {
      if (n >= old.length) return;
      if (kind === "details") each.open = old[n].open;
      each.scrollTop = scrolled[n];
      if (n === focused) each.focus({ preventScroll: true });
    });
  }
}

// stale says why the page is no longer up to date.
function stale(why) {
  document.querySelector(".stale").textContent = `This is no longer up to date: ${why}.`;
  document.body.classList.add("lost");
}

// What is selected or pressed would be lost if main were replaced: a click on what is gone does nothing.
const selected = () => !getSelection().isCollapsed;
const pressed = (main) => main.matches(":active");

async function refresh() {
  const main = document.querySelector("main[data-live]");
  if (main && selected() && !pressed(main)) {
    stale("text is selected");
  } else if (main && !document.hidden && !pressed(main)) {
    try {
      const here = location.origin + location.pathname + location.search; // not href: fetch refuses an address with a password in it
      const answer = await fetch(here, { cache: "no-store", signal: AbortSignal.timeout(patience) });
      if (answer.ok) {
        const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
        if (!selected() && !pressed(main)) {
          show(main, next);
          document.body.classList.remove("lost");
        }
      } else {
        stale(`the coordinator answers ${answer.status} ${answer.statusText}`);
        if (answer.status === 401 || answer.status === 403) return; // not again: refused credentials count against this machine
      }
    } catch {
      stale("the coordinator does not answer");
    }
  }
  setTimeout(refresh, every);
}

setTimeout(refresh, every);
