"""What is the same in every page of a failure: how it looks, and what it does when somebody clicks."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ground: #fbfbfa; --card: #ffffff; --ink: #1c2024; --soft: #697077;
  --line: #dfe2e6; --life: #c3c9d0; --hover: #eef3fb; --publish: #0d7f86; --deliver: #2b5fd9;
  --routing: #7a5ad0; --silence: #8b929a; --gap: #b3267c; --fault: #c92a2a; --good: #2b8a3e; --other: #566069; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --card: #1b1f23; --ink: #e7eaed; --soft: #98a1aa;
  --line: #2d3339; --life: #444c55; --hover: #222a35; --publish: #4cc3ca; --deliver: #82aaff;
  --routing: #b8a1ff; --silence: #7d868f; --gap: #ff8ccb; --fault: #ff7b7b; --good: #69d17f; --other: #a9b3bd; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 120px; }
h1 { font-size: 22px; line-height: 1.35; margin: 0 0 4px; font-weight: 650; overflow-wrap: anywhere; }
h1 b { display: inline-block; background: var(--fault); color: var(--card); border-radius: 6px;
  padding: 0 9px; margin-right: 8px; }
.when { color: var(--soft); margin: 0 0 18px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 18px; margin: 0 0 18px; font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
code { font: 13px/1.5 ui-monospace, monospace; }
details { margin: 0 0 18px; font-size: 14px; } summary { cursor: pointer; color: var(--soft); }
.strip { display: block; width: 100%; height: 46px; margin: 0 0 14px; }
.strip text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.strip .axis { stroke: var(--life); } .strip .any { stroke: var(--life); opacity: .7; }
.strip a .fault { stroke: var(--fault); stroke-width: 3; } .strip .end { fill: var(--fault); }
.filters { display: flex; flex-wrap: wrap; gap: 6px; margin: 0 0 8px; align-items: center; font-size: 13px; }
.filters > span { color: var(--soft); min-width: 52px; }
button { font: inherit; color: var(--ink); background: var(--card); border: 1px solid var(--line); border-radius: 999px;
  padding: 1px 11px; cursor: pointer; } button:focus-visible { outline: 2px solid var(--deliver); }
button[aria-pressed=false]:not(#everything) { color: var(--soft); text-decoration: line-through; background: none; }
button[aria-pressed=true]#everything { border-color: var(--deliver); } a { color: var(--deliver); }
button i { font-style: normal; color: var(--soft); margin-left: 5px; }
.chart { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin-top: 14px; }
.row { display: flex; align-items: flex-start; min-height: 28px; padding-right: 14px; scroll-margin-top: 60px; }
.row > time { width: 78px; flex: none; text-align: right; padding-right: 12px; color: var(--soft);
  font: 12px/28px ui-monospace, monospace; }
.row > svg { flex: none; }
.lanes { flex: none; position: relative; align-self: stretch; }
.lanes svg { position: absolute; inset: 0; width: 100%; height: 100%; }
.row > p { margin: 0; padding: 3px 0 3px 8px; font-size: 14px; line-height: 22px; overflow-wrap: anywhere; }
.row > p b { font-weight: 600; margin-right: 6px; }
.row:hover, .row:focus { background: var(--hover); outline: none; }
.head { position: sticky; top: 0; z-index: 2; background: var(--card); border-bottom: 1px solid var(--line);
  border-radius: 10px 10px 0 0; min-height: 42px; }
.head > time { line-height: 42px; }
.head:hover { background: var(--card); } .head text { font: 600 13px system-ui, sans-serif; fill: var(--ink); }
.later > p, .later > time { color: var(--soft); font-size: 12px; }
.verdict { background: color-mix(in srgb, var(--fault) 12%, var(--card)); border-radius: 0 0 10px 10px;
  min-height: 46px; }
.verdict:hover { background: color-mix(in srgb, var(--fault) 18%, var(--card)); }
.verdict > time { line-height: 40px; } .verdict > p { color: var(--fault); font-weight: 650; padding: 9px 0 9px 8px; }
.life { stroke: var(--life); stroke-width: 1.5; } .gone { stroke-dasharray: 2 5; }
.row { --kind: var(--other); } .publish { --kind: var(--publish); } .deliver { --kind: var(--deliver); }
.routing { --kind: var(--routing); } .silence { --kind: var(--silence); } .gap { --kind: var(--gap); }
.fault { --kind: var(--fault); } .good { --kind: var(--good); }
.way { stroke: var(--kind); stroke-width: 2; } .tip, .dot { fill: var(--kind); }
.world { stroke: var(--kind); stroke-width: 1.5; stroke-dasharray: 7 5; }
.mark { stroke: var(--kind); stroke-width: 2.5; fill: none; } .row > p b { color: var(--kind); }
.fault > p, .gap > p { color: var(--kind); font-weight: 550; }
.off, body:not(.all) .aside { display: none; }
#detail { position: fixed; left: 50%; bottom: 14px; transform: translateX(-50%); width: min(900px, calc(100% - 28px));
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 10px 16px; font-size: 13.5px;
  box-shadow: 0 6px 24px #0003; display: none; } #detail span { color: var(--soft); }
@media (max-width: 760px) { .row { flex-wrap: wrap; } .row > p { width: 100%; padding-left: 84px; } }
"""

SCRIPT = """
const off = { kind: new Set(), lane: new Set() }, rows = document.querySelectorAll('.row[data-kind]');
function refresh() {
  for (const row of rows) {
    const lanes = row.dataset.lanes.split('|');
    row.classList.toggle('off', off.kind.has(row.dataset.kind) || lanes.some(lane => off.lane.has(lane)));
  }
}
for (const button of document.querySelectorAll('button[data-by]')) button.onclick = () => {
  const hidden = off[button.dataset.by], name = button.dataset.name, show = hidden.has(name);
  show ? hidden.delete(name) : hidden.add(name);
  button.setAttribute('aria-pressed', show);
  refresh();
};
const everything = document.getElementById('everything');
if (everything) everything.onclick = () => {
  everything.setAttribute('aria-pressed', document.body.classList.toggle('all'));
};
const detail = document.getElementById('detail');
for (const row of rows) {
  row.onmouseenter = row.onfocus = () => {
    detail.innerHTML = '';
    const { at, kind, way } = row.dataset;
    for (const [name, value] of [['at', at + ' s'], ['what', kind], ['where', way]]) {
      const label = document.createElement('span');
      label.textContent = name + ' ';
      detail.append(label, value + '\\u2003');
    }
    const text = document.createElement('div');
    text.textContent = row.dataset.text;
    detail.append(text);
    detail.style.display = 'block';
  };
  row.onmouseleave = row.onblur = () => { detail.style.display = 'none'; };
}
"""
