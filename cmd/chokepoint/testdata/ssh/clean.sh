# Nothing of an agent is left.
for d in /tmp /var/tmp /dev/shm /run; do
	for f in $d/chokepoint-?????? $d/chokepoint-guard-* $d/chokepoint-watch-*; do [ ! -e "$f" ] || { echo "$f is left" >&2; exit 1; }; done
done
