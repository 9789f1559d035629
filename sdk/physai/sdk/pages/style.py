"""Style sheet of a report: printable, light or dark as the reader's system is set."""

STYLE = """
:root { color-scheme: light dark;
  --page: #ffffff; --ink: #1c2128; --soft: #57606a; --rule: #d8dee4; --panel: #f6f8fa;
  --pass: #1a7f37; --fail: #cf222e; --open: #9a6700; --mark: #0969da; --second: #bc4c00; --faint: #a9c9ee; }
@media (prefers-color-scheme: dark) { :root {
  --page: #0d1117; --ink: #e6edf3; --soft: #9198a1; --rule: #30363d; --panel: #161b22;
  --pass: #3fb950; --fail: #f85149; --open: #d29922; --mark: #4493f8; --second: #f0883e; --faint: #1f4a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 22px 28px 48px; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 17px; font-weight: 600; margin: 0; color: var(--soft); }
h2 { font-size: 19px; margin: 34px 0 10px; }
h3 { font-size: 15px; margin: 0 0 6px; }
p { margin: 6px 0; }
code, .hash { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.answer { display: flex; gap: 26px; align-items: center; border-left: 8px solid var(--tone); background: var(--panel);
  border-radius: 6px; padding: 14px 22px; margin: 12px 0 14px; }
.answer .word { font-size: 46px; font-weight: 700; color: var(--tone); white-space: nowrap; line-height: 1.1; }
.answer ul { margin: 0; padding-left: 18px; }
.film { display: flex; flex-wrap: wrap; gap: 8px; margin: 0 0 14px; } .film div { flex: 1 1 200px; max-width: 320px; }
.film img { display: block; width: 100%; border-radius: 6px; } .film figcaption { flex-basis: 100%; }
.conditional { --tone: var(--open); } .idle { --tone: var(--soft); }
.PASS { --tone: var(--pass); } .FAIL { --tone: var(--fail); } .INCONCLUSIVE { --tone: var(--open); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: 5px 10px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--soft); font-weight: 500; font-size: 13px; }
td:first-child { white-space: nowrap; } a { color: var(--mark); text-decoration: none; }
td.number, th.number { text-align: right; white-space: nowrap; }
.pill { display: inline-block; min-width: 92px; white-space: nowrap; text-align: center; border-radius: 999px;
  padding: 0 10px; font-size: 12px; line-height: 20px; font-weight: 600; color: var(--tone);
  border: 1px solid var(--tone); }
.soft { color: var(--soft); } .small { font-size: 13px; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(430px, 1fr)); gap: 18px 28px; }
.panel { border: 1px solid var(--rule); border-radius: 6px; padding: 12px 14px; break-inside: avoid; min-width: 0; }
svg { width: 100%; max-width: 720px; height: auto; display: block; }
svg text.label { font: 12px system-ui, sans-serif; fill: var(--soft); } svg text.strong { fill: var(--ink); }
svg .grid { stroke: var(--rule); stroke-width: 1; } svg .target { stroke: var(--ink); stroke-width: 1.6;
  stroke-dasharray: 4 3; } svg .whisker { stroke-width: 2.5; }
svg .mark { fill: var(--mark); stroke: var(--mark); } svg .second { fill: var(--second); stroke: var(--second); }
svg .third { fill: var(--pass); stroke: var(--pass); } svg .fourth { fill: var(--soft); stroke: var(--soft); }
svg .faint { fill: var(--faint); stroke: none; } svg .bad { fill: var(--fail); stroke: var(--fail); }
svg rect.mark, svg rect.bad { stroke: none; } svg .curve { fill: none; stroke-width: 1.6; }
details { border-bottom: 1px solid var(--rule); padding: 8px 0; } summary { cursor: pointer; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 6px 0; font-size: 13px; }
@media (max-width: 760px) { body { padding: 16px 14px 32px; } .answer { display: block; padding: 12px 14px; }
  .optional { display: none; } .grid { display: block; } .panel { overflow-x: auto; margin-bottom: 14px; }
  svg text.label { font-size: 13px; } td:first-child { white-space: normal; } .gates thead { display: none; }
  .gates tr { display: grid; grid-template-columns: 1fr auto; border-bottom: 1px solid var(--rule); padding: 7px 0; }
  .gates td { border: 0; padding: 0; } .gates td:nth-child(n + 4) { grid-column: 1 / -1; text-align: left; }
  .gates td.number:not(:empty)::after { content: " episodes"; } }
@media print { :root { color-scheme: light; --page: #ffffff; --ink: #000000; --soft: #444444; --rule: #bbbbbb;
  --panel: #ffffff; --pass: #1a7f37; --fail: #cf222e; --open: #9a6700; --mark: #0969da; --second: #bc4c00; }
  body { max-width: none; padding: 0; } h2, h3 { break-after: avoid; } tr, .answer { break-inside: avoid; }
  details::details-content { content-visibility: visible; display: block; } }
"""
