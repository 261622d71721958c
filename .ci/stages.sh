# The stages of .ci/run and .ci/nightly, one function each. Each runs in a
# shell of its own with -euo pipefail, no standard input, in the run's fresh clone.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PROGRAM="${WORK:-}/bin/chokepoint"
GATE="${WORK:-}/bin/gate"
MODULES=(. bench dist)

# in_modules COMMAND… runs a command in the folder of each Go module, also if it fails in another.
in_modules() {
	local module status=0
	for module in "${MODULES[@]}"; do (cd "$module" && "$@") || status=$?; done
	return "$status"
}

modules() {
	# A proxy of modules may fail for a moment.
	in_modules go mod download || { sleep 10 && in_modules go mod download; } || {
		sleep 30 && in_modules go mod download
	}
	in_modules go mod verify
	chmod -R a+rX "$GOMODCACHE"
	snapshot "$WORK/machine"
}

format() {
	local bad
	bad=$(git ls-files '*.go' | grep -v /testdata/ | xargs gofmt -l)
	[[ -z $bad ]] || fail "not formatted by gofmt:" $bad
}

vet() {
	local f
	in_modules go vet ./...
	for f in .ci/run .ci/nightly .ci/*.sh; do bash -n "$f"; done
}

# bench has the linter, so that the program does not require it.
lint() {
	mkdir -p "$WORK/bin"
	go -C bench build -o "$WORK/bin/staticcheck" honnef.co/go/tools/cmd/staticcheck
	in_modules "$WORK/bin/staticcheck" ./...
}

tidy() { in_modules go mod tidy -diff; }

# Each leaves a core idle that the other uses.
lint_vulnerabilities() {
	beside lint
	vulnerabilities
	joined
}

# Whether a package that is imported, of ours or others, is known to be vulnerable. Without the
# database nothing is known, which is no pass: where its own address cannot be reached,
# the Go module that it is made of is indexed here. What is known and why it stays is
# listed in .ci/known-vulnerabilities; all else is a failure.
GOVULNCHECK=golang.org/x/vuln/cmd/govulncheck@v1.9.0
vulnerabilities() {
	export GOTOOLCHAIN=auto # the release of Go that go.mod names, which releases are built with
	local log="$WORK/vulnerabilities.txt" status=0 from id unknown=()
	mkdir -p "$WORK/bin"
	GOBIN="$WORK/bin" go install "$GOVULNCHECK"
	scan "$log" || status=$?
	if grep -q '^govulncheck: fetching vulnerabilities: ' "$log"; then
		from=$(cd "$WORK" && go mod download -json golang.org/x/vulndb@latest | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p') || from=
		if [[ -z $from ]] || ! GOBIN="$WORK/bin" go install "golang.org/x/vulndb/cmd/indexdb@${from##*@}"; then
			cat "$log"
			skip vulnerabilities "the database of vulnerabilities cannot be reached"
			return
		fi
		note "the database of vulnerabilities is ${from##*/}"
		"$WORK/bin/indexdb" -vulns "$from/data/osv" -out "$WORK/vulndb"
		status=0
		scan "$log" -db "file://$WORK/vulndb" || status=$?
	fi
	cat "$log"
	((status == 0 || status == 3)) || fail "govulncheck: exit status $status"
	for id in $(sed -n 's/^Vulnerability #[0-9]*: //p' "$log" | sort -u); do
		if grep -q "^$id | " .ci/known-vulnerabilities; then
			note "known: $(grep "^$id | " .ci/known-vulnerabilities)"
		else
			unknown+=("$id")
		fi
	done
	((${#unknown[@]} == 0)) || fail "vulnerabilities that are not listed: ${unknown[*]}"
	((status == 0)) || grep -q '^Vulnerability #1: ' "$log" || fail "govulncheck found what this stage cannot read"
}

# scan LOG FLAGS… runs govulncheck on each module, until one cannot reach the database; its status is 0, 3 if something
# was found, or that of an error.
scan() {
	local log=$1 module status result=0
	shift
	: >"$log"
	for module in "${MODULES[@]}"; do
		status=0
		"$WORK/bin/govulncheck" -C "$module" "$@" -scan package ./... >>"$log" 2>&1 || status=$?
		((status == 0 || (status == 3 && result != 0))) || result=$status
		! grep -q '^govulncheck: fetching vulnerabilities: ' "$log" || break
	done
	return "$result"
}

generate() {
	in_modules go generate ./...
	git diff --exit-code || fail "go generate changes the tree"
	[[ -z $(git status --porcelain) ]] || fail "go generate adds files: $(git status --porcelain)"
}

build() {
	export CGO_ENABLED=0 # as a release, and as cross-build does: it is compiled once
	mkdir -p "$WORK/bin"
	go build -trimpath -o "$PROGRAM" ./cmd/chokepoint
	go build -trimpath -o "$WORK/bin/chokepoint-agent" ./cmd/chokepoint-agent
	go -C bench build -trimpath -o "$GATE" ./gate
}

# The README's first command, by root.
run_as_root() {
	private_home "$WORK/root-home" root
	first_command as_root
}

# The same by a user who owns nothing here and cannot write to the folder.
run_as_user() {
	private_home "$WORK/user-home" user
	! as_user touch here 2>/dev/null || ((EUID != 0)) || fail "the clone can be written to, so this proves nothing"
	as_user unshare --user --map-root-user --net true ||
		fail "this kernel allows no user namespaces: an ordinary user cannot be tested here"
	first_command as_user
}

# first_command AS: builds once, then the command itself must take no more
# than 90 seconds, show ten cells, and leave the machine as it was.
first_command() {
	local as=$1 before="$WORK/$1.machine" began
	"$as" go build -buildvcs=false -o /dev/null ./cmd/chokepoint
	snapshot "$before"
	began=$SECONDS
	"$as" go run ./cmd/chokepoint run >"$WORK/$as.out" 2>"$WORK/$as.err" || {
		cat "$WORK/$as.out" "$WORK/$as.err"
		fail "go run ./cmd/chokepoint run"
	}
	note "go run ./cmd/chokepoint run took $((SECONDS - began)) s"
	cat "$WORK/$as.err" "$WORK/$as.out"
	((SECONDS - began <= 90)) || fail "the first command took more than 90 s"
	"$as" "$PROGRAM" show --json latest >"$WORK/$as.json"
	"$as" script -qec "stty cols 80; $PROGRAM show" /dev/null >"$WORK/$as.screen"
	suite document -run TestQuick -document "$WORK/$as.json" -screen "$WORK/$as.screen" \
		-report "$(find "$XDG_DATA_HOME" -name report.html | head -n 1)"
	left_as_found "$before"
	[[ -z $(find "$TMPDIR" "$XDG_RUNTIME_DIR" -mindepth 1 -not -path "$TMPDIR/go-*" | head) ]] ||
		fail "files left in temporary folders: $(find "$TMPDIR" "$XDG_RUNTIME_DIR" -mindepth 1)"
	if find "$XDG_STATE_HOME" -type f -size +0 | grep -q .; then
		fail "journal left: $(find "$XDG_STATE_HOME" -type f)"
	fi
}

install_tools() {
	install_packages qemu-system-x86_64=qemu-system-x86 iperf3=iperf3 chromium=chromium gcc=gcc nft=nftables ip=iproute2 openvpn=openvpn clang=clang sshd=openssh-server sudo=sudo busybox=busybox tcsh=tcsh openssl=openssl flent=flent irtt=irtt ping=iputils-ping python3=python3 npm=npm
	[[ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ]] || as_root apt-get install -q -y fonts-dejavu-core
	command -v gcc iperf3 chromium nft ip openvpn clang sshd sudo busybox tcsh openssl flent irtt ping
	echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1 || as_root apt-get install -q -y libc6-dev
	install_postgresql
	/usr/bin/python3 -c 'import matplotlib' 2>/dev/null || as_root apt-get install -q -y --no-install-recommends python3-matplotlib
}

# beside FUNCTION ARGUMENT… runs a function while the stage goes on, until joined; one at a time.
beside() {
	bash -euo pipefail -c '. "$STAGES"; "$@"' bash "$@" >"$WORK/$1.txt" 2>&1 &
	BESIDE=($! "$1")
	trap wait EXIT # also if the stage fails first
}

# joined waits for that function and shows its output; its failure is the stage's.
joined() {
	local status=0
	wait "${BESIDE[0]}" || status=$?
	cat "$WORK/${BESIDE[1]}.txt"
	((status == 0)) || fail "${BESIDE[1]}: exit status $status"
}

# The tests start a server of their own: the package must make none.
install_postgresql() {
	compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && return
	as_root apt-get update -q
	as_root apt-get install -q -y --no-install-recommends postgresql-common
	as_root sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
	as_root apt-get install -q -y --no-install-recommends postgresql
}

# tally TESTS… runs go test, counts, and refuses a skip that is not on a list. The status of go test counts too.
tally() {
	local status=(0 0)
	"$@" -json | "$GATE" ${LOGS:+-logs} "$TOP/.ci/allowed-skips" ${ALSO_ALLOWED:+"$ALSO_ALLOWED"} \
		2>&1 >>"$STAGE_COUNTS" || status=("${PIPESTATUS[@]}")
	[[ ${status[*]} == "0 0" ]] || {
		say "fail: exit status ${status[0]} of: $* (of the gate: ${status[1]})"
		return 1
	}
}

# The README's test commands, as they stand there and with Go's defaults. They must take no more than ten minutes.
tests() {
	local began=$SECONDS status=0 lines line
	unset CHOKEPOINT_LONG
	export GOFLAGS=$README_GOFLAGS
	mapfile -t lines < <(commands README.md | grep -E '^go (-C [a-z]+ )?test ')
	((${#lines[@]} == 2)) || fail "the README's test commands: ${lines[*]}"
	for line in "${lines[@]}"; do tally as_root $line || status=1; done
	note "the README's tests took $((SECONDS - began)) s"
	((SECONDS - began <= 600)) || fail "the README's tests took more than ten minutes"
	[[ -z $(git status --porcelain) ]] || fail "tests change the tree: $(git status --porcelain)"
	return "$status"
}

# Nightly only: the same with the tests that are asked for, which boot guests or take long; one package after the
# other, so that nothing disturbs what is timed.
tests_long() {
	private_home "$WORK/guest" root
	export CHOKEPOINT_LONG=1 CHOKEPOINT_VM_CACHE="$XDG_CACHE_HOME/chokepoint/vm"
	as_root "$PROGRAM" lab image
	tally in_modules as_root go test -p 1 -timeout 0 ./...
}

# Nightly only: the README's test commands on a bare machine, played by a root of its own: Debian's smallest system
# with Go, without compiler, sshd, QEMU or iproute2. .ci/allowed-skips-bare lists what is skipped for want of them.
tests_bare() {
	local root="$WORK/bare" go module status=0
	go=$(go env GOROOT)
	unset CHOKEPOINT_LONG
	bare_root "$root"
	as_root cp -a "$SOURCE/." "$root/chokepoint"
	export ALSO_ALLOWED="$TOP/.ci/allowed-skips-bare"
	for module in "${MODULES[@]}"; do
		tally in_bare "$root" "$go" go -C "$module" test ./... || status=1
	done
	return "$status"
}

# bare_root ROOT makes such a root, with a folder for what is tried there.
bare_root() {
	install_packages debootstrap=debootstrap
	as_root debootstrap --variant=minbase --include=ca-certificates bookworm "$1" >/dev/null
	as_root mkdir -p "$1/usr/local/go" "$1/modules" "$1/chokepoint"
}

# in_bare ROOT GO COMMAND… runs a command in such a root.
in_bare() {
	as_root unshare --mount --pid --fork --kill-child bash -euc '
		mount --bind "$0" "$0" # a root is a mount point
		cd "$0"
		mount --rbind /dev dev
		mount --rbind /sys sys
		mount -t proc proc proc
		mount --bind "$1" usr/local/go
		mount --bind "$2" modules
		pivot_root . . # who is in a chroot may make no user namespaces
		umount -l .
		exec env -i HOME=/ GOMODCACHE=/modules LANG=C.UTF-8 PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			sh -c "cd /chokepoint; \"\$@\"; exit" sh "${@:3}"' \
		"$1" "$2" "$GOMODCACHE" "${@:3}"
}

# later TESTS prints which tests .ci/run leaves to .ci/nightly, where WHOLE is set: none.
later() { if [[ -n ${WHOLE:-} ]]; then say '^$'; else say "$1"; fi; }

# What .ci/run leaves out as an ordinary user: it takes long, and meets no privilege that the rest does not.
USER_LATER='^TestMemoryOfLongRuns$|^TestSuitesCanFail$|^TestCeilingsOfEveryEngine$|^TestProbers$|^TestFlowsCrossTheRouter$|^TestCountersAgreeWithTheEngine$'
USER_LATER+='|^TestRequestsTakeAsLongAsTheRateSays$|^TestResponsivenessSeesAKnownQueue$|^TestEngines$/^(flows|requests|iperf3)$'
USER_LATER+='|^TestScripts$/^(catalog|import|import_openssl|lab_queues|peer_blocked|peer_dies|peer_flood|peer_iperf3|peer_path|peer_run|prove|resume|run_meter|run_steps|tune_lab|import_foreign|catalog_site|crypto_plan)$|^TestLengths|^TestPortable'

# As an ordinary user, what differs by privilege: the tests in files that make
# namespaces, need root, or ask who they are.
tests_as_user() {
	local files names
	private_home "$WORK/user-home" user
	files=$(git grep -lE 'labtest\.(Up|LeavesNothing)|needs root|Get(e)?uid|unshare|ordinary user|Chmod' -- \
		'cmd/*_test.go' 'internal/*_test.go')
	names=$(sed -nE 's/^func (Test[A-Za-z0-9_]+)\(.*/\1/p' $files | grep -vx TestMain | sort -u | paste -sd '|')
	ALSO_ALLOWED="$TOP/.ci/allowed-skips-user" \
		tally as_user go test -vet=off -run "^($names)\$" -skip "$(later "$USER_LATER")" \
		$(xargs -n 1 dirname <<<"$files" | sort -u | sed 's|^|./|')
}

# Nightly only: the packages whose threads meet, with the race detector: the labs, the trials and what runs them.
RACED=(./internal/lab/... ./internal/trial/... ./internal/registry/... ./internal/record/... ./internal/progress
	./internal/labtest/... ./cmd/chokepoint-agent)
race() {
	unset CHOKEPOINT_LONG
	CGO_ENABLED=1 tally as_root go test -race -vet=off -p 1 -timeout 20m "${RACED[@]}"
}

# Nightly only: a router under load for long; drift, throttling and leaks. Then
# hundreds of short trials, in which no process of the program may grow.
soak() {
	private_home "$WORK/soak" root
	as_root "$PROGRAM" run soak --set "method.soak=${SOAK:-30m}" >/dev/null
	as_root "$PROGRAM" show latest
	cat >"$WORK/trials.yaml" <<-'END'
		method: {duration: 200ms, warmup: 50ms, cooldown: 20ms, idle: 100ms, runs: 200}
		matrix: {direction: [up, down], streams: [1, 4]}
		measure: {latency_idle: block}
	END
	as_root "$PROGRAM" run "$WORK/trials.yaml" >/dev/null 2>&1 &
	sizes $! >"$WORK/sizes"
	wait $! || fail "the run of short trials: exit $?"
	grown "$WORK/sizes"
}

# sizes PID prints every five seconds the time, id, resident kB, descriptors and
# command line of each process below PID, until that ends.
sizes() {
	local began=$SECONDS p
	while kill -0 "$1" 2>/dev/null; do
		for p in $(ps -eo pid=,ppid= | awk -v top="$1" '{up[$1] = $2}
			END {for (p in up) for (q = p; q > 1; q = up[q]) if (q == top) {print p; break}}'); do
			printf '%d %d %d %d %s\n' $((SECONDS - began)) "$p" \
				"$(awk '/^VmRSS/ {print $2}' "/proc/$p/status" 2>/dev/null)" \
				"$(as_root ls "/proc/$p/fd" 2>/dev/null | wc -l)" \
				"$({ tr '\0' ' ' <"/proc/$p/cmdline" | sed "s|$WORK/bin/||" | cut -c1-40; } 2>/dev/null)"
		done
		sleep 5
	done
}

# grown FILE checks what sizes printed of the processes that lived for two minutes
# or longer: the most memory and the least descriptors of their second minute
# and of their last, which leaves out 15 s in which the run makes its report. More
# than 5 % is a failure; so are fewer than four such processes.
grown() {
	awk '{name = $5 " " $6 " " $7; t = $1; if (!($2 in first)) first[$2] = t
		last[$2] = t; command[$2] = name; n++; at[n] = t; id[n] = $2; kb[n] = $3; fds[n] = $4}
		END {for (i = 1; i <= n; i++) {p = id[i]
				if (at[i] >= first[p] + 60 && at[i] < first[p] + 120) {
					if (kb[i] > kb0[p]) kb0[p] = kb[i]
					if (!(p in fd0) || fds[i] < fd0[p]) fd0[p] = fds[i]}
				if (at[i] > last[p] - 75 && at[i] < last[p] - 15) {
					if (kb[i] > kb1[p]) kb1[p] = kb[i]
					if (!(p in fd1) || fds[i] < fd1[p]) fd1[p] = fds[i]}}
			for (p in first) if (last[p] - first[p] >= 120) {seen++
				bad = kb1[p] > 1.05 * kb0[p] || fd1[p] > 1.05 * fd0[p] + 1; failed += bad
				printf "%s%s (%d): %d to %d kB, %d to %d descriptors, from the second minute to the last of %d s\n",
					bad ? "fail: " : "", command[p], p, kb0[p], kb1[p], fd0[p], fd1[p], last[p] - first[p]}
			if (seen < 4) {print "fail: only " seen + 0 " processes lived for two minutes"; exit 1}
			exit failed > 0}' "$1"
}

# Nightly only: every fuzz target for minutes (its seeds are tests, too); a package is built once
# for all of its targets. Go's own engine now and then calls the end of its time
# a failure (golang.org/issue/75804, mended in 1.27): a target that fails without
# a failing input is tried once more.
fuzz() {
	local pkg dir name n=0 foreign=0 log="$WORK/fuzz.target"
	while read -r pkg dir; do
		grep -qs '^func Fuzz' "$dir"/*_test.go || continue
		go -C "$dir" test -c -fuzz . -o "$WORK/fuzz.test"
		for name in $(sed -nE 's|^func (Fuzz[A-Za-z0-9_]+)\(.*|\1|p' "$dir"/*_test.go); do
			say "$pkg $name"
			if fuzz_target "$dir" "$name" | tee "$log" || { ! grep -q 'Failing input' "$log" && fuzz_target "$dir" "$name"; }; then
				count 1 0 0
			else
				count 0 1 0
				say "fail: $pkg $name"
			fi
			n=$((n + 1))
			[[ $pkg != */internal/foreign ]] || foreign=$((foreign + $(sed -n 's/.*execs: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)))
		done
	done < <(in_modules go list -f '{{.ImportPath}} {{.Dir}}' ./...)
	((n > 0)) || fail "no fuzz target found"
	note "$n fuzz targets, ${FUZZ_TIME:-3m} each; $foreign executions of the readers of other programs' files"
	[[ -n ${FUZZ_TIME:-} ]] || ((foreign >= 10000000)) || fail "10 million executions of these are wanted"
}

fuzz_target() {
	(cd "$1" && "$WORK/fuzz.test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "${FUZZ_TIME:-3m}" \
		-test.fuzzminimizetime 2s -test.timeout 20m -test.paniconexit0 -test.fuzzcachedir="$WORK/fuzz.cache/$1")
}

# The agent for the kinds of routers and the program for those of testers; ALSO
# names the rarer ones, for the nightly run.
cross_build() {
	local target os arch variant size
	export CGO_ENABLED=0
	for target in linux/amd64 linux/arm64 linux/mipsle/softfloat freebsd/amd64 \
		${ALSO:-}; do
		IFS=/ read -r os arch variant <<<"$target"
		GOOS=$os GOARCH=$arch GOARM=${variant/softfloat/7} GOMIPS=softfloat \
			go build -trimpath -ldflags='-s -w' -o "$WORK/agent" ./cmd/chokepoint-agent
		size=$(stat -c %s "$WORK/agent")
		note "chokepoint-agent $target: $size bytes"
		if ((size < 12000000)); then count 1 0 0; else
			count 0 1 0
			say "fail: chokepoint-agent $target has $size bytes, 12 MB are allowed"
		fi
	done
	for target in linux/amd64 ${WHOLE:+linux/arm64} $(tr ' ' '\n' <<<"${ALSO:-}" | grep "^linux/.*64$" || true); do
		GOOS=${target%/*} GOARCH=${target#*/} go build -trimpath -ldflags='-s -w' -o "$WORK/whole" ./cmd/chokepoint
		note "chokepoint $target: $(stat -c %s "$WORK/whole") bytes"
		count 1 0 0
	done
}

# The packages for this architecture, made twice. The deb is installed in a root of Debian's smallest system, upgraded,
# runs the default plan there, and is removed: nothing is left, and what the run leaves is in the user's home. What
# plays systemctl there keeps what it is asked for.
packages() {
	local root="$WORK/root" go arch
	go=$(go env GOROOT) arch=$(go env GOARCH)
	beside bare_root "$root" # which waits for downloads
	tally go -C dist test -vet=off ./...
	packages_twice -programs "linux/$arch" -agents "linux/$arch,linux/mipsle"
	joined
	as_root cp "$WORK/packages/one/"chokepoint_*.deb "$root/chokepoint/chokepoint.deb"
	as_root mkdir -p "$root/run/systemd/system"
	printf '#!/bin/sh\necho "$*" >>/chokepoint/systemctl\n' >"$WORK/systemctl"
	as_root install -m 755 "$WORK/systemctl" "$root/usr/bin/systemctl"
	files_in "$root" >"$WORK/root.before"
	in_bare "$root" "$go" dpkg -i chokepoint.deb
	in_bare "$root" "$go" dpkg -i chokepoint.deb
	in_bare "$root" "$go" dpkg -L chokepoint
	[[ -x $root/usr/lib/chokepoint/chokepoint-agent-linux-mipsel ]] || fail "no agent for mipsel in the deb"
	in_bare "$root" "$go" env HOME=/chokepoint chokepoint run quick --set method.runs=1 --set method.duration=1s
	in_bare "$root" "$go" dpkg -P chokepoint
	files_in "$root" >"$WORK/root.after"
	diff -u "$WORK/root.before" "$WORK/root.after" || fail "the removed package has left something"
	printf '%s\n' 'try-restart chokepoint-peer.service chokepoint-bed@*.service' \
		'--quiet --now disable chokepoint-peer.service' '--quiet stop chokepoint-bed@*.service' |
		diff - <(grep -v '^daemon-reload$' "$root/chokepoint/systemctl") || fail "what the package did to the service"
}

# packages_twice FLAGS… makes packages from two clones in two folders, and compares their checksums.
packages_twice() {
	local try began
	for try in one two; do
		fresh_clone "$WORK/packages-$try/source"
		began=$SECONDS
		go -C "$WORK/packages-$try/source/dist" run . -output "$WORK/packages/$try" "$@"
		note "making them took $((SECONDS - began)) s"
		(cd "$WORK/packages/$try" && sha256sum -c SHA256SUMS)
	done
	diff "$WORK"/packages/{one,two}/SHA256SUMS || fail "the packages, made twice from the same commit, differ"
	stat -c 'note: %n: %s bytes' "$WORK"/packages/one/* | sed "s|$WORK/packages/one/||"
	note "$(wc -l <"$WORK/packages/one/SHA256SUMS") files, made twice, are the same"
}

# Nightly only: the packages for all systems, by the release of Go that go.mod names.
all_packages() { GOTOOLCHAIN=auto GOCACHE="$WORK/packages-cache" packages_twice; }

# files_in ROOT prints a root's files with owners, modes and contents, except those in which dpkg keeps account of
# what it did.
files_in() {
	(cd "$1" && as_root find . -xdev \( -path ./chokepoint -o -path './var/lib/dpkg/status*' -o -path ./var/log/dpkg.log \) \
		-prune -o -printf '%p %y %u %m %l\n' -type f -fprint0 "$WORK/contents" && as_root xargs -0 sha256sum <"$WORK/contents") | sort
}

# Nightly only: that each benchmark runs.
benchmarks() { in_modules as_root go test -run '^$' -bench . -benchtime 1x ./...; }

# Every command line of the documents: the blocks marked "sh", as they stand. Two documents run at a time, the
# longest first; one alone whose windows are shorter than a second, which a busy machine spoils.
# What .ci/run leaves to .ci/nightly: pages whose commands take half a minute or more, of things that scripts try.
DOCUMENTS_LATER='^docs/howto/(compare|prove|published-tables|tunnels|two-pcs|virtual-router|write-a-plan)\.md$'

documents() {
	export PATH="$WORK/bin:$PATH"
	# A clone is made from this tree.
	export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0="url.file://$TOP.insteadOf" GIT_CONFIG_KEY_1=safe.directory
	export GIT_CONFIG_VALUE_0=https://github.com/chokepoint-lab/chokepoint GIT_CONFIG_VALUE_1='*'
	local doc alone=() beside=()
	mkdir -p "$WORK/guest/cache"
	snapshot "$WORK/documents.machine"
	# What the README says is done by run-as-root, run-as-user and tests; so is the run of the default plan.
	for doc in docs/tutorial.md $(git ls-files docs | grep '\.md$' | grep -vx docs/tutorial.md | grep -vE "$(later "$DOCUMENTS_LATER")"); do
		mkdir -p "$WORK/documents/$doc"
		commands "$doc" | sed -E '/^(chokepoint|go run .\/cmd\/chokepoint) run$/d' >"$WORK/documents/$doc.sh"
		if grep -qE 'duration(: |=)[0-9]+ms' "$WORK/documents/$doc.sh"; then
			alone+=("$doc")
		elif [[ -s $WORK/documents/$doc.sh ]]; then
			beside+=("$doc")
		fi
	done
	at_once 1 document "${alone[@]}"
	at_once 2 document "${beside[@]}"
	left_as_found "$WORK/documents.machine"
}

# commands DOC prints the lines of a page's blocks marked "sh", without comments.
commands() {
	awk '/^```/ {shell = !inside && /^``` *sh *$/; inside = !inside; next} shell {sub(/  #.*/, ""); sub(/ +$/, ""); print}' "$1"
}

# at_once N FUNCTION ARGUMENT… runs the function with each argument, N at a time; PLACE numbers those N.
at_once() {
	local n=$1 body=$2
	shift 2
	(($# == 0)) || printf '%s\0' "$@" | xargs -0 -n 1 -P "$n" --process-slot-var=PLACE \
		bash -euo pipefail -c '. "$STAGES"; "$0" "$1"' "$body"
}

# document DOC runs the commands of one, in the home of those at the same place before it: some show an earlier run.
document() {
	local doc=$1 began=$SECONDS log="$WORK/documents/$1.log"
	private_home "$WORK/documents$PLACE" root
	export XDG_CACHE_HOME="$WORK/guest/cache" # the image of guests is built once
	cd "$WORK/documents/$doc"
	say "##### $doc begins"
	if as_root bash -euxo pipefail "$WORK/documents/$doc.sh" >"$log" 2>&1; then
		count 1 0 0
		say "note: $doc: $((SECONDS - began)) s" >>"$log"
	else
		count 0 1 0
		say "fail: the commands of $doc" >>"$log"
	fi
	exec 9>>"$WORK/documents/said"
	flock 9 # one speaks at a time
	say "##### $doc" && cat "$log"
}

# suite FOLDER FLAGS… runs a suite of bench, which go test alone skips, and shows
# what it logs.
suite() { LOGS=1 tally as_root go -C bench test -vet=off -timeout 0 "./$@"; }

secrets() { suite secrets -planted -run TestSecrets; }

# Each leaves a core idle that the other uses.
secrets_screenshots() {
	beside screenshots
	secrets
	joined
}

kills() { suite kills -binary "$PROGRAM" -kills "${KILLS:-12}" -run TestKills; }

# Nightly only: kills of a testbed's service, of the database of its jobs and of labgrid's coordinator, and cuts of
# the network between.
kills_bed() {
	install_postgresql
	real_labgrid
	suite remote -binary "$PROGRAM" -labgrid "$WORK/labgrid/bin" -kills "${KILLS_BED:-100}" -run 'TestBedKills$'
}

# A virtual router: the image is built and booted, and ratios are asserted.
guest() {
	private_home "$WORK/guest" root
	suite guest -measure -run TestRatios
	same_image
}

# The same packages make the same bytes.
same_image() {
	local cache="$XDG_CACHE_HOME/chokepoint/vm" sums=() i
	for i in 1 2; do
		as_root rm -rf "$cache"/base-* "$cache"/image-*
		as_root "$PROGRAM" lab image --json >"$WORK/image.json"
		sums+=("$(as_root cat "$cache"/base-*/kernel "$cache"/image-*/initrd | sha256sum)")
	done
	note "the image, built twice: ${sums[0]}"
	[[ ${sums[0]} == "${sums[1]}" ]] || fail "the image, built twice from the same packages, differs"
}

# Nightly only: kills where the routers are virtual machines.
kills_guest() { suite kills -binary "$PROGRAM" -lab vm -kills "${KILLS_GUEST:-54}" -run TestKills; }

# Nightly only: the default plan on the other families of routers.
families() {
	private_home "$WORK/families" root
	install_packages qemu-system-aarch64=qemu-system-arm qemu-system-mipsel=qemu-system-mips
	local arch
	for arch in arm64 mipsel; do # as a release has its agents
		CGO_ENABLED=0 GOARCH=${arch/mipsel/mipsle} GOMIPS=softfloat go build -trimpath \
			-o "$WORK/bin/chokepoint-agent-linux-$arch" ./cmd/chokepoint-agent
		as_root "$PROGRAM" run quick --lab "vm:$arch" | sed 's/^/note: /'
		count 1 0 0
	done
}

# Nightly only: two cells that are the same, twenty times: how often is anything
# called different?
same() {
	private_home "$WORK/guest" root
	suite guest -measure -runs "${SAME_RUNS:-1}" -run TestSame
}

# Nightly only: pairs of disk images that boot in seconds: the same twice, and with a planted step.
upgrades() {
	private_home "$WORK/guest" root
	install_packages qemu-system-x86_64=qemu-system-x86 busybox=busybox dropbear=dropbear-bin nft=nftables tc=iproute2 \
		cpio=cpio mkfs.vfat=dosfstools mcopy=mtools syslinux=syslinux depmod=kmod ssh-keygen=openssh-client
	suite guest -measure -pairs "${PAIRS:-20}" -images "$WORK/images" -keep "${UPGRADES:-}" -run 'TestUpgrades$'
}

# Nightly only: rules that raise alarms, ours and those of other programs, on recorded nights.
detectors() {
	python3 -c 'import ensurepip' 2>/dev/null || as_root apt-get install -q -y --no-install-recommends python3-venv
	python3 -m venv "$WORK/detectors"
	"$WORK/detectors/bin/pip" install -q apache-otava==0.8.0 jumpavg==0.4.2
	go -C bench run ./detectors -python "$WORK/detectors/bin/python" | sed 's/^/note: /'
}

# Plans of published tables on a virtual router, with short windows: one of them, at
# night all.
plans() {
	private_home "$WORK/guest" root
	suite guest -measure -run "TestPlans/^(${PLANS:-wireguard})\$"
}

# Nightly only: a Debian disk made from packages is booted as a foreign image,
# by ssh and by the serial console, and measured.
foreign() {
	private_home "$WORK/foreign" root
	install_packages qemu-img=qemu-utils ssh=openssh-client
	local disk="$WORK/foreign/disk" before
	bench/guestdisk/build "$disk"
	before=$(sha256sum "$disk"/disk.*)
	CHOKEPOINT_DISK=$disk as_root go test -v -count=1 -timeout 20m -run '^TestForeign' ./internal/lab
	as_root "$PROGRAM" run quick --lab vm --image "$disk/disk.img" --image-key "$disk/key"
	as_root "$PROGRAM" show --json latest >"$WORK/foreign.json"
	suite document -run TestQuick -document "$WORK/foreign.json" -lab vm -flooded
	[[ $(sha256sum "$disk"/disk.*) == "$before" ]] || fail "the disk image was changed"
}

# Nightly only: PPPoE between guests with Debian's whole kernel; that for clouds, which guests have otherwise,
# lacks PPP.
pppoe() {
	private_home "$WORK/guest" root
	export CHOKEPOINT_VM_CACHE="$XDG_CACHE_HOME/chokepoint/vm"
	as_root "$PROGRAM" lab image
	local release kernel="$WORK/kernel"
	mkdir -p "$kernel"
	release=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: linux-image-\([0-9].*\)/\1/p')
	(cd "$kernel" && apt-get download "linux-image-$release" && dpkg-deb -x linux-image-*.deb .)
	CHOKEPOINT_PPP_KERNEL=$kernel/boot/vmlinuz-$release CHOKEPOINT_PPP_MODULES=$kernel/lib/modules/$release \
		as_root go test -vet=off -v -count=1 -run '^TestGuestPPPoE$' ./internal/lab | tee "$WORK/pppoe"
	grep -q '^--- PASS: TestGuestPPPoE ' "$WORK/pppoe" || fail "no session by PPPoE"
	# As chokepoint peer does it, and a lab file says over ssh: machines in namespaces of a guest with that kernel.
	local disk="$WORK/pppoe-disk" pack="$WORK/pppoe-pack" status=0 script
	for script in isp_pppoe ssh_pppoe; do
		install -D {cmd/chokepoint,"$pack"}/testdata/script/$script.txt
	done
	CGO_ENABLED=0 go test -c -ldflags='-s -w' -o "$pack/t" ./cmd/chokepoint
	boot_disk "$disk" linux-image-amd64 ppp nftables openssh-client dhcpcd-base
	tar -C "$pack" -czf - . | in_disk "$disk" 'busybox tar xzf - && modprobe pppoe &&
		./t -test.v -test.parallel 1 -test.run "TestScripts/.*_pppoe"' >"$WORK/pppoe-disk.log" || status=1
	end_disk
	cat "$WORK/pppoe-disk.log"
	((status == 0)) && (($(grep -c '^ *--- PASS: TestScripts/.*_pppoe ' "$WORK/pppoe-disk.log") == 2)) ||
		fail "no session by PPPoE of chokepoint peer or as the lab file says"
}

# Nightly only: how long packets are outside of tunnels that Debian's kernel has,
# in a virtual machine; those of this machine are tried by the tests.
lengths() {
	local disk="$WORK/foreign/disk" status=0
	CGO_ENABLED=0 go test -c -o "$WORK/lengths.test" ./internal/lab/tunnel
	boot_disk "$disk"
	gzip -c "$WORK/lengths.test" | in_disk "$disk" 'gzip -d >t && chmod +x t &&
		modprobe -a tun wireguard ip_gre ip6_gre ipip ip6_tunnel vxlan xfrm_interface esp4 esp6 &&
		./t -test.v -test.parallel 2 -test.run Lengths' | tee "$WORK/lengths" || status=1
	end_disk
	((status == 0)) && grep -q '^--- PASS: .*Lengths' "$WORK/lengths" &&
		! grep -q '^ *--- SKIP: .*/\(wireguard\|esp\|gre\|ipip\|vxlan\)' "$WORK/lengths" ||
		fail "lengths in a virtual machine"
}

# boot_disk boots a disk with Debian, made with further packages, until end_disk, or until the stage ends. What
# fails ends the stage: also where bash takes no notice, as in a condition.
boot_disk() {
	install_packages qemu-img=qemu-utils qemu-system-x86_64=qemu-system-x86 ssh=openssh-client ||
		fail "what boots a disk cannot be installed"
	bench/guestdisk/build "$@" || fail "the disk cannot be made"
	qemu-system-x86_64 -m 1024 -smp 2 -display none -drive "file=$1/disk.qcow2,snapshot=on,if=virtio" \
		-nic user,model=virtio,hostfwd=tcp:127.0.0.1:22022-:22 >"$1/qemu" 2>&1 &
	DISK_PID=$!
	trap 'kill "$DISK_PID" 2>/dev/null || true' EXIT
	for _ in $(seq 60); do
		kill -0 "$DISK_PID" 2>/dev/null || fail "the disk's machine has ended: $(cat "$1/qemu")"
		if in_disk "$1" true 2>/dev/null; then return; fi
		sleep 5
	done
	fail "the disk did not boot: $(in_disk "$1" true 2>&1)"
}

# end_disk ends that machine, which must have lived until then.
end_disk() {
	local status=0
	trap - EXIT
	kill "$DISK_PID" || fail "the disk's machine has ended by itself"
	wait "$DISK_PID" || status=$?
	((status == 0 || status == 143)) || fail "the disk's machine ended with exit status $status" # 143: by the kill
}

in_disk() {
	ssh -i "$1/key" -p 22022 -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=no \
		-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR root@127.0.0.1 "$2"
}

# Nightly only: routers that are set over ssh lose their contact, and faults are
# planted there.
losses() {
	install_packages sshd=openssh-server ssh=openssh-client
	suite remote -binary "$PROGRAM" -losses 100 -run 'TestLosses$'
	suite remote -binary "$PROGRAM" -faults -run TestFaultsOverSSH
	suite remote -binary "$PROGRAM" -portable -run TestPortableEndsOverSSH
}

# Nightly only: a lab over ssh whose machines are a place of a real labgrid coordinator, with a played power port.
labgrid() {
	real_labgrid
	suite remote -binary "$PROGRAM" -labgrid "$WORK/labgrid/bin" -run 'TestLabgrid$'
}

LABGRID=labgrid==26.0.1
real_labgrid() {
	install_packages sshd=openssh-server ssh=openssh-client microcom=microcom python3=python3
	python3 -c 'import ensurepip' || install_packages venv=python3-venv
	python3 -m venv "$WORK/labgrid"
	"$WORK/labgrid/bin/pip" install --quiet --disable-pip-version-check "$LABGRID"
}

# Nightly only: routers with a root file system like OpenWrt's, over dropbear: everything is tried on them, and
# their contact is lost in the middle. What is built for that is not shipped.
openwrt() {
	local status=0 root="${OPENWRT:-$WORK/openwrt}"
	install_packages sshd=openssh-server ssh=openssh-client busybox=busybox cpio=cpio patch=patch make=make gcc=gcc \
		bzip2=bzip2 xz=xz-utils cargo=cargo nft=nftables qemu-system-x86_64=qemu-system-x86
	as_root bench/remote/openwrt/build "$root" || status=$?
	if ((status == 75)); then
		skip openwrt "what its root file system is made of cannot be reached"
		return
	fi
	((status == 0)) || fail "a root file system like OpenWrt's: exit status $status"
	suite remote -binary "$PROGRAM" -openwrt "$root" -run 'TestOpenWrt$'
}

# The report and pages of the catalogue in a browser; axe-core looks for what keeps people from reading them.
AXE_CORE=axe-core@4.14.1
screenshots() {
	mkdir -p "$WORK/shots"
	npm install --prefix "$WORK/axe" --cache "$WORK/npm" --ignore-scripts --no-audit --no-fund "$AXE_CORE"
	export AXE="$WORK/axe/node_modules/axe-core/axe.min.js"
	suite pagecheck -axe "$AXE" -run 'TestPlantedBarriers|TestHistory|TestServed' -pictures "$WORK/shots"
	as_root env AXE="$AXE" FIRST=rates,bottleneck,bufferbloat,path TALLEST=12000 .ci/screenshots.sh \
		"$(find "$WORK/root-home/data" -name report.html | head -n 1)" "$WORK/shots" "$WORK/as_root.json"
	as_root "$PROGRAM" catalog build --output "$WORK/site"
	local page
	for page in index effects compare-wireguard device-bpi-r4; do
		as_root env AXE="$AXE" .ci/screenshots.sh "$WORK/site/$page.html" "$WORK/shots/$page"
	done
	served_pages
}

# Each kind of page of chokepoint serve, over two short runs.
served_pages() {
	private_home "$WORK/served" root
	local plan="$WORK/served/plan.yaml" url page ids=() n=0
	printf '%s\n' 'name: served' 'method: {duration: 300ms, warmup: 50ms, cooldown: 0, idle: 100ms, runs: 1}' \
		'matrix: {direction: [up, down]}' >"$plan"
	as_root "$PROGRAM" run "$plan" --quiet
	as_root "$PROGRAM" run "$plan" --quiet
	as_root "$PROGRAM" list --json >"$WORK/served/list"
	mapfile -t ids < <(grep -o '^{"id":"[^"]*' "$WORK/served/list" | cut -d '"' -f 4)
	as_root "$PROGRAM" show --json >"$WORK/served/run.json"
	as_root sh -c 'echo $$ >"$0.pid"; exec "$@" >"$0"' "$WORK/served/url" "$PROGRAM" serve --listen 127.0.0.1:0 &
	local server=$!
	trap 'as_root kill "$(cat "$WORK/served/url.pid")"' EXIT # also if a page fails
	for _ in {1..100}; do
		url=$(cat "$WORK/served/url" 2>/dev/null) || true
		[[ -z $url ]] || break
		sleep 0.1
	done
	for page in "" devices compare "compare?a=${ids[1]}&b=${ids[0]}" history "history?plan=served" beds alarms nothing; do
		as_root env AXE="$AXE" .ci/screenshots.sh "$url$page" "$WORK/shots/served-$((++n))"
	done
	as_root env AXE="$AXE" .ci/screenshots.sh "${url}runs/${ids[0]}" "$WORK/shots/served-run" "$WORK/served/run.json"
	trap - EXIT
	as_root kill "$(cat "$WORK/served/url.pid")"
	wait "$server" # 0: it has ended as it should
}

# Nightly only: whether our engine and iperf3 agree.
agreement() { as_root go -C bench run ./engine -suite agreement -pairs 6 -seconds 3; }

# Nightly only: the labelled suites of the diagnosis are recorded anew, and scored.
diagnosis() {
	local clone="$WORK/diagnosis" kept="$WORK/diagnosis.kept" with
	fresh_clone "$clone"
	cd "$clone/bench"
	private_home "$WORK/diagnosis-home" root
	with=(-binary "$PROGRAM" -keep "$kept" -each 1)
	as_root go test -count=1 -timeout 0 -v -run '^TestLeaveOneOut$' ./diagnosis -leave-out || return
	as_root go test -count=1 -timeout 0 -v -run '^TestRecordMechanisms$' ./diagnosis "${with[@]}" || return
	as_root go test -count=1 -v -run '^Test(Mechanisms|Pack)$' ./diagnosis -keep "$kept" || return
	as_root go test -count=1 -timeout 0 -v -run '^TestRecordMechanisms$' ./diagnosis "${with[@]}" -proofs || return
	with=(-binary "$PROGRAM" -keep "$kept.blackbox")
	rm blackbox/testdata/runs.jsonl.gz # what is recorded is not recorded again
	as_root go test -count=1 -timeout 0 -v -run '^TestRecord$' ./blackbox "${with[@]}" -per-class 4 || return
	as_root go test -count=1 -v -run '^TestAccuracy$' ./blackbox -half all
}

# Ten searches of one rate: of a router with a limit of its own, of one that is
# as fast as this machine, and of a virtual one. The last two, loaded flat out for
# a second at a time, say how fast the machine itself was each second. Nightly only.
searches() {
	local status=0
	private_home "$WORK/searches" root
	repeated ten-shaped local .03 || status=1
	repeated flat local 0 packet_rate_pps || status=1
	repeated ten local .03 || status=1
	repeated flat vm 0 packet_rate_pps || status=1
	repeated ten vm 0 || status=1
	return "$status"
}

# repeated PLAN LAB SPREAD [METRICS]
repeated() {
	say "$1 on $2"
	as_root "$PROGRAM" run "$TOP/bench/search/$1.yaml" --lab "$2" >/dev/null &&
		as_root "$PROGRAM" show --json latest >"$WORK/searches.json" &&
		suite document -run TestSearches -document "$WORK/searches.json" -spread "$3" ${4:+-metrics "$4"}
}

# 10^8 packets on this machine and 10^6 through a virtual router, and what was
# done to them on their way. Nightly only.
accounts() {
	private_home "$WORK/accounts" root
	suite accounts -packets 100000000 | sed 's/^[|0-9]/note: &/'
	suite accounts -lab vm -packets 1000000 | sed 's/^[|0-9]/note: &/'
}

# What watching costs under load, by the program's own accounting.
observing() {
	private_home "$WORK/observing" root
	as_root "$PROGRAM" run quick --set method.duration=10s --set method.runs=6 >/dev/null
	as_root "$PROGRAM" show --json latest >"$WORK/observing.json"
	suite document -run TestObserving -document "$WORK/observing.json"
}

everything_left_as_found() { left_as_found "$WORK/machine"; }
