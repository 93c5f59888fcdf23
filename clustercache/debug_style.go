// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

// debugStyle is the style sheet of the debug page.
const debugStyle = `
:root {
  color-scheme: light dark;
  --bg: #ffffff; --soft: #f2f4f6; --line: #d0d7de;
  --fg: #1b1f24; --dim: #57606a; --bad: #b3261e; --meh: #845300; --good: #1a6e2e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #16191d; --soft: #22272e; --line: #3b424b;
    --fg: #e6e9ec; --dim: #a3adb8; --bad: #ff8a80; --meh: #e8b84a; --good: #7ccf84;
  }
}
body { font: 14px/1.45 system-ui, sans-serif; color: var(--fg); background: var(--bg);
  margin: 1.5rem auto; padding: 0 1.5rem; max-width: 90rem; }
h1 { font-size: 1.3rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
a { color: inherit; }
.dim { color: var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap; }
th { font-weight: 600; color: var(--dim); }
td.n, th.n { text-align: right; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 8rem; }
nav, form { display: flex; flex-wrap: wrap; gap: .5rem; margin: .6rem 0; }
nav a, input, button { border: 1px solid var(--line); border-radius: .4rem; padding: .2rem .7rem; }
nav a { text-decoration: none; }
nav a.on { background: var(--soft); font-weight: 600; }
input, button { font: inherit; color: var(--fg); background: var(--soft); }
input[type=search] { flex: 1 1 12rem; max-width: 26rem; min-width: 0; }
input::placeholder { color: var(--dim); opacity: 1; }
.box { border-left: .25rem solid var(--meh); background: var(--soft); padding: .6rem .9rem; margin: 1rem 0;
  overflow-wrap: anywhere; }
.box p { margin: .2rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 0; }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
.Ready { color: var(--good); }
.Degraded, .Connecting, .Pending, .impaired { color: var(--meh); }
.Disconnected, .Refused, .Gone { color: var(--bad); }
@media (max-width: 46rem) {
  body { padding: 0 .8rem; }
  nav a, input, button { padding: .4rem .8rem; } /* for fingers */
  input { font-size: 1rem; } /* phones zoom into fields whose text is smaller */
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .4rem; }
  .stack, .stack tbody { display: block; }
  .stack tr { display: grid; grid-template-columns: minmax(0, 1fr) max-content; padding: .4rem 0;
    border-bottom: 1px solid var(--line); }
  .stack tr.head, .stack td { display: none; border: 0; padding: 0; }
  .stack td.key, .stack td.state, .stack td.text { display: block; white-space: normal; overflow-wrap: anywhere; }
  .stack td.text { grid-column: 1 / -1; min-width: 0; }
}
`
