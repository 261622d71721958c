# What .ci/run and .ci/nightly share: stages with a name, a time limit and a
# count; snapshots of the machine; an ordinary user; installing packages.
# Sourced by bash, also once per stage in a shell of its own.

export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${WORK:=}" # scratch space of this CI run, set by begin

say() { printf '%s\n' "$*"; }
note() { printf 'note: %s\n' "$*"; } # shown also when the stage passes
fail() { printf 'fail: %s\n' "$*" >&2; exit 1; }

# count PASSED FAILED SKIPPED adds to the stage's figures. A stage that counts
# nothing is one check, passed or failed by its exit status.
count() { printf '%s %s %s\n' "$1" "$2" "$3" >>"$STAGE_COUNTS"; }

# skip NAME REASON counts what cannot be checked here as a skip, which .ci/allowed-skips must list.
skip() {
	grep -qF ".ci | $1 | $2 | " "$TOP/.ci/allowed-skips" || fail "$1 was skipped ($2), which .ci/allowed-skips does not list"
	count 0 0 1
	printf 'note: skip: %s\t%s\n' "$2" "$1"
}

# begin [LIMIT]: LIMIT is the seconds after which the whole run ends by itself.
begin() {
	LIMIT=${1:-0} LATE=
	WORK=$(mktemp -d "${TMPDIR:-/tmp}/chokepoint-ci.XXXXXXXX")
	export WORK
	chmod 755 "$WORK"
	mkdir -p "$WORK/logs"
	PASSED=0 FAILED=0 SKIPPED=0 FAILED_STAGES=() TIMES=()
	BEGAN=$SECONDS
	# Debian's udev lets everybody make TUN devices (50-udev-default.rules); where
	# there is no udev, the device is root's alone, as the kernel made it.
	TUN_MODE=$(stat -c %a /dev/net/tun 2>/dev/null)
	[[ ${TUN_MODE:-666} == 666 ]] || as_root chmod 666 /dev/net/tun
	trap 'finally' EXIT
	# An ordinary user cannot read root's caches, so everybody uses ones in the
	# scratch space, filled from the present ones where possible. The build
	# cache is open to all. All stages share one clone, and what was compiled there.
	local cache build kept=${CI_CACHE:-$WORK} # CI_CACHE names a folder that is kept for the next time
	cache=$(go env GOMODCACHE) build=$(go env GOCACHE)
	export GOPROXY="file://$cache/cache/download,$(go env GOPROXY)" README_GOFLAGS=-modcacherw
	export README_GOFLAGS GOFLAGS="$README_GOFLAGS -count=1"
	mkdir -p "$kept"
	export GOMODCACHE="$kept/modules" GOCACHE="$kept/build"
	if [[ -d $build && ! -d $GOCACHE ]] && fits "$build" "$kept"; then cp -r "$build" "$GOCACHE"; fi
	mkdir -p "$GOCACHE"/{{0..9},{a..f}}{{0..9},{a..f}}
	chmod -R a+rwX "$GOCACHE"
	[[ -z $(git status --porcelain) ]] || say "note: what is not committed is not tested"
	export SOURCE="$WORK/source"
	fresh_clone "$SOURCE"
}

# fits FROM TO: whether a copy leaves the stages three quarters of the room there
# is. What is compiled anew costs minutes; a full disk fails every stage.
fits() {
	(($(du -sk "$1" | cut -f 1) * 4 < $(df --output=avail -k "$2" | tail -n 1)))
}

finally() {
	[[ ${TUN_MODE:-666} == 666 ]] || as_root chmod "$TUN_MODE" /dev/net/tun
	rm -rf "$WORK" 2>/dev/null || sudo -n rm -rf "$WORK"
}

