"use strict";
(() => {
  const $ = (s, from = document) => from.querySelector(s);
  const $$ = (s, from = document) => [...from.querySelectorAll(s)];

  // Times: in the viewer's zone; UTC stays in the title.
  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const ago = (ms) => {
    const ahead = ms < -2000;
    const s = Math.floor(Math.abs(ms) / 1000);
    if (s < 2) return "just now";
    const words = s >= 172800 ? Math.floor(s / 86400) + " days" : s >= 7200 ? Math.floor(s / 3600) + " h" : s >= 120 ? Math.floor(s / 60) + " min" : s + " s";
    return ahead ? "in " + words : words + " ago";
  };
  const times = (from) => {
    const now = new Date();
    for (const t of $$("time[data-as]", from)) {
      const at = new Date(t.dateTime);
      if (isNaN(at)) continue;
      t.textContent = t.dataset.as === "ago" ? ago(now - at) : at.toDateString() === now.toDateString() ? clock.format(at) : full.format(at);
    }
  };

  // Theme: as the device has it, light, dark.
  const themes = ["", "light", "dark"];
  $("#theme")?.addEventListener("click", () => {
    const root = document.documentElement;
    const next = themes[(themes.indexOf(root.dataset.theme || "") + 1) % themes.length];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    try { if (next) localStorage.setItem("zabor-theme", next); else localStorage.removeItem("zabor-theme"); } catch (e) { /* only for this page then */ }
  });

  // Copy.
  document.addEventListener("click", async (e) => {
    const button = e.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    } catch (err) {
      const range = document.createRange();
      range.selectNodeContents(button.previousElementSibling);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "press Ctrl C";
    }
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  });

  // What is marked.
  const marked = () => {
    const label = $("#marked");
    if (!label) return;
    const n = $$("#many input[type=checkbox][name=row]:checked, #many input[type=checkbox][name=message]:checked").length;
    label.dataset.none ??= label.textContent;
    label.textContent = n ? n + " marked" : label.dataset.none;
  };
  document.addEventListener("change", marked);

  // Keys.
  const help = $("#keys");
  $("#help")?.addEventListener("click", () => help.showModal());
  let went = 0;
  const rows = () => $$("[data-row]");
  const move = (by) => {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((r) => r.classList.contains("at"));
    const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))];
    for (const r of all) r.classList.remove("at");
    next.classList.add("at");
    next.scrollIntoView({ block: "nearest" });
    (next.querySelector("[data-open]") || next.querySelector("a"))?.focus({ preventScroll: true });
  };
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || help.open) return;
    if (e.target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select")) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    if (Date.now() - went < 1200) {
      went = 0;
      const to = $(`.menu a[data-key="${CSS.escape(e.key)}"]`);
      if (to) { e.preventDefault(); to.click(); return; }
    }
    switch (e.key) {
      case "/": e.preventDefault(); $("#find")?.focus(); break;
      case "?": e.preventDefault(); help.showModal(); break;
      case "g": went = Date.now(); break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "x": { const box = $("[data-row].at input[type=checkbox]"); if (box) { box.click(); e.preventDefault(); } break; }
    }
  });

  // Live: the page is read again, and what has changed in it is put in place.
  // What somebody is at is left alone.
  const period = 5000;
  const light = $("#live");
  const busy = (section) => document.activeElement !== document.body && section.contains(document.activeElement) || $("input:checked, details[open]", section) ||
    $$("input:not([type=hidden])", section).some((field) => field.value !== field.defaultValue) ||
    (getSelection()?.type === "Range" && section.contains(getSelection().anchorNode));
  const put = (old, fresh) => {
    fresh.classList.toggle("at", old.classList.contains("at"));
    old.replaceWith(document.adoptNode(fresh));
  };
  // What somebody is at stays as they saw it, and says so once it is another: a
  // decision about it is then refused.
  const meanwhile = (row, words) => {
    const old = $(".meanwhile", row);
    if (old) { if (old.textContent !== words) old.textContent = words; return; }
    const note = document.createElement("p");
    note.className = "meanwhile";
    note.setAttribute("role", "status");
    note.textContent = words;
    if (row.tagName === "TR") row.lastElementChild.append(note); else $("header", row).after(note);
  };
  // A list is renewed row by row: what has come, what is another, what has gone.
  const renewList = (list, fresh) => {
    const rows = [...fresh.children];
    const still = new Set(rows.map((row) => row.id));
    for (const row of [...list.children]) {
      if (still.has(row.id)) continue;
      if (busy(row)) meanwhile(row, "This does not stand here any more: something was done about it meanwhile.");
      else row.remove();
    }
    let last = null;
    for (const row of rows) {
      let old = document.getElementById(row.id);
      if (old && old.parentElement !== list) { // it stood in another list
        if (busy(old)) continue;
        old.remove();
        old = null;
      }
      if (!old) {
        old = document.adoptNode(row);
        if (last) last.after(old); else list.prepend(old);
      } else if ($("[data-live-list]", old)) {
        // Its own lists are renewed by themselves.
      } else if (busy(old)) {
        if (old.dataset.claim !== row.dataset.claim) meanwhile(old, "This row has changed since it was shown here. Look at it again before you decide.");
      } else if (row.outerHTML !== old.outerHTML) {
        put(old, row);
        old = row;
      }
      last = old;
    }
  };
  const renew = async () => {
    if (document.hidden || !$("[data-live], [data-live-list]")) return;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(4000) });
      if (answer.type === "opaqueredirect" || answer.status === 401) { location.reload(); return; }
      if (!answer.ok) throw new Error(answer.status);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      times(fresh);
      for (const old of $$("[data-live]")) {
        const now = fresh.getElementById(old.id);
        if (now && !busy(old) && now.outerHTML !== old.outerHTML) put(old, now);
      }
      for (const list of $$("[data-live-list]")) {
        const now = fresh.getElementById(list.id);
        if (now && list.isConnected) renewList(list, now);
      }
      marked();
      const menu = $(".menu", fresh);
      if (menu && menu.innerHTML !== $(".menu").innerHTML && !$(".menu").contains(document.activeElement)) $(".menu").replaceWith(document.adoptNode(menu));
      light?.classList.remove("off");
    } catch (err) {
      light?.classList.add("off");
      if (light) light.title = "zabor or its database does not answer; this page is old";
    }
  };
  setInterval(renew, period);
  setInterval(() => times(document), 1000);
  document.addEventListener("visibilitychange", renew);
  if (light && $("[data-live], [data-live-list]")) light.classList.add("on");
  times(document);
  marked();
})();
