#!/usr/bin/env bash
# Takes pictures of a report (390 and 1280 px, light and dark; the whole page
# and its first screen) and fails if anything overflows, is fetched, or differs
# from the document:
#   .ci/screenshots.sh REPORT.html|http://… OUTDIR [DOCUMENT.json]
# DOCUMENT is the output of `chokepoint show --json` of the same run. Without
# it the numbers are not compared, and each line of output says so. With
# TALLEST=N a page of more than N px at 390 px fails, too; with FIRST=A,B a page
# whose first screen does not hold the elements of these identifiers; with
# AXE=axe.min.js of axe-core a page that it finds a barrier in.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
[[ ($# == 2 || $# == 3) && (-f $1 || $1 == http://*) ]] || { echo "usage: $0 REPORT.html OUTDIR [DOCUMENT.json]" >&2; exit 2; }
go -C "$top/bench" test -c -o "$built/pagecheck" ./pagecheck
"$built/pagecheck" -test.v -test.run '^TestReport$' -page "$1" -pictures "$2" -document "${3:-}" \
	-tallest "${TALLEST:-0}" -first "${FIRST:-}" -axe "${AXE:-}"
