// Runs page.js against a page made of stubs; its source comes on standard input. It fails with an exception.
const assert = require("node:assert");
const vm = require("node:vm");
const source = require("node:fs").readFileSync(0, "utf8");

// open returns a page at an address, whose requests are answered by ask. It has some links and boxes before the first answer and others after it, and is scrolled.
function open(address, ask, before = [], after = [], scrollY = 0) {
  const page = { stale: { textContent: "" }, lost: false, shown: [], pressed: false, selected: false, live: "3", resets: 0, reloads: 0, now: 0 };
  const main = {
    matches: () => page.pressed, // :active
    querySelectorAll: () => (page.shown.length ? after : before),
    hasAttribute: () => true,
    getAttribute: (name) => (name === "data-live" ? page.live : page.failed),
    setAttribute: (_, value) => (page.live = value),
    childNodes: [],
    replaceChildren: (...nodes) => (page.shown = nodes),
  };
  const document = {
    hidden: false,
    forms: [{ reset: () => page.resets++ }, { reset: () => page.resets++ }],
    addEventListener: (type, listener, options) => (page.listens = { type, listener, ...options }),
    body: { classList: { add: () => (page.lost = true), remove: () => (page.lost = false) } },
    querySelector: (selector) => (selector === ".stale" ? page.stale : main),
  };
  page.hide = (hidden) => (document.hidden = hidden);
  page.active = (element) => (document.activeElement = element);
  vm.runInNewContext(source, {
    scrollY,
    addEventListener: (type, listener) => (page.on = { [type]: listener }),
    scrollBy: (x, y) => (page.moved = [x, y]),
    URL,
    Date: class extends Date { constructor() { super(page.now); } },
    location: Object.assign(new URL(address), { reload: () => page.reloads++ }),
    document,
    getSelection: () => ({ isCollapsed: !page.selected }),
    setTimeout: (next, wait) => Object.assign(page, { refresh: next, wait }),
    AbortSignal: { timeout: (limit) => ({ limit }) },
    DOMParser: class {
      parseFromString(text) {
        return { querySelector: (selector) => selector === "#why" ? { textContent: text.replace(/.*<p id="why">|<\/p>.*/g, "") } : ({ ...main, getAttribute: () => page.next ?? page.live, childNodes: [text] }) };
      }
    },
    fetch: async (url, options) => ask(new Request(url).url, options), // a Request refuses an address with a password, as fetch does
  });
  return page;
}

const good = { ok: true, text: async () => "new" };

// refused is an answer that has no page, and says why in the body.
const refused = (status, body = "", type = "text/plain") => ({ ok: false, status, statusText: "", headers: new Headers({ "Content-Type": type }), text: async () => body });

