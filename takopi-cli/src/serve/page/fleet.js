"use strict";
// Draws what the server knows of the fleet, again every second.
const at = (id) => document.getElementById(id);

function time(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${s % 60}s`;
  return `${Math.floor(s / 3600)}h ${Math.floor(s / 60) % 60}m`;
}

function row(cells) {
  const tr = document.createElement("tr");
  for (const [content, kind] of cells) {
    const td = document.createElement("td");
    if (content instanceof Node) td.append(content);
    else td.textContent = content;
    if (kind) td.className = kind;
    tr.append(td);
  }
  return tr;
}

function slots(worker) {
  const span = document.createElement("span");
  const bar = document.createElement("progress");
  bar.max = worker.slots;
  bar.value = worker.held;
  span.append(bar, ` ${worker.held}/${worker.slots}`);
  return span;
}

function version(number) {
  return `${Math.floor(number / 1e12)}.${Math.floor(number / 1e6) % 1e6}.${number % 1e6}`;
}

function offers(worker) {
  return worker.offers.map((offer) => {
    const engine = offer.startsWith("engine:") ? offer.slice(7) : null;
    if (engine === null) return offer;
    const known = worker.versions[engine];
    return known ? `${engine} ${version(known)}` : engine;
  }).sort().join(", ");
}

function draw(now) {
  const { status, leases, ended } = now;
  const alive = status.workers.filter((worker) => worker.alive);
  const sum = (key) => alive.reduce((all, worker) => all + worker[key], 0);
  at("figures").textContent = [
    `${alive.length} workers`, `${sum("held")}/${sum("slots")} slots busy`, `${status.queued} waiting`,
    `${status.sessions} sessions`, `${status.done_last_minute} ended in the last minute, ${status.failed_last_minute} failed`,
  ].join(" · ");
  at("workers").replaceChildren(...status.workers.map((worker) => {
    const lease = leases.find((lease) => lease.worker === worker.id)?.seconds_left ?? 0;
    const state = !worker.alive && worker.draining ? [`left ${time(-lease)} ago`, "left"]
      : !worker.alive ? [`lost ${time(-lease)} ago`, "lost"]
      : worker.draining ? [`draining, lease ${time(lease)}`, "draining"]
      : [`lease ${time(lease)}, up ${time(worker.up_seconds)}`, ""];
    return row([[worker.machine, ""], [slots(worker), ""], state, [offers(worker), ""]]);
  }));
  at("lines").replaceChildren(...status.lines.map((line) => row([
    [String(line.sessions_ready), ""], [line.needs.join(", "), ""], [time(line.oldest_seconds), ""],
    [line.offered ? "" : "no worker offers this", "missing"],
  ])));
  const most = Math.max(1, ...ended);
  at("graph").replaceChildren(...ended.map((count, n) => {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const height = Math.round(count * 58 / most);
    for (const [name, value] of Object.entries({ x: n * 10, y: 60 - height, width: 9, height })) bar.setAttribute(name, value);
    return bar;
  }));
}

async function look() {
  const problem = at("problem");
  try {
    const answer = await fetch("fleet/status");
    if (!answer.ok) throw new Error(await answer.text());
    draw(await answer.json());
    problem.hidden = true;
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
  }
  setTimeout(look, 1000);
}
look();
