"""The stylesheet of all pages, which is part of each: nothing is fetched from elsewhere."""

import base64
import hashlib
from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--back:#f5f6f8;--card:#fff;--text:#1b2230;--soft:#5a6474;--line:#e3e6eb;--link:#0a62c4;
--good:#11734f;--warn:#8a5a00;--bad:#b3261e;--mark:#0a62c4;--good-back:#e3f4ec;--warn-back:#fdf1d8;--bad-back:#fce6e4}
@media (prefers-color-scheme:dark){:root{--back:#10141b;--card:#181e27;--text:#e4e8ee;--soft:#98a3b3;--line:#2a323e;
--link:#7db4ff;--good:#6fd6a6;--warn:#f0c063;--bad:#ff9d94;--mark:#5b9dff;--good-back:#12311f;--warn-back:#35290c;
--bad-back:#3b1917}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;-webkit-text-size-adjust:100%}
a{color:var(--link);text-decoration:none}
a:hover,a:focus-visible{text-decoration:underline}
header{background:var(--card);border-bottom:1px solid var(--line)}
header>div,main,footer{max-width:1180px;margin:0 auto;padding:0 20px}
.top{display:flex;flex-wrap:wrap;gap:2px 16px;align-items:baseline;padding-top:14px}
.brand{font-size:19px;font-weight:700;letter-spacing:-.01em;color:var(--text)}
.where{color:var(--soft);font-size:13.5px}
nav{display:flex;flex-wrap:wrap;gap:4px 20px;margin-top:8px}
nav a{padding:6px 0 8px;color:var(--soft);border-bottom:2px solid transparent}
nav a[aria-current]{color:var(--text);font-weight:600;border-color:var(--mark)}
nav .refresh{margin-left:auto;font-size:13.5px}
main{padding-top:18px;padding-bottom:10px}
h1{font-size:22px;letter-spacing:-.01em;margin:4px 0 14px;overflow-wrap:anywhere}
h2{font-size:16px;margin:0}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;margin:0 0 16px;padding:14px 16px 12px}
.head{display:flex;flex-wrap:wrap;gap:2px 14px;align-items:baseline;margin-bottom:8px}
.note,footer,.more{color:var(--soft);font-size:13.5px}
.more{margin:10px 0 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(158px,1fr));gap:12px;margin:0 0 16px}
.tiles.four{grid-template-columns:repeat(4,minmax(0,1fr))}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:11px 14px 12px;min-width:0}
.tile .label{color:var(--soft);font-size:13px}
.tile .value{font-size:22px;font-weight:650;letter-spacing:-.02em;font-variant-numeric:tabular-nums;
white-space:nowrap}
.tile .sub{color:var(--soft);font-size:13px}
.tile svg{display:block;width:100%;height:30px;margin-top:6px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:0 16px;align-items:start}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{font-size:12.5px;font-weight:600;color:var(--soft);text-align:left;white-space:nowrap;padding:4px 14px 6px 0;
border-bottom:1px solid var(--line);vertical-align:bottom}
td{padding:6px 14px 6px 0;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}
th:last-child,td:last-child{padding-right:0}
.n{text-align:right;white-space:nowrap}
th a{color:inherit}
th[aria-sort] a{color:var(--text)}
.name{overflow-wrap:anywhere}
td .name{display:inline-block;max-width:420px}
td:first-child .name{min-width:90px}
.n+:not(.n){padding-left:16px}
.soft{color:var(--soft)}
.badge{display:inline-block;border-radius:999px;padding:1px 9px;font-size:12.5px;font-weight:600;white-space:nowrap;
background:var(--line)}
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}
.badge.good{background:var(--good-back)}.badge.warn{background:var(--warn-back)}.badge.bad{background:var(--bad-back)}
.alert{border-radius:10px;padding:10px 14px;margin:0 0 16px;overflow-wrap:anywhere}
.alert.warn{background:var(--warn-back)}.alert.bad{background:var(--bad-back)}
.bar{display:inline-block;width:84px;height:8px;border-radius:4px;background:var(--line);vertical-align:middle}
rect{fill:var(--mark)}
polyline{fill:none;stroke:var(--mark);stroke-width:1.6;vector-effect:non-scaling-stroke;stroke-linejoin:round}
dl{display:grid;grid-template-columns:fit-content(46%) 1fr;gap:5px 18px;margin:0}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
form{display:flex;gap:8px;margin:0 0 12px}
input,button{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);border-radius:8px;
padding:6px 11px;min-width:0}
input{flex:0 1 320px}
.pages{display:flex;flex-wrap:wrap;gap:4px 16px;margin:12px 0 2px;font-size:14px}
footer{padding-bottom:26px}
@media (max-width:700px){header>div,main,footer{padding-left:12px;padding-right:12px}.wide{display:none}
.tiles,.tiles.four{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px}.tile{padding:9px 11px}
.tile .value{font-size:19px}section{padding:12px;border-radius:8px}h1{font-size:19px}td .name{max-width:210px}
th,td{padding-right:10px}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:7px}nav{gap:2px 15px}}
"""

_DIGEST: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""Neither scripts nor anything from elsewhere; no style but `STYLE`, not even in an attribute."""
