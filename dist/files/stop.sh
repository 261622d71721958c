#!/bin/sh
# The peer ends and its links go if the package is removed, not if it is upgraded: deb says remove, rpm 0.
case "$1" in
remove | 0)
	if command -v systemctl >/dev/null; then
		systemctl --quiet --now disable chokepoint-peer.service || true
	fi
	;;
esac
