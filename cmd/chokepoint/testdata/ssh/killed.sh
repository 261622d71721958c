# Kills a run of plan $2 once command $3 says $4 on the router, until it does not any more.
chokepoint run $1/$2 --client local --router ssh://router --server ssh://server --ssh-config $1/config \
	--set method.duration=2s --set measure.tester_ceiling=false --quiet >/dev/null 2>&1 &
i=0
until ssh -F $1/config router "$3" | grep -q $4; do
	i=$((i+1)); [ $i -lt 100 ] || { kill -9 $!; echo "$4 never came" >&2; exit 1; }; sleep 0.1
done
kill -9 $!
i=0
while ssh -F $1/config router "$3" | grep -q $4; do
	i=$((i+1)); [ $i -lt 100 ] || { echo "$4 stays" >&2; exit 1; }; sleep 0.1
done
