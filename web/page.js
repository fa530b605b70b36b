// Keeps what the page shows up to date. Without it, the page shows the moment at which it was asked for.
"use strict";

// Milliseconds. A browser alone would wait for minutes for a coordinator that is cut off, and the page would show old things as if they were new.
const patience = 10000;

// every says after how many milliseconds to ask again: main has seconds, more where a page costs more.
const every = () => 1000 * (Number(document.querySelector("main")?.getAttribute("data-live")) || 3);

// nameOf says which element it is, wherever it stands: by its id, or as a link, by the row of a table that it is in, which its first link names.
function nameOf(element) {
  const row = element.closest("tr")?.querySelector("a");
  return element.id ? `#${element.id}` : `${row ? row.getAttribute("href") : ""} ${element.getAttribute("href")}`;
}

// show puts what is new in the place of what main has. What the reader has opened, scrolled or focused stays so, unless it is gone: Enter must not open
// another task, which has come to its place.
function show(main, next) {
  const named = () => [...main.querySelectorAll("[id], a[href]")];
  const kept = new Map();
  for (const each of named().reverse()) { // of two with one name the first is kept
    kept.set(nameOf(each), { open: each.open, top: each.scrollTop, left: each.scrollLeft });
  }
  const focused = named().find((each) => each === document.activeElement);
  let focus = focused && nameOf(focused);
  // Who has scrolled down reads on at the same row, although new tasks come in above it.
  const top = (each) => each.getBoundingClientRect().top;
  const read = scrollY > 0 ? named().find((each) => each.closest("tr") && top(each) >= 0) : undefined;
  const [row, at] = read ? [nameOf(read), top(read)] : [];
  main.replaceChildren(...next.childNodes);
  main.setAttribute("data-live", next.getAttribute("data-live"));
  for (const each of named()) {
    const name = nameOf(each), was = kept.get(name);
    if (!was) continue;
    if (was.open !== undefined) each.open = was.open;
    [each.scrollTop, each.scrollLeft] = [was.top, was.left];
    if (name === focus) {
      each.focus({ preventScroll: true });
      focus = null;
    }
  }
  const there = row && named().find((each) => nameOf(each) === row);
  if (there) scrollBy(0, top(there) - at);
}

let good = new Date(); // when the page was up to date last

// stale says why the page is no longer up to date, and how old it is. What the coordinator says is text, and never markup.
function stale(why) {
  const since = good.toISOString().slice(0, 19).replace("T", " ");
  document.querySelector(".stale").textContent = `This is from ${since} UTC, and no longer up to date: ${why}.`;
  document.body.classList.add("lost");
}

function fresh() {
  good = new Date();
  document.body.classList.remove("lost");
}

// reason returns what an answer says of why it has no page.
async function reason(answer) {
  const body = await answer.text();
  const page = (answer.headers.get("Content-Type") ?? "").startsWith("text/html");
  const text = page ? new DOMParser().parseFromString(body, "text/html").querySelector("#why")?.textContent : body;
  return text?.trim().slice(0, 500);
}

// What is selected or pressed would be lost if main were replaced: a click on what is gone does nothing.
const selected = () => !getSelection().isCollapsed;
const pressed = (main) => main.matches(":active");

const writing = () => document.activeElement?.matches("input, select") ?? false;

let back = false; // what could not be shown can be

async function refresh() {
  const main = document.querySelector("main[data-live]");
  if (back && !document.hidden && !selected() && !pressed(main) && !writing()) {
    location.reload(); // also what is around main becomes another
    return;
  }
  if (main && document.hidden) { // who comes back sees at once that it is old, and soon what is new
    stale("it was hidden");
    document.addEventListener("visibilitychange", refresh, { once: true });
    return;
  }
  if (main && selected() && !pressed(main)) {
    stale("text is selected");
  } else if (main && !pressed(main)) {
    try {
      const here = location.origin + location.pathname + location.search; // not href: fetch refuses an address with a password in it
      // The header keeps the browser from asking for a password by itself, behind a page that waits for the answer meanwhile.
      const answer = await fetch(here, { cache: "no-store", headers: { "Lessor-Reload": "1" }, signal: AbortSignal.timeout(patience) });
      const failed = main.getAttribute("data-error"); // the status of a page that could not be shown
      if (failed && answer.ok) {
        back = true; // it is opened the next time: at once, a quota might have no room for the same calls again
      } else if (failed && answer.status === Number(failed)) {
        fresh();
      } else if (answer.ok) {
        const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
        if (!selected() && !pressed(main)) {
          show(main, next);
          fresh();
        }
      } else if (answer.status === 401) {
        stale("the token is no longer valid; reload the page to enter another one");
        return; // not again: refused credentials count against this machine
      } else {
        const why = await reason(answer);
        stale(`the coordinator answers ${`${answer.status} ${answer.statusText}`.trim()}${why ? `: ${why}` : ""}`);
        if (answer.status === 403) return; // as above
      }
    } catch {
      stale("the coordinator does not answer");
    }
  }
  setTimeout(refresh, every());
}

// A page that the browser has kept, for who goes back, has what was written into its boxes before, and not what it shows.
addEventListener("pageshow", (event) => {
  if (event.persisted) for (const form of document.forms) form.reset();
});

setTimeout(refresh, every());