async function main() {
  // What the answer has is shown. An address with a password is asked for without it: the browser sends what it has kept.
  for (const address of ["http://h:1/ui/tasks?queue=a&page=b#c", "http://any:token@h:1/ui/tasks?queue=a&page=b"]) {
    let asked = "";
    const page = open(address, (url) => ((asked = url), good));
    await page.refresh();
    assert.deepEqual([page.shown, page.lost], [["new"], false], address);
    assert.equal(asked.split("#")[0], "http://h:1/ui/tasks?queue=a&page=b");
  }

  // It asks again after as many seconds as the page says, which may be more the next time.
  const slow = open("http://h:1/ui/tasks", () => good);
  assert.equal(slow.wait, 3000);
  slow.next = "20";
  await slow.refresh();
  assert.equal(slow.wait, 20000);

  // What is pressed or selected is not replaced, even if that began after the request.
  for (const hold of ["pressed", "selected"]) {
    const page = open("http://h:1/ui/", () => ((page[hold] = true), good));
    await page.refresh();
    assert.deepEqual([page.shown, page.lost], [[], false], hold);
    await page.refresh(); // a selection may last, so the page says why it waits
    assert.deepEqual([page.shown, page.lost], [[], hold === "selected"], hold);
  }

  // A page that is hidden does not ask, and says that it is old. It asks as soon as it is seen, but not before it would have asked anyway: while a timer runs it does
  // not listen.
  const hidden = open("http://h:1/ui/", () => good);
  const timer = hidden.refresh;
  hidden.hide(true);
  assert.equal(hidden.listens, undefined);
  hidden.refresh = null;
  await timer();
  assert.deepEqual([hidden.shown, hidden.lost, hidden.refresh, hidden.listens.type, hidden.listens.once], [[], true, null, "visibilitychange", true]);
  hidden.hide(false);
  await hidden.listens.listener();
  assert.deepEqual([hidden.shown, hidden.lost, hidden.refresh], [["new"], false, timer]);

  // A coordinator that does not answer in time is given up, and the page says so; it asks again.
  let limit = 0;
  const page = open("http://h:1/ui/", (_, options) => {
    limit = options.signal?.limit;
    throw new DOMException("", "TimeoutError");
  });
  const refresh = page.refresh;
  page.refresh = null;
  await refresh();
  assert.deepEqual([page.lost, limit > 0, page.refresh], [true, true, refresh]);
  assert.match(page.stale.textContent, /does not answer/);

  // Focus stays with the link that had it, wherever that goes; if the link is gone, nothing is focused.
  const link = (href) => ({ id: "", closest: () => null, getAttribute: () => href, focus() { focused = href; } });
  let focused = null;
  for (const [hrefs, want] of [[["b", "a"], "b"], [["c", "a", "b"], "b"], [["a", "c"], null]]) {
    focused = null;
    const old = [link("a"), link("b")];
    const page = open("http://h:1/ui/tasks", () => good, old, hrefs.map(link));
    page.active(old[1]);
    await page.refresh();
    assert.equal(focused, want, String(hrefs));
  }

  // A box stays scrolled, both ways.
  const box = (top, left) => ({ id: "tasks", closest: () => null, scrollTop: top, scrollLeft: left });
  const [was, is] = [box(20, 30), box(0, 0)];
  await open("http://h:1/ui/tasks", () => good, [was], [is]).refresh();
  assert.deepEqual([is.scrollTop, is.scrollLeft], [20, 30]);

  // A page that is scrolled shows the row that was the first one in the window at the same height, unless the row is gone; one at its top stays there.
  const cell = (href, top) => ({ ...link(href), closest: () => ({ querySelector: () => link(href) }), getBoundingClientRect: () => ({ top }) });
  for (const [scrolled, rows, want] of [
    [300, [cell("new", -40), cell("a", -10), cell("b", 30)], [0, 20]],
    [300, [cell("new", -10), cell("a", 20)], undefined],
    [0, [cell("new", 10), cell("a", 40), cell("b", 80)], undefined],
  ]) {
    const page = open("http://h:1/ui/tasks", () => good, [link("menu"), cell("a", -20), cell("b", 10)], rows, scrolled);
    await page.refresh();
    assert.deepEqual([page.shown, page.moved], [["new"], want], String(rows.map((row) => row.getAttribute())));
  }

  // Who goes back to a page that the browser has kept finds in its boxes what it shows; one that is new is as the coordinator made it.
  for (const [persisted, resets] of [[true, 2], [false, 0]]) {
    const page = open("http://h:1/ui/tasks", () => good);
    page.on.pageshow({ persisted });
    assert.equal(page.resets, resets);
  }

  // The line has the coordinator's words, whether they are a page or a text, and the time of the last good answer.
  for (const [body, type] of [['<main><p id="why">it is gone</p></main>', "text/html; charset=utf-8"], ["it is gone\n", "text/plain"]]) {
    let answer = good;
    const page = open("http://h:1/ui/", () => answer);
    page.now = 60000;
    await page.refresh();
    page.now = 90000;
    answer = refused(404, body, type);
    await page.refresh();
    assert.equal(page.stale.textContent, "This is from 1970-01-01 00:01:00 UTC, and no longer up to date: the coordinator answers 404: it is gone.");
    assert.equal(page.lost, true);
  }

  // A page that could not be shown is opened anew when it can be, unless its reader is writing; as long as the answer is the same it is up to date. It does not
  // ask once more for what it then opens, and not right after it was told: a quota may have room for the one or the other only.
  const failed = (ask) => Object.assign(open("http://h:1/ui/worker?name=w", ask), { failed: "404" });
  for (const [answer, reloads, lost] of [[refused(404), 0, false], [refused(503), 0, true], [good, 1, false]]) {
    let asked = 0;
    const page = failed(() => (asked++, answer));
    await page.refresh();
    assert.deepEqual([page.shown, page.reloads, page.lost], [[], 0, lost]);
    await page.refresh();
    assert.deepEqual([page.shown, page.reloads, page.lost, asked], [[], reloads, lost, 2 - reloads]);
  }
  const written = failed(() => good);
  written.active({ matches: () => true });
  await written.refresh();
  await written.refresh();
  assert.equal(written.reloads, 0);

  // A token that has ended is told with what helps. The reload asks so that the browser does not ask for a password.
  let sent = null;
  const ended = open("http://h:1/ui/", (_, options) => ((sent = options.headers), { ok: false, status: 401, statusText: "Unauthorized" }));
  await ended.refresh();
  assert.match(ended.stale.textContent, /token is no longer valid; reload/);
  assert.equal(sent["Lessor-Reload"], "1");

  // Refused credentials are not shown again; after any other answer it goes on.
  for (const [status, again] of [[401, false], [403, false], [404, true], [429, true], [503, true]]) {
    const page = open("http://h:1/ui/", () => refused(status));
    const refresh = page.refresh;
    page.refresh = null;
    await refresh();
    assert.deepEqual([page.lost, page.refresh !== null], [true, again], String(status));
    if (status !== 401) assert.match(page.stale.textContent, new RegExp(status));
  }
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