# stage NAME SECONDS FUNCTION runs the function in a shell of its own. OUT names
# a folder that keeps each stage's output, as DATE-STAGE.txt.
stage() {
	local name=$1 limit=$2 body=$3 began=$SECONDS status p f s left busy
	local log="$WORK/logs/$name.log"
	if ((${#WANTED[@]})) && [[ " ${WANTED[*]} " != *" $name "* ]]; then return; fi
	if ((LIMIT)); then
		left=$((LIMIT - (SECONDS - BEGAN)))
		if ((left < 1)); then
			LATE+=" $name"
			return
		fi
		((limit < left)) || limit=$left
	fi
	export STAGE_COUNTS="$WORK/$body.counts"
	: >"$STAGE_COUNTS"
	say "=== $name"
	busy=$(busy_ticks)
	timeout --kill-after=20 "$limit" bash -euo pipefail -c '. "$0"; cd "$SOURCE"; "$1"' \
		"$STAGES" "$body" >"$log" 2>&1 </dev/null
	status=$?
	((status == 124 || status == 137)) && say "fail: stopped after $limit s" >>"$log"
	read -r p f s < <(awk '{p+=$1; f+=$2; s+=$3} END {print p+0, f+0, s+0}' "$STAGE_COUNTS")
	((p + f + s == 0 && status == 0)) && p=1
	((f == 0 && status != 0)) && f=1
	PASSED=$((PASSED + p)) FAILED=$((FAILED + f)) SKIPPED=$((SKIPPED + s))
	busy=$(((100 * ($(busy_ticks) - busy) / $(getconf CLK_TCK)) / (($(nproc) * (SECONDS - began)) | 1)))
	TIMES+=("$((SECONDS - began)) $name, CPUs $busy % busy")
	[[ -z ${OUT:-} ]] || keep "$name" "$log" "$p passed, $f failed, $s skipped in $((SECONDS - began)) s"
	if ((f > 0)); then
		FAILED_STAGES+=("$name")
		tail -n 150 "$log"
		say "--- FAIL $name ($((SECONDS - began)) s; $p passed, $f failed)"
	else
		grep '^note: ' "$log"
		say "--- ok $name ($((SECONDS - began)) s; $p passed)"
	fi
}

# busy_ticks prints how long the machine's CPUs have been busy.
busy_ticks() { awk '/^cpu / {print $2 + $3 + $4 + $7 + $8 + $9}' /proc/stat; }

# keep NAME LOG RESULT writes a stage's output where it can be published: with the
# machine, without the paths of this run and without where packages came from.
keep() {
	mkdir -p "$OUT"
	{
		say "stage $1 at $(git describe --always --dirty 2>/dev/null), $(date -u +%FT%TZ)"
		say "$(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), Linux $(uname -r)"
		say "$3"
		say
		sed -e "s|$WORK|WORK|g" -e "s|$TOP|SOURCE|g" -e '/^\(Get\|Hit\|Ign\|Err\):[0-9]/d' -e '/^go: downloading/d' "$2"
	} >"$OUT/$(date -u +%F)-$1.txt"
}

# finish prints what took how long, what was skipped and why, and the verdict; its
# last line is the whole result.
finish() {
	say "=== $((SECONDS - BEGAN)) s in all"
	((${#TIMES[@]})) && printf '%s\n' "${TIMES[@]}" | sort -rn | sed -E 's/^([0-9]+) /\1 s  /; s/^/  /'
	if ((SKIPPED)); then
		say "=== skipped tests, by reason"
		sed -n 's/^note: skip: //p' "$WORK"/logs/*.log | sort | awk -F'\t' '$1 != last {print $1; last = $1} {print "    " $2}'
	fi
	local name
	for name in "${FAILED_STAGES[@]}"; do
		say "=== what failed in $name"
		grep -h -B 12 '^fail: ' "$WORK/logs/$name.log" | tail -n 60
	done
	((${#FAILED_STAGES[@]})) && say "failed stages: ${FAILED_STAGES[*]}"
	if [[ -n $LATE ]]; then
		say "ended by itself after $LIMIT s, before these stages:$LATE"
		FAILED=$((FAILED + $(wc -w <<<"$LATE")))
	fi
	if ((PASSED + FAILED + SKIPPED == 0)); then
		say "no such stage: ${WANTED[*]}"
		FAILED=1
	fi
	if ((SKIPPED)); then
		say "$PASSED passed, $FAILED failed, $SKIPPED skipped"
	else
		say "$PASSED passed, $FAILED failed"
	fi
	((FAILED == 0))
}

# as_root COMMAND… runs it as root: directly, or through sudo.
as_root() {
	if ((EUID == 0)); then "$@"; else sudo -n --preserve-env=CHOKEPOINT_VM_CACHE,CHOKEPOINT_LONG,CHOKEPOINT_DISK,GOPROXY,GOMODCACHE,GOCACHE,GOFLAGS,CGO_ENABLED,GOTOOLCHAIN,HOME,TMPDIR,XDG_DATA_HOME,XDG_STATE_HOME,XDG_RUNTIME_DIR,XDG_CONFIG_HOME,XDG_CACHE_HOME env PATH="$PATH" "$@"; fi
}

# as_user COMMAND… runs it as a user without any privilege.
as_user() {
	if ((EUID == 0)); then
		setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "$@"
	else
		"$@"
	fi
}

# private_home DIR OWNER gives the commands that follow a home of their own, so
# that nothing of this machine's user is used or touched.
private_home() {
	local d=$1
	mkdir -p "$d"/{home,data,state,config,cache,tmp,run}
	export HOME="$d/home" TMPDIR="$d/tmp" XDG_DATA_HOME="$d/data" XDG_STATE_HOME="$d/state"
	export XDG_CONFIG_HOME="$d/config" XDG_CACHE_HOME="$d/cache" XDG_RUNTIME_DIR="$d/run"
	chmod 700 "$d/run"
	if ((EUID == 0)) && [[ $2 == user ]]; then chown -R 65534:65534 "$d"; fi
}

# install_packages PROGRAM=PACKAGE… installs what is not there yet.
install_packages() {
	local pair missing=()
	for pair in "$@"; do
		command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
	done
	((${#missing[@]})) || return 0
	note "installing ${missing[*]}"
	as_root apt-get update -q
	as_root apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# snapshot FILE writes down everything of the machine that a run could leave
# changed. Two snapshots are compared with diff.
snapshot() {
	{
		say "# named namespaces" && ip netns list | sort
		say "# network namespaces" && lsns -t net -n -o NS 2>/dev/null | sort
		say "# links" && ip -o link | sed -E 's/^[0-9]+: //' | sort
		say "# addresses" && ip -o addr | awk '{print $2, $3, $4}' | sort
		say "# routes" && ip route show table all 2>/dev/null | sort && ip -6 route show table all 2>/dev/null | sed -E 's/expires [0-9]+sec//' | sort
		say "# rules" && ip rule 2>/dev/null
		say "# queues" && tc qdisc 2>/dev/null | sort
		say "# nftables" && { ! command -v nft >/dev/null || as_root nft list ruleset; }
		say "# processes" && leftover_processes
		say "# settings" && settings
	} >"$1"
}

# leftover_processes names what a run could leave behind, by executable.
leftover_processes() {
	local p exe
	for p in /proc/[0-9]*; do
		exe=$(readlink "$p/exe" 2>/dev/null) || continue
		exe=${exe% (deleted)}
		case ${exe##*/} in
		chokepoint | chokepoint-agent | iperf3 | openvpn) say "${p#/proc/} ${exe##*/}" ;;
		esac
	done | sort
}

# settings prints the sysctls that a run could change. Counters and what the
# kernel adjusts by itself are left out.
settings() {
	(cd /proc/sys && find net vm -type f -perm -u+w 2>/dev/null | sort |
		grep -vE '/stat/|neigh/|stable_secret|flush$|drop_caches|compact_memory|stat_refresh' |
		xargs grep -sH '')
}

# left_as_found BEFORE: waits a moment for the kernel to finish removing
# namespaces, then compares.
left_as_found() {
	local i
	for i in 1 2 3 4 5 6 7 8 9 10; do
		snapshot "$1.after"
		cmp -s "$1" "$1.after" && return 0
		sleep 0.5
	done
	diff -u "$1" "$1.after" || fail "the machine is not left as found"
}

# fresh_clone DIR: what a new user gets. Nothing that is not committed is in it.
fresh_clone() {
	git -c safe.directory="$TOP" -c safe.directory="$TOP/.git" clone -q --no-local "file://$TOP" "$1" 2>/dev/null ||
		git -c safe.directory='*' clone -q "$TOP" "$1"
	chmod -R a+rX "$1"
}
