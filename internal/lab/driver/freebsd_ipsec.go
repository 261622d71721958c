package driver

import (
	"fmt"
	"strconv"
	"strings"
)

// bsdIdle knows our idle policies in what setkey -DP prints (FreeBSD's lib/libipsec/pfkey_dump.c): they are
// between the networks of kernel.SetIdlePolicies, each the end of its own tunnel, and the request bears our
// number. With an argument it prints how each is deleted; else how many policies there are (by the sequence
// number of the first), were printed, and have selectors of ours but are not; then ours, out and in of IPv4
// and of IPv6.
const bsdIdle = `mark=16110
idle() { setkey -DP 2>&1 | awk -v list="$1" -v mark=$mark '
function far(a) { return sub(/^240\./, "248.", a) || sub(/^2001:db8:0:/, "2001:db8:8000:", a) ? a : "" }
function end(a) { sub(/\/.*/, "", a); return a }
/pfkey_open|not found/ { bad = $0 }
/^[0-9a-f]/ { s = $1; d = $2; upper = $3; request = "" }
/^\t(in|out) / { way = $1 }
/^\t(esp|ah|ipcomp)\// { request = request $1 }
/^\tspid=/ { split($2, seq, "="); if (!seen++) all = seq[2] + 1
near = way == "in" ? d : s
if (near !~ /^(240\.[0-9]+\.[0-9]+\.0\/24|2001:db8:0:[0-9a-f]+::\/64)\[any\]$/ || upper != "any" ||
far(near) != (way == "in" ? s : d)) next
if (request != "esp/tunnel/" end(s) "-" end(d) "/unique:" mark) { clash++; next }
n[way, (near ~ /:/)]++; sub(/\[any\]/, "", s); sub(/\[any\]/, "", d)
if (list) print "spddelete", s, d, "any -P", way ";" }
END { if (bad) print bad
else if (!list) print all+0, seen+0, clash+0, n["out", 0]+0, n["in", 0]+0, n["out", 1]+0, n["in", 1]+0 }'; }
`

// bsdSetIdle deletes ours and no other, as many at a time as are printed, and adds $2 anew. Of what fails
// setkey tells nothing but in its output: it is seen when the policies are counted.
const bsdSetIdle = bsdIdle + `i=0; while [ $i -lt 99 ]; do i=$((i+1)); old=$(idle list)
case $old in spddelete*) printf '%s\n' "$old" | setkey -c >/dev/null;; *) break;; esac; done
awk -v n="$2" -v mark=$mark 'function add(a, b, size) {
print "spdadd", a size, b size, "any -P out ipsec esp/tunnel/" a "-" b "/unique:" mark ";"
print "spdadd", b size, a size, "any -P in ipsec esp/tunnel/" b "-" a "/unique:" mark ";" }
BEGIN { for (i = 0; i < n; i++) { v4 = int(i/256) "." i%256 ".0"; v6 = sprintf("%x::", i+1)
add("240." v4, "248." v4, "/24"); add("2001:db8:0:" v6, "2001:db8:8000:" v6, "/64") }
}' | setkey -c >/dev/null`

func parseBSDIdle(text string) (string, error) {
	var n [7]int
	words := strings.Fields(text)
	var err error
	for i := range n {
		if err == nil && len(words) == len(n) {
			n[i], err = strconv.Atoi(words[i])
		}
	}
	all, printed, clash, ours := n[0], n[1], n[2], n[3]
	switch {
	case err != nil || len(words) != len(n):
		return "", lacks("setkey says %q; by hand: kldload ipsec", told(text))
	case printed < all:
		return "", lacks("setkey -DP tells %d of %d policies, as its socket holds no more; by "+
			"hand: sysctl kern.ipc.maxsockbuf=16777216, or fewer of them", printed, all)
	case clash > 0:
		return "", lacks("it has %d policies of others with the same selectors", clash)
	case n[4] != ours || n[5] != ours || n[6] != ours:
		return "", fmt.Errorf("it has %v idle policies out and in of IPv4 and of IPv6, want the same number "+
			"of each", n[3:])
	}
	return strconv.Itoa(ours), nil
}
